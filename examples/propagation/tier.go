package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// tier is a service that notes how often it was asked, and for how long.
type tier struct {
	name  string
	start time.Time
	work  http.HandlerFunc

	mu    sync.Mutex
	calls int
	left  time.Duration // at the first call
	ended time.Duration // of the last, since start
}

// sight is what one tier has seen.
type sight struct {
	name        string
	calls       int
	left, ended time.Duration
}

func (t *tier) seen() sight {
	t.mu.Lock()
	defer t.mu.Unlock()
	return sight{t.name, t.calls, t.left, t.ended}
}

func (t *tier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	deadline, _ := r.Context().Deadline() // Deadline.Handler has put it there
	t.mu.Lock()
	t.calls++
	if t.calls == 1 {
		t.left = time.Until(deadline)
	}
	t.mu.Unlock()

	time.Sleep(workTime)
	t.work(w, r)

	t.mu.Lock()
	t.ended = time.Since(t.start)
	t.mu.Unlock()
}

// pass asks the next tier and passes its answer on. That the request's context
// goes along is all that it takes: deadline and ownership are in it.
func pass(client *http.Client, next string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, err := get(r.Context(), client, next)
		switch {
		case errors.Is(err, resilienthttp.ErrDeadline):
			status = http.StatusGatewayTimeout
		case err != nil:
			status = http.StatusBadGateway
		}
		w.WriteHeader(status)
	}
}

func get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return resp.StatusCode, nil
}
