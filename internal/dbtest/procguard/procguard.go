// Package procguard stops the servers that a test process starts when that process exits, however it exits.
package procguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Cleanup is a child process that waits until this process calls Run or exits, and then runs a shell script. A panic, a
// SIGKILL and the timeout of go test also start the script, because the child waits for the end of a pipe. The zero
// value is not usable; a nil *Cleanup does nothing. The methods are not safe for concurrent use.
type Cleanup struct {
	cmd  *exec.Cmd
	pipe io.Closer // the child waits until its end of this pipe is closed
}

// Start starts a Cleanup that will run a shell script with these arguments, which begin
// with $0. It calls prepare before the child starts; prepare must put the child into a
// session of its own, so that signals of the terminal do not reach it.
func Start(prepare func(*exec.Cmd), script string, args ...string) (*Cleanup, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	//nolint:gosec,noctx // The arguments are our own, and the child outlives every context.
	cmd := exec.Command("/bin/sh", append([]string{"-c", "cat >/dev/null\n" + script}, args...)...)
	cmd.Dir = "/"
	cmd.Stdin = r
	prepare(cmd)
	if err := errors.Join(cmd.Start(), r.Close()); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &Cleanup{cmd, w}, nil
}

// Started starts a server for a test. If start fails with notInstalled, the test is skipped.
func Started[S any](tb testing.TB, start func() (S, error), notInstalled error) S {
	tb.Helper()
	server, err := start()
	if errors.Is(err, notInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("starting a server: %v", err)
	}
	return server
}

// StartTB is Started, and stops the server when the test ends.
func StartTB[S interface{ Stop() error }](tb testing.TB, start func() (S, error), notInstalled error) S {
	tb.Helper()
	server := Started(tb, start, notInstalled)
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

// Daemon is a server that stays in the foreground, and writes the files log and pid in its directory. Its methods are not safe for
// concurrent use.
type Daemon struct {
	Dir     string
	Command []string
	Prepare func(*exec.Cmd)
	Ask     func() error // asks the server whether it accepts connections

	cmd *exec.Cmd // nil: it was never started
}

// Restart starts the server, also after a Crash. It returns when the server accepts connections. It waits at most one minute.
func (d *Daemon) Restart(ctx context.Context) error {
	if err := d.Crash(); err != nil {
		return err
	}
	cmd := exec.Command(d.Command[0], d.Command[1:]...) //nolint:gosec,noctx // The server outlives the context.
	cmd.Dir = d.Dir
	d.Prepare(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd = cmd
	return Await(ctx, time.Millisecond, filepath.Join(d.Dir, "log"), func(context.Context) error { return d.Ask() })
}

// Crash kills the server with SIGKILL and returns when it has exited. It may have exited before. Restart starts it again.
func (d *Daemon) Crash() error {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill() // it may have exited already
		_ = d.cmd.Wait()         // its error is that it was killed
	}
	return os.RemoveAll(filepath.Join(d.Dir, "pid"))
}

// Pause suspends the server's process until Resume: connections stay open and get no answer.
func (d *Daemon) Pause() error { return Freeze(d.cmd.Process) }

// Resume ends Pause.
func (d *Daemon) Resume() error { return Thaw(d.cmd.Process) }

// Await calls start, which starts a server or asks it, until it returns nil. It waits at most one minute, which includes a
// recovery. The child processes of a killed server may run for another moment, and until they exit a new server does not start.
func Await(ctx context.Context, pause time.Duration, log string, start func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := start(ctx)
		if err == nil {
			return nil
		}
		if sleep.Context(ctx, pause) != nil {
			text, _ := os.ReadFile(log) //nolint:gosec // Our own.
			return fmt.Errorf("%w\n%s", err, text)
		}
	}
}

// Run runs the script and returns when it has ended. The script's exit status is
// ignored. The second and later calls do nothing.
func (c *Cleanup) Run() error {
	if c == nil || c.pipe == nil {
		return nil
	}
	err := c.pipe.Close()
	c.pipe = nil
	_ = c.cmd.Wait()
	return err
}
