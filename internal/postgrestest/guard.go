package postgrestest

import (
	"errors"
	"io"
	"os"
	"os/exec"
)

// guard cleans up after a server when we say so, or are no more. It is a process of
// its own, so that it outlives a panic, a kill and the timeout of go test.
type guard struct {
	cmd   *exec.Cmd
	alive io.Closer // the guard waits until it is closed
}

// newGuard starts a guard, which will run a shell script with these arguments, from
// $0 on.
func newGuard(as account, script string, args ...string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	//nolint:gosec,noctx // The arguments are our own, and it outlives every context.
	cmd := exec.Command("/bin/sh", append([]string{"-c", "cat >/dev/null\n" + script}, args...)...)
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.Stdin = r
	as.prepare(cmd)
	if err := errors.Join(cmd.Start(), r.Close()); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &guard{cmd, w}, nil
}

// release lets the guard do its work, and returns when it has: of how it did that,
// what counts is whether it is done. On nil, and when called again, it does nothing.
func (g *guard) release() error {
	if g == nil || g.alive == nil {
		return nil
	}
	err := g.alive.Close()
	g.alive = nil
	_ = g.cmd.Wait()
	return err
}
