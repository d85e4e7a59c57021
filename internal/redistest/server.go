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

	"github.com/resilienthttp/resilienthttp/internal/guard"
)

// ErrNotInstalled says that there is no Redis server here to start.
var ErrNotInstalled = errors.New("no Redis server is installed: on Debian, apt-get install redis-server")

// Server is a running server. It listens on a Unix socket alone, in a directory that
// nobody else can enter, and appends what is written to a file before it answers: so
// it forgets nothing when its process is killed. Its methods are not safe for
// concurrent use.
type Server struct {
	program, dir string
	cmd          *exec.Cmd
	guard        *guard.Guard
}

// Where appendfsync is everysec, writing to the file waits for up to two seconds for the
// flush before, and the answer does not. Nobody here asks what a power failure leaves.
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

// removal gives one that has just started a moment to say what its process is.
const removal = `[ -e "$0/redis.conf" ] && [ ! -s "$0/pid" ] && sleep 0.2
[ -s "$0/pid" ] && kill -9 "$(cat "$0/pid")"
rm -rf "$0"`

// Start starts a server. It is stopped, and its directory removed, by Stop, or when
// this process ends without having called it. Where there is no Redis, the error is an
// ErrNotInstalled.
func Start(ctx context.Context) (*Server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNotInstalled
	}
	s := &Server{program: program}
	if s.dir, err = os.MkdirTemp("/tmp", "redis"); err != nil { // a socket's path must be short
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// StartTB starts a server for the test. Where there is no Redis, the test is skipped.
func StartTB(tb testing.TB) *Server {
	tb.Helper()
	s, err := Start(tb.Context())
	if errors.Is(err, ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("starting a Redis server: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func (s *Server) start(ctx context.Context) error {
	if err := os.WriteFile(s.path("redis.conf"), fmt.Appendf(nil, settings, s.dir), 0o600); err != nil {
		return err
	}
	var err error
	if s.guard, err = guard.New(apart, removal, s.dir); err != nil {
		return err
	}
	return s.Restart(ctx)
}

// patience is for the server to get going.
const patience = time.Minute

// Restart starts the server again, after a Crash. It returns when the server has read
// what it had written, and takes commands.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.cmd = exec.Command(s.program, s.path("redis.conf")) //nolint:gosec,noctx // Redis, which outlives the context.
	s.cmd.Dir = s.dir
	apart(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for {
		err := s.ping()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(s.path("log")) // It explains err, if it is there.
			return fmt.Errorf("%w\n%s", err, log)
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *Server) ping() error {
	conn, err := net.Dial("unix", s.Socket()) //nolint:noctx // It answers at once, or is not there.
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "+PONG") {
		err = errors.New(answer) // it is loading
	}
	return err
}

// Crash ends the server without warning, as SIGKILL does. It returns when it is gone.
// Restart starts it again.
func (s *Server) Crash() error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Kill()
	_ = s.cmd.Wait() // that it was killed is no news
	s.cmd = nil
	return errors.Join(err, os.RemoveAll(s.path("pid")))
}

// Pause stops the server's process, so that it neither answers nor is gone, until
// Resume.
func (s *Server) Pause() error { return pause(s.cmd.Process) }

// Resume lets it go on.
func (s *Server) Resume() error { return resume(s.cmd.Process) }

// Stop ends the server, if it runs, and removes all that it has left. It may be called
// again.
func (s *Server) Stop() error {
	return errors.Join(s.Crash(), s.guard.Release(), os.RemoveAll(s.dir))
}

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return s.path("redis.sock") }

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }
