package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/guard"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// ErrNoBouncer says that there is no PgBouncer here to start.
var ErrNoBouncer = errors.New("PgBouncer is not installed: on Debian, apt-get install pgbouncer")

// Bouncer is a running PgBouncer in front of a Server, which pools transactions: two
// transactions of one client need not have the same connection to the server, nor
// the statements that it has prepared there. (1.21 and later could see to those.)
// Its methods are not safe for concurrent use.
type Bouncer struct {
	program, dir string
	as           account
	guard        *guard.Guard
}

// A server that is away is asked again at once, and not after 15 s.
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
ignore_startup_parameters = extra_float_digits
logfile = %[2]s/log
pidfile = %[2]s/pid
`

// bouncerRemoval gives one that has just started a moment to say what its process is.
const bouncerRemoval = `[ -e "$0/pid" ] && [ ! -s "$0/pid" ] && sleep 1
kill -9 "$(cat "$0/pid")"
rm -rf "$0"`

// StartBouncer starts a PgBouncer in front of the server. It is stopped, and its
// directory removed, by Stop, or when this process ends without having called it.
// Where there is no PgBouncer, the error is an ErrNoBouncer.
func StartBouncer(ctx context.Context, server *Server) (*Bouncer, error) {
	program, err := bouncerProgram()
	if err != nil {
		return nil, err
	}
	b := &Bouncer{program: program, as: server.as}
	if b.dir, err = newDir(b.as, ""); err != nil {
		return nil, err
	}
	if err := b.start(ctx, server); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// bouncerProgram: Debian keeps it where only root's PATH leads.
func bouncerProgram() (string, error) {
	for _, name := range [...]string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return filepath.Abs(program)
		}
	}
	return "", ErrNoBouncer
}

func (b *Bouncer) start(ctx context.Context, server *Server) error {
	var err error
	if b.guard, err = guard.New(b.as.guarded, bouncerRemoval, b.dir); err != nil {
		return err
	}
	settings := fmt.Sprintf(bouncerSettings, server.dir, b.dir)
	if err := os.WriteFile(b.settings(), []byte(settings), 0o644); err != nil { //nolint:gosec // The account reads it.
		return err
	}
	return b.Restart(ctx)
}

// Socket is the path of its Unix socket. It speaks PostgreSQL's protocol, and knows
// the server's database "postgres" and its user "postgres".
func (b *Bouncer) Socket() string { return filepath.Join(b.dir, ".s.PGSQL.5432") }

// Runs reports whether it takes connections. It may end by itself: version 1.18 does, by
// "bad client state", when a request to cancel comes for a connection that is just being
// given up.
func (b *Bouncer) Runs() bool { return b.listens() }

// Crash ends it without warning, as SIGKILL does. It returns when it is gone, also if it
// was already. Restart starts it again.
func (b *Bouncer) Crash() error {
	pid, err := b.pid()
	if errors.Is(err, os.ErrNotExist) && !b.listens() {
		return nil
	}
	if err != nil {
		return b.explained(err)
	}
	if err := kill(pid); err != nil {
		return err
	}
	for b.listens() {
		time.Sleep(time.Millisecond) //nolint:forbidigo // It has been killed.
	}
	return os.Remove(b.lock()) // See Server.Crash.
}

// Restart starts it again, after a Crash. It returns when connections are taken.
func (b *Bouncer) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := b.run(ctx)
		if err == nil {
			err = b.taken(ctx)
		}
		if err == nil {
			return nil
		}
		// The one that was killed may not be gone yet.
		if sleep.Context(ctx, 10*time.Millisecond) != nil {
			return b.explained(err)
		}
	}
}

// explained is err with what PgBouncer says, if it says something.
func (b *Bouncer) explained(err error) error {
	log, _ := os.ReadFile(filepath.Join(b.dir, "log"))
	return fmt.Errorf("%w\n%s", err, log)
}

// run lets it go into the background.
func (b *Bouncer) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, b.program, "--daemon", "--quiet", b.settings()) //nolint:gosec // PgBouncer.
	cmd.Dir = b.dir
	cmd.Env = environment()
	b.as.prepare(cmd)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgbouncer: %w\n%s", err, output)
	}
	return nil
}

// taken waits until a connection is, and until Crash can find the process.
func (b *Bouncer) taken(ctx context.Context) error {
	for {
		_, err := b.pid()
		if err == nil && b.listens() {
			return nil
		}
		if over := sleep.Context(ctx, time.Millisecond); over != nil {
			return errors.Join(over, err)
		}
	}
}

func (b *Bouncer) pid() (int, error) {
	file, err := os.ReadFile(b.lock())
	if err != nil {
		return 0, err
	}
	return firstNumber(file)
}

func (b *Bouncer) listens() bool {
	conn, err := net.Dial("unix", b.Socket()) //nolint:noctx // It answers at once, or is not there.
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Stop ends it, if it runs, and removes all that it has left. It may be called
// again.
func (b *Bouncer) Stop() error { return errors.Join(b.guard.Release(), os.RemoveAll(b.dir)) }

func (b *Bouncer) lock() string     { return filepath.Join(b.dir, "pid") }
func (b *Bouncer) settings() string { return filepath.Join(b.dir, "pgbouncer.ini") }
