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

// servePage serves the state page of the client's Transport on a loopback socket until stop is
// called, and prints its address. Only this machine can read it.
func servePage(ctx context.Context, out io.Writer, client *resilient) (stop func(), err error) {
	transport, ok := client.client.Transport.(*resilienthttp.Transport)
	if !ok {
		return nil, fmt.Errorf("state page: transport %T has no state", client.client.Transport)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("state page: %w", err)
	}
	server := &http.Server{
		Handler:           &statepage.Handler{Transports: map[string]*resilienthttp.Transport{"bank": transport}, Title: "quickstart"},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = server.Serve(listener) }()
	fmt.Fprintf(out, "The state page, while this runs: http://%s/?refresh=2\n", listener.Addr())
	return func() { _ = server.Close() }, nil
}
