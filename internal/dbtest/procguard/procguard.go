// Package procguard stops the servers that a test process starts when that process exits, however it exits.
package procguard

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
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

// StartTB starts a server for a test, and stops it when the test ends. If start fails with notInstalled, the test is
// skipped.
func StartTB[S interface{ Stop() error }](tb testing.TB, start func() (S, error), notInstalled error) S {
	tb.Helper()
	server, err := start()
	if errors.Is(err, notInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("starting a server: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return server
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
