// Package process starts the program again as other processes, with a command as
// its first argument, and kills them.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Process runs this program as another process. If the process exits, it starts the next one. It is
// safe for concurrent use.
type Process struct {
	args   []string
	Socket string // the process listens on it
	log    io.Writer

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer // the process exits when it is closed
	ended bool
	gone  chan struct{} // closed when no other process starts
}

// New returns a Process that is not started, with a command for Run. log may be nil.
func New(socket string, log io.Writer, command string, config any) *Process {
	text, _ := json.Marshal(config) //nolint:errchkjson // strings, numbers and truth values
	return &Process{args: []string{command, socket, string(text)}, Socket: socket, log: log}
}

// Run runs the command of the process with its socket and its config.
func Run[T any](ctx context.Context, args []string, command func(ctx context.Context, socket string, config T) error) error {
	if len(args) != 3 {
		return fmt.Errorf("%s: %d arguments (want a socket and a config, as crashtest starts it)", args[0], len(args)-1)
	}
	var config T
	if err := json.Unmarshal([]byte(args[2]), &config); err != nil {
		return err
	}
	return command(ctx, args[1], config)
}

// Start starts the process and waits until it is healthy.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	p.ended, p.gone = false, make(chan struct{})
	p.mu.Unlock()
	go p.keep(ctx)
	return p.Healthy(ctx)
}

// keep starts one process after the other.
func (p *Process) keep(ctx context.Context) {
	defer close(p.gone)
	for ctx.Err() == nil {
		cmd := p.launch(ctx)
		if cmd == nil {
			return
		}
		_ = cmd.Wait()                    // "signal: killed"
		time.Sleep(20 * time.Millisecond) // the database may be unavailable
	}
}

// launch starts a process. It returns nil if no other process should start.
func (p *Process) launch(ctx context.Context) *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	program, err := os.Executable()
	if p.ended || err != nil {
		return nil
	}
	p.cmd = exec.CommandContext(ctx, program, p.args...)
	p.cmd.Stderr = p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil
	}
	if err := p.cmd.Start(); err != nil {
		return nil
	}
	return p.cmd
}

// Do calls f for the running process, if there is one. It returns errors.ErrUnsupported only.
func (p *Process) Do(f func(*os.Process) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil || p.ended {
		return nil
	}
	if err := f(p.cmd.Process); errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil // other errors mean that the process has exited
}

// Kill sends SIGKILL. The next process starts.
func (p *Process) Kill() error { return p.Do((*os.Process).Kill) }

// Stop sends SIGKILL. No other process starts.
func (p *Process) Stop() { p.end(func() { _ = p.cmd.Process.Kill() }) }

// Drain lets the process finish its requests and exit. No other process starts.
func (p *Process) Drain() { p.end(func() { _ = p.stdin.Close() }) }

func (p *Process) end(exit func()) {
	p.mu.Lock()
	p.ended = true
	if p.cmd != nil && p.cmd.Process != nil {
		exit()
	}
	gone := p.gone
	p.mu.Unlock()
	if gone != nil {
		<-gone
	}
}

// Healthy waits until the process responds.
func (p *Process) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{DialContext: Dial(p.Socket), DisableKeepAlives: true},
		Timeout:   500 * time.Millisecond, // the process may be suspended
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
			return fmt.Errorf("%s is not healthy: %w", p.args[0], err)
		}
	}
}

// Listen serves on a Unix socket until ctx or the standard input ends, so that the process exits with
// its parent. Requests in progress are finished.
func Listen(ctx context.Context, socket string, handler http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	_ = os.Remove(socket) // of a process that was killed
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// Dial returns a DialContext function for a Unix socket.
func Dial(socket string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
}
