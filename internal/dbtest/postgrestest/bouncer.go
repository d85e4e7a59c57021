package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/procguard"
)

// ErrNoBouncer means that PgBouncer is not installed.
var ErrNoBouncer = errors.New("PgBouncer is not installed: on Debian, apt-get install pgbouncer")

// Bouncer is a running PgBouncer in front of a Server, in transaction pooling mode. Two transactions of one client may
// use different connections to the server, where prepared statements of the other connection do not exist. (PgBouncer
// 1.21 and later can prepare them again.) Its methods are not safe for concurrent use.
type Bouncer struct {
	procguard.Daemon
	home
}

// bouncerSettings sets server_login_retry because its default of 15 s would delay the first connection after a restart
// of the server. It sets query_wait_timeout because PgBouncer does not see that a waiting client has gone: it makes a
// connection for it first, and a queue of clients that have gone never ends. The default is 120 s.
const bouncerSettings = `[databases]
postgres = host=%[1]s port=5432 user=postgres

[pgbouncer]
listen_port = 5432
unix_socket_dir = %[2]s
auth_type = any
pool_mode = transaction
default_pool_size = 30
max_client_conn = 500
server_login_retry = 0.1
query_wait_timeout = 0.5
ignore_startup_parameters = extra_float_digits
logfile = %[2]s/log
pidfile = %[2]s/pid
`

// bouncerCleanupScript waits for a PgBouncer that has just started to write its pid file.
const bouncerCleanupScript = `[ -e "$0/pid" ] && [ ! -s "$0/pid" ] && sleep 1
kill -9 "$(cat "$0/pid")"
rm -rf "$0"`

// StartBouncer starts a PgBouncer in front of the server. Stop, or the end of this process, stops it and removes its
// directory. Without PgBouncer on this machine the error is ErrNoBouncer.
func StartBouncer(ctx context.Context, server *Server) (*Bouncer, error) {
	program, err := bouncerProgram()
	if err != nil {
		return nil, err
	}
	b := &Bouncer{home: home{as: server.as}}
	err = b.begin(func() error {
		settings := filepath.Join(b.dir, "pgbouncer.ini")
		b.Daemon = procguard.Daemon{Dir: b.dir, Command: []string{program, "--quiet", settings}, Prepare: b.as.prepareCommand, Ask: b.ask}
		//nolint:gosec // The account reads it.
		if err := os.WriteFile(settings, fmt.Appendf(nil, bouncerSettings, server.dir, b.dir), 0o644); err != nil {
			return err
		}
		return b.Restart(ctx)
	}, bouncerCleanupScript)
	return b, err
}

// bouncerProgram returns the path of PgBouncer. Debian installs it in /usr/sbin, which is in the PATH of root only.
func bouncerProgram() (string, error) {
	for _, name := range [...]string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return filepath.Abs(program)
		}
	}
	return "", ErrNoBouncer
}

// Runs reports whether PgBouncer accepts connections. Version 1.18 may exit with "bad
// client state" when a cancel request arrives for a connection that is being closed.
func (b *Bouncer) Runs() bool { return b.ask() == nil }

func (b *Bouncer) ask() error {
	conn, err := net.Dial("unix", b.Socket()) //nolint:noctx // A Unix socket answers or fails at once.
	if err != nil {
		return err
	}
	return conn.Close()
}
