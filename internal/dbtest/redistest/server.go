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
	"time"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/procguard"
)

// ErrNotInstalled means that no Redis server is installed.
var ErrNotInstalled = errors.New("no Redis server is installed: on Debian, apt-get install redis-server")

// Server is a running Redis server. It listens only on a Unix socket in a private directory. It appends each write to a
// file before it answers, so a killed server loses no write. Its methods are not safe for concurrent use.
type Server struct {
	program, dir string
	cmd          *exec.Cmd
	cleanup      *procguard.Cleanup
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
	s := &Server{program: program}
	if s.dir, err = os.MkdirTemp("/tmp", "redis"); err != nil { // the path of a socket must be short
		return nil, err
	}
	err = os.WriteFile(s.path("redis.conf"), fmt.Appendf(nil, settings, s.dir), 0o600)
	if err == nil {
		s.cleanup, err = procguard.Start(procguard.NewSession, cleanupScript, s.dir)
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

// Restart starts the server again, after a Crash. It returns when the server has read
// its file and accepts commands. It waits at most one minute.
func (s *Server) Restart(ctx context.Context) error {
	s.cmd = exec.Command(s.program, s.path("redis.conf")) //nolint:gosec,noctx // The server outlives the context.
	s.cmd.Dir = s.dir
	procguard.NewSession(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return procguard.Await(ctx, time.Millisecond, s.path("log"), func(context.Context) error { return s.ping() })
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

// Crash kills the server with SIGKILL and returns when it has exited. Restart starts it again.
func (s *Server) Crash() error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Kill()
	_ = s.cmd.Wait() // its error is that the process was killed
	s.cmd = nil
	return errors.Join(err, os.RemoveAll(s.path("pid")))
}

// Pause suspends the server's process until Resume: connections stay open and get no answer.
func (s *Server) Pause() error { return procguard.Freeze(s.cmd.Process) }

// Resume ends Pause.
func (s *Server) Resume() error { return procguard.Thaw(s.cmd.Process) }

// Stop stops the server, if it runs, and removes its directory. It may be called more than once.
func (s *Server) Stop() error { return errors.Join(s.Crash(), s.cleanup.Run(), os.RemoveAll(s.dir)) }

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return s.path("redis.sock") }

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }
