package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Process is this program as a part of the service, one process after the other: as
// soon as one is gone, the next one starts. It is safe for concurrent use.
type Process struct {
	args   []string
	Socket string // where it listens
	log    io.Writer

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer // its end is the process's
	ended bool
	gone  chan struct{} // closed when nothing starts any more
}

// New makes one that does not run yet. log nil: nobody reads what it writes.
func New(socket string, log io.Writer, command string, args ...string) *Process {
	return &Process{args: append([]string{command, "-listen", socket}, args...), Socket: socket, log: log}
}

// Start returns when it answers.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	p.ended, p.gone = false, make(chan struct{})
	p.mu.Unlock()
	go p.keep(ctx)
	return p.Healthy(ctx)
}

// keep starts a process after the other.
func (p *Process) keep(ctx context.Context) {
	defer close(p.gone)
	for ctx.Err() == nil {
		cmd := p.launch(ctx)
		if cmd == nil {
			return
		}
		_ = cmd.Wait()                    // "signal: killed"
		time.Sleep(20 * time.Millisecond) // It may be the database that is not there.
	}
}

// launch is nil when there is to be none any more.
func (p *Process) launch(ctx context.Context) *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	program, err := os.Executable()
	if p.ended || err != nil {
		return nil
	}
	p.cmd = exec.CommandContext(ctx, program, p.args...)
	if p.log != nil {
		// By a pipe: a file would be limited as SQLite's are when the disk is full.
		p.cmd.Stderr = struct{ io.Writer }{p.log}
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil
	}
	if err := p.cmd.Start(); err != nil {
		return nil
	}
	return p.cmd
}

// Do does something to the process that runs, if one does. Its error says that this
// system cannot do that.
func (p *Process) Do(something func(*os.Process) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil || p.ended {
		return nil
	}
	if err := something(p.cmd.Process); errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil // Or the process has just gone.
}

// Kill is SIGKILL: the process has no time for anything. The next one starts.
func (p *Process) Kill() error { return p.Do((*os.Process).Kill) }

// Stop is SIGKILL, and no other one starts.
func (p *Process) Stop() {
	p.end(func() { _ = p.cmd.Process.Kill() })
}

// Drain lets the process bring to its end what it has begun. No other one starts.
func (p *Process) Drain() {
	p.end(func() { _ = p.stdin.Close() })
}

func (p *Process) end(how func()) {
	p.mu.Lock()
	p.ended = true
	if p.cmd != nil && p.cmd.Process != nil {
		how()
	}
	gone := p.gone
	p.mu.Unlock()
	if gone != nil {
		<-gone
	}
}

// Healthy waits until it answers.
func (p *Process) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{DialContext: Over(p.Socket), DisableKeepAlives: true},
		Timeout:   500 * time.Millisecond, // It may have been stopped.
	}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://process/health", http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
		if err := sleep.Context(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%s does not come up: %w", p.args[0], err)
		}
	}
}
