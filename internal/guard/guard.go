// Package guard cleans up after the servers that tests start, however those end.
package guard

import (
	"errors"
	"io"
	"os"
	"os/exec"
)

// Guard cleans up after a server when we say so, or are no more. It is a process of
// its own, so that it outlives a panic, a kill and the timeout of go test. Its methods
// are not safe for concurrent use.
type Guard struct {
	cmd   *exec.Cmd
	alive io.Closer // it waits until that is closed
}

// New starts a guard, which will run a shell script with these arguments, from $0 on.
// prepare is called before it starts, and is to take it out of reach of the terminal's
// signals.
func New(prepare func(*exec.Cmd), script string, args ...string) (*Guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	//nolint:gosec,noctx // The arguments are our own, and it outlives every context.
	cmd := exec.Command("/bin/sh", append([]string{"-c", "cat >/dev/null\n" + script}, args...)...)
	cmd.Dir = "/"
	cmd.Stdin = r
	prepare(cmd)
	if err := errors.Join(cmd.Start(), r.Close()); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &Guard{cmd, w}, nil
}

// Release lets the guard do its work, and returns when it has: of how it did that,
// what counts is whether it is done. On nil, and when called again, it does nothing.
func (g *Guard) Release() error {
	if g == nil || g.alive == nil {
		return nil
	}
	err := g.alive.Close()
	g.alive = nil
	_ = g.cmd.Wait()
	return err
}
