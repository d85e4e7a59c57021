package process

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Listen serves on a Unix socket until ctx or the standard input ends. So the process exits with its
// parent.
func Listen(ctx context.Context, socket string, handler http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	ended, err := Serve(ctx, socket, handler)
	if err != nil {
		return err
	}
	return <-ended
}

// Serve serves on a Unix socket until ctx ends and the requests in progress have finished. Then
// ended receives the result. When Serve returns, the socket accepts connections.
func Serve(ctx context.Context, socket string, handler http.Handler) (ended <-chan error, err error) {
	_ = os.Remove(socket) // of a process that was killed
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	})
	served := make(chan error, 1)
	go func() {
		err := server.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			err = <-stopped
		}
		served <- err
	}()
	return served, nil
}

// Show serves on a TCP address until stop is called, which closes all connections.
func Show(ctx context.Context, address string, handler http.Handler) (url string, stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // returns after stop
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}

// Dial returns a DialContext function for a Unix socket.
func Dial(socket string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
}
