package main

import (
	"context"
	"net"
	"os"
	"os/exec"
)

// process is the service, running as one process after the other on one address.
type process struct {
	address, database, dsn string
	current                *exec.Cmd
}

func startService(ctx context.Context, database, dsn string) (*process, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{address: address, database: database, dsn: dsn}
	err = p.start(ctx)
	return p, err
}

func (p *process) url() string { return "http://" + p.address }

// start waits until the service answers.
func (p *process) start(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.current = exec.CommandContext(ctx, program, serveCommand,
		"-listen", p.address, "-db", p.database, "-dsn", p.dsn, "-lose", "0.05", "-late", "0.05")
	p.current.Stdout, p.current.Stderr = os.Stderr, os.Stderr
	if err := p.current.Start(); err != nil {
		return err
	}
	return healthy(ctx, p.url())
}

// kill is SIGKILL: the process has no time for anything.
func (p *process) kill() {
	if p.current != nil {
		_ = p.current.Process.Kill()
		_ = p.current.Wait() // "signal: killed"
		p.current = nil
	}
}

func (p *process) restart(ctx context.Context) error {
	p.kill()
	return p.start(ctx)
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}
