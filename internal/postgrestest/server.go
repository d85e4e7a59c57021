package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/guard"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Server is a running server, with the databases of a new cluster. Writes are
// flushed to disk as in production. Its methods are not safe for concurrent use.
type Server struct {
	bin, dir string
	as       account
	guard    *guard.Guard
}

// settings are appended to postgresql.conf. The socket stands in a directory that
// nobody else can enter, so that no port is taken and no password needed.
const settings = `
listen_addresses = ''
unix_socket_directories = '%s'
fsync = on
synchronous_commit = on
max_connections = 200
logging_collector = off
`

// Start makes a new cluster in a directory of its own below dir, and starts its
// server. dir "" is the system's temporary directory. The server is stopped, and
// its directory removed, by Stop, or when this process ends without having called
// it. Where there is no PostgreSQL, the error is an ErrNotInstalled.
func Start(ctx context.Context, dir string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, as: as}
	if s.dir, err = newDir(as, dir); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// longestSocket is the length of a socket's path that every system takes, less
// that of the file's name.
const longestSocket = 104 - len("/.s.PGSQL.5432") - 1

// newDir makes a directory for the account, and for a socket in it.
func newDir(as account, parent string) (string, error) {
	if parent == "" && as.other() && !everybodys(os.TempDir()) {
		parent = "/tmp" // TMPDIR is often root's own
	}
	dir, err := os.MkdirTemp(parent, "pg")
	if err == nil && len(dir) > longestSocket {
		if err = os.Remove(dir); err == nil {
			dir, err = os.MkdirTemp("/tmp", "pg")
		}
	}
	if err != nil {
		return "", err
	}
	return dir, as.own(dir)
}

// everybodys tells whether any account may make and remove files in dir, as in /tmp.
func everybodys(dir string) bool {
	wanted := fs.FileMode(0o003)
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&wanted != wanted {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir, wanted = parent, 0o001
	}
}

func (s *Server) start(ctx context.Context) error {
	var err error
	if s.guard, err = guard.New(s.as.guarded, removal, s.program("pg_ctl"), s.dir); err != nil {
		return err
	}
	err = s.run(ctx, "initdb", "--pgdata", s.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8",
		"--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conf, settings, s.dir)
	if err := errors.Join(err, conf.Close()); err != nil {
		return err
	}
	return s.Restart(ctx)
}

// removal stops the server and removes everything.
const removal = `"$0" stop --silent --wait --mode=immediate --pgdata="$1/data"
rm -rf "$1"`

// DSN is the address of the server's database "postgres", as a URL.
func (s *Server) DSN() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User("postgres"),
		Path:     "/postgres",
		RawQuery: url.Values{"host": {s.dir}, "sslmode": {"disable"}}.Encode(),
	}
	return u.String()
}

// Crash ends the server without warning, as SIGKILL does, and the processes of its
// connections too: left alone they would answer for another moment. (Only Linux tells
// which those are.) Restart starts it again.
func (s *Server) Crash() error {
	lock := filepath.Join(s.data(), "postmaster.pid")
	head, err := os.ReadFile(lock) //nolint:gosec // Our own.
	if err != nil {
		return err
	}
	pid, err := firstNumber(head)
	if err != nil {
		return err
	}
	// The server first, or it would notice and recover, or take another connection.
	err = kill(pid)
	for left := residents(s.data()); len(left) > 0; left = residents(s.data()) {
		for _, connection := range left {
			_ = kill(connection) // It may be gone already.
		}
	}
	// Until somebody has waited for it, which in a container may take a second, a dead
	// server looks alive to the next one. That finds by itself whether connections are.
	return errors.Join(err, os.Remove(lock), os.Remove(s.Socket()+".lock"))
}

// firstNumber is that in a file's first line, as of a process's id.
func firstNumber(file []byte) (int, error) {
	first, _, _ := strings.Cut(string(file), "\n")
	return strconv.Atoi(first)
}

// residents are the processes that live in a directory, as those of a server do in
// its data.
func residents(dir string) []int {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // The pattern is a good one.
	for _, link := range links {
		where, _ := os.Readlink(link) // It may be gone already, or not ours to look at.
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && where == dir {
			pids = append(pids, pid)
		}
	}
	return pids
}

// patience is for the server to get going. Recovery is part of that.
const patience = time.Minute

// Restart starts the server again, after a Crash or Shutdown. It returns when the
// server takes connections.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.run(ctx, "pg_ctl", "start", "--silent", "--wait", "--pgdata", s.data(), "--log", s.log())
		if err == nil {
			return nil
		}
		// The children of a server that crashed live on for a moment, and as long as
		// they do another one refuses to start.
		if sleep.Context(ctx, 100*time.Millisecond) != nil {
			log, _ := os.ReadFile(s.log()) // It explains err, if it is there.
			return fmt.Errorf("%w\n%s", err, log)
		}
	}
}

// Shutdown ends the server and its connections in good order. Restart starts it
// again.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.run(ctx, "pg_ctl", "stop", "--silent", "--wait", "--mode=fast", "--pgdata", s.data())
}

// Stop ends the server, if it runs, and removes all that it has left. It may be
// called again.
func (s *Server) Stop() error {
	return errors.Join(s.guard.Release(), os.RemoveAll(s.dir))
}

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

func (s *Server) data() string               { return filepath.Join(s.dir, "data") }
func (s *Server) log() string                { return filepath.Join(s.dir, "log") }
func (s *Server) program(name string) string { return filepath.Join(s.bin, name) }

// run runs one of the server's programs to its end.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, s.program(name), args...) //nolint:gosec // A program of PostgreSQL's.
	cmd.Dir = s.dir
	cmd.Env = environment()
	s.as.prepare(cmd)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output)
	}
	return nil
}

// guarded makes a guard run as the account.
func (a account) guarded(cmd *exec.Cmd) {
	cmd.Env = environment()
	a.prepare(cmd)
}

// environment is ours, less what would lead PostgreSQL's programs elsewhere, and
// in English.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			env = append(env, v)
		}
	}
	return append(env, "LC_ALL=C")
}
