// Package redistest starts Redis servers for tests. Each server has a temporary directory and runs the installed
// program. It is stopped and removed when the process that started it exits, however it exits.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/procguard"
)

// ErrNotInstalled means that no Redis server is installed.
var ErrNotInstalled = errors.New("no Redis server is installed: on Debian, apt-get install redis-server")

// Server is a running Redis server. It listens only on a Unix socket in a private directory. It appends each write to a
// file before it answers, so a killed server loses no write. Its methods are not safe for concurrent use.
type Server struct {
	procguard.Daemon
	cleanup *procguard.Cleanup
}

// settings turns appendfsync off: with everysec a write to the file may wait two seconds
// for the previous flush. No test simulates a power failure.
const settings = `port 0
unixsocket %[1]s/redis.sock
dir %[1]s
pidfile %[1]s/pid
logfile %[1]s/log
daemonize no
save ""
appendonly yes
appendfsync no
`

// cleanupScript waits for a server that has just started to write its pid file.
const cleanupScript = `[ -e "$0/redis.conf" ] && [ ! -s "$0/pid" ] && sleep 0.2
[ -s "$0/pid" ] && kill -9 "$(cat "$0/pid")"
rm -rf "$0"`

// Start starts a server. Stop, or the end of this process, stops it and removes its
// directory. Without Redis on this machine the error is ErrNotInstalled.
func Start(ctx context.Context) (*Server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNotInstalled
	}
	s := &Server{}
	if s.Dir, err = os.MkdirTemp("/tmp", "redis"); err != nil { // the path of a socket must be short
		return nil, err
	}
	s.Command, s.Prepare, s.Ask = []string{program, s.path("redis.conf")}, procguard.NewSession, s.ping
	err = os.WriteFile(s.path("redis.conf"), fmt.Appendf(nil, settings, s.Dir), 0o600)
	if err == nil {
		s.cleanup, err = procguard.Start(procguard.NewSession, cleanupScript, s.Dir)
	}
	if err == nil {
		err = s.Restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// StartTB starts a server and stops it when the test ends. Without Redis on this machine the test is skipped.
func StartTB(tb testing.TB) *Server {
	tb.Helper()
	return procguard.StartTB(tb, func() (*Server, error) { return Start(tb.Context()) }, ErrNotInstalled)
}

func (s *Server) ping() error {
	conn, err := net.Dial("unix", s.Socket()) //nolint:noctx // A Unix socket answers or fails at once.
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "+PONG") {
		err = errors.New(answer) // the server is loading its file
	}
	return err
}

// Stop stops the server, if it runs, and removes its directory. It may be called more than once.
func (s *Server) Stop() error { return errors.Join(s.Crash(), s.cleanup.Run(), os.RemoveAll(s.Dir)) }

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return s.path("redis.sock") }

func (s *Server) path(name string) string { return filepath.Join(s.Dir, name) }
