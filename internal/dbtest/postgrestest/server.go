// Package postgrestest starts PostgreSQL servers for tests and examples. Each server has a temporary directory and runs
// the installed binaries. It is stopped and removed when the process that started it exits, however it exits.
//
// [Open] is for tests, [Start] for programs, and [StartBouncer] starts a PgBouncer in
// front of a server. If RESILIENTHTTP_POSTGRES_DSN is set, Open uses that database.
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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/procguard"
)

// Server is a running PostgreSQL server with a new cluster. It flushes writes to disk
// as in production. Its methods are not safe for concurrent use.
type Server struct {
	bin string
	home
}

// home is the directory of a server or a PgBouncer, which also has its Unix socket.
type home struct {
	dir     string
	as      account
	cleanup *procguard.Cleanup
}

// Socket is the path of the Unix socket. PgBouncer's serves the database "postgres" and the user "postgres".
func (h *home) Socket() string { return filepath.Join(h.dir, ".s.PGSQL.5432") }

func (h *home) log() string { return filepath.Join(h.dir, "log") }

// Stop stops the process, if it runs, and removes its directory. It may be called more than once.
func (h *home) Stop() error { return errors.Join(h.cleanup.Run(), os.RemoveAll(h.dir)) }

// settings is appended to postgresql.conf. The server listens only on a Unix socket in
// a private directory, so it needs no port and no password.
const settings = `
listen_addresses = ''
unix_socket_directories = '%s'
fsync = on
synchronous_commit = on
max_connections = 200
logging_collector = off
`

// Start makes a new cluster in a new directory and starts its server. Stop, or the end of this process, stops the server
// and removes its directory. Without PostgreSQL on this machine the error is an ErrNotInstalled.
func Start(ctx context.Context) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	s := &Server{bin, home{as: as}}
	err = s.begin(func() error { return s.start(ctx) }, cleanupScript, s.program("pg_ctl"))
	return s, err
}

// begin makes the directory, and starts the process of its cleanup and then its own. The directory is the
// last argument of the script. After an error nothing is left.
func (h *home) begin(start func() error, script string, args ...string) (err error) {
	if h.dir, err = newDir(h.as); err != nil {
		return err
	}
	if h.cleanup, err = procguard.Start(h.as.prepareCommand, script, append(args, h.dir)...); err == nil {
		err = start()
	}
	if err != nil {
		return errors.Join(err, h.Stop())
	}
	return nil
}

// Standby starts a hot standby of the server, which follows it under the name "standby", and becomes a server of
// its own when Promote is called. The server's synchronous_standby_names is "standby" if synchronous is true: a
// commit then waits for the standby. Otherwise a commit may be lost with the server.
func (s *Server) Standby(ctx context.Context, synchronous bool) (*Server, error) {
	standby := &Server{s.bin, home{as: s.as}}
	err := standby.begin(func() error {
		if err := standby.run(ctx, "pg_basebackup", "--pgdata", standby.data(), "--host", s.dir, "--username=postgres",
			"--checkpoint=fast", "--no-sync", "--write-recovery-conf"); err != nil {
			return err
		}
		if err := standby.configure("unix_socket_directories = '%s'\ncluster_name = 'standby'\n", standby.dir); err != nil {
			return err
		}
		return standby.Restart(ctx)
	}, cleanupScript, s.program("pg_ctl"))
	if err != nil || !synchronous {
		return standby, err
	}
	err = errors.Join(s.configure("synchronous_standby_names = 'standby'\n"), s.run(ctx, "pg_ctl", "reload", "--silent", "--pgdata", s.data()))
	return standby, err
}

// Promote makes a standby a server that accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	return s.run(ctx, "pg_ctl", "promote", "--silent", "--wait", "--pgdata", s.data())
}

// maxParentLength is the maximum length of the directory that has that of a socket: the path length that
// every system accepts, less the length of the names.
const maxParentLength = 104 - len("/pg0123456789/.s.PGSQL.5432") - 1

