package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
)

// serveCommand is the first argument of a process of a service.
const serveCommand = "serve"

// serviceConfig is that of a process of an app.
type serviceConfig struct {
	App, Mode, Database string

	DSN       string // a file, or PostgreSQL's connection string
	Bank      string // its socket; "": none
	Poison    string // the reference of the order that kills the process; "": none
	Responses chaos.Responses
}

// serve runs a process of an app.
func serve(ctx context.Context, socket string, c serviceConfig) error {
	l, err := openLedger(ctx, c.App, c.Database, c.DSN)
	if err != nil {
		return err
	}
	defer l.close()
	var s interface {
		order() http.Handler
		work(context.Context) error // until its context ends
	}
	if c.App == paymentsApp {
		s = newService(l, c.Mode, c.Bank, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	} else {
		s = newShop(l, c.Mode, c.Poison, c.Bank, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", s.order())
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { err = s.work(working) })
	listened := process.Listen(ctx, socket, c.Responses.Handler(mux))
	stop()
	work.Wait()
	return errors.Join(listened, err)
}
