package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// showPage serves what the client knows on an address, until stop is called.
func (c *client) showPage(ctx context.Context, address string, out io.Writer) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: c.page(), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	fmt.Fprintf(out, "what the client knows: http://%s/?refresh=2\n", listener.Addr())
	return func() { _ = server.Close() }, nil
}

func (c *client) page() http.Handler {
	h := &statepage.Handler{Title: "payments", Sources: []statepage.Source{{Name: "charges", State: c.counts}}}
	if transport, ok := c.http.Transport.(*resilienthttp.Transport); ok {
		h.Transports = map[string]*resilienthttp.Transport{"client of the payment service": transport}
	}
	return h
}

func (c *client) counts(context.Context) (any, error) {
	return map[string]int64{"attempts": c.attempts.Load(), "answers given before": c.replayed.Load(), "calls after one that failed": c.askedAgain.Load()}, nil
}