// newDir makes a directory that the account owns, with a path that is short enough for a socket.
func newDir(as account) (string, error) {
	parent := os.TempDir()
	if len(parent) > maxParentLength || as.other() && !writableByAll(parent) {
		parent = "/tmp" // TMPDIR is often readable by root only
	}
	dir, err := os.MkdirTemp(parent, "pg")
	if err != nil {
		return "", err
	}
	return dir, as.own(dir)
}

// writableByAll reports whether every account may make and remove files in dir, as in /tmp.
func writableByAll(dir string) bool {
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
	err := s.run(ctx, "initdb", "--pgdata", s.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8",
		"--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	if err := s.configure(settings, s.dir); err != nil {
		return err
	}
	return s.Restart(ctx)
}

func (s *Server) configure(format string, args ...any) error {
	conf, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conf, format, args...)
	return errors.Join(err, conf.Close())
}

const cleanupScript = `"$0" stop --silent --wait --mode=immediate --pgdata="$1/data"
rm -rf "$1"`

// DSN is the URL of the server's database "postgres".
func (s *Server) DSN() string {
	return "postgres://postgres@/postgres?sslmode=disable&host=" + url.QueryEscape(s.dir)
}

// Crash kills the server with SIGKILL. On Linux it also kills the processes of the server's connections, which would
// otherwise answer for another moment. Restart starts the server again.
func (s *Server) Crash() error {
	lock := filepath.Join(s.data(), "postmaster.pid")
	text, err := os.ReadFile(lock) //nolint:gosec // Our own.
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n") // the process's number
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	// The server is killed first: otherwise it would restart its processes or accept another connection.
	err = kill(pid)
	for left := processesIn(s.data()); len(left) > 0; left = processesIn(s.data()) {
		for _, connection := range left {
			_ = kill(connection) // It may have exited already.
		}
	}
	// A killed server that is not yet reaped looks alive to its successor; in a container
	// the reaping may take a second. So its lock files are removed here.
	return errors.Join(err, os.Remove(lock), os.Remove(s.Socket()+".lock"))
}

// processesIn returns the processes with the working directory dir. The processes of a
// server work in its data directory.
func processesIn(dir string) []int {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // The pattern is valid.
	for _, link := range links {
		where, _ := os.Readlink(link) // It may have exited already, or belong to another account.
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && where == dir {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Restart starts the server again, after a Crash or Shutdown. It returns when the
// server accepts connections. It waits at most one minute.
func (s *Server) Restart(ctx context.Context) error {
	return procguard.Await(ctx, 100*time.Millisecond, s.log(), func(ctx context.Context) error {
		return s.run(ctx, "pg_ctl", "start", "--silent", "--wait", "--pgdata", s.data(), "--log", s.log())
	})
}

// Shutdown closes the connections and stops the server in an orderly way. Restart starts it again.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.run(ctx, "pg_ctl", "stop", "--silent", "--wait", "--mode=fast", "--pgdata", s.data())
}

func (s *Server) data() string               { return filepath.Join(s.dir, "data") }
func (s *Server) program(name string) string { return filepath.Join(s.bin, name) }

// run runs a program of PostgreSQL's.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, s.program(name), args...) //nolint:gosec // one of these
	cmd.Dir = s.dir
	s.as.prepareCommand(cmd)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output)
	}
	return nil
}

// prepareCommand gives a command the environment of this process without the variables that configure PostgreSQL's programs,
// and with English messages.
func (a account) prepareCommand(cmd *exec.Cmd) {
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	})
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	a.prepare(cmd)
}

// ErrNotInstalled means that no PostgreSQL server is installed.
var ErrNotInstalled = errors.New("no PostgreSQL server is installed: on Debian, apt-get install postgresql; " +
	"or set " + Variable + " to the DSN of a running one")

// debian matches the directories of the server's programs on Debian, in the order of versions. They are not in PATH,
// because several versions may be installed.
const debian = "/usr/lib/postgresql/[1-9][0-9]/bin"

// binaries returns the directory of the server's programs: the one in PATH, or the newest version of Debian's.
func binaries() (string, error) {
	dirs, _ := filepath.Glob(debian) // The pattern is valid.
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// The programs find each other and their data relative to their own path.
		if target, err := filepath.EvalSymlinks(initdb); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, dir := range slices.Backward(dirs) {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}
