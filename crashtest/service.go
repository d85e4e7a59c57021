package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
)

// serveCommand is the first argument of a process of a service.
const serveCommand = "serve"

// serve runs a process of an app.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	socket := flags.String("listen", "", "Unix socket")
	app := flags.String("app", paymentsApp, "app")
	mode := flags.String("mode", "", "mode of the app")
	database := flags.String("db", chaos.SQLite, "database")
	dsn := flags.String("dsn", "", "file, or PostgreSQL's connection string")
	bankSocket := flags.String("bank", "", "Unix socket of the bank")
	responses := chaos.Responses{}
	responses.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	responses.Timeout = attemptTimeout
	l, err := openLedger(ctx, *app, *database, *dsn)
	if err != nil {
		return err
	}
	defer l.close()
	var s interface {
		order() http.Handler
		work(context.Context) error // until its context ends
	}
	if *app == paymentsApp {
		s = newService(l, *mode, *bankSocket, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	} else {
		s = newShop(l, *mode, *bankSocket, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", s.order())
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { err = s.work(working) })
	listened := process.Listen(ctx, *socket, responses.Handler(mux))
	stop()
	work.Wait()
	return errors.Join(listened, err)
}
