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

// tier is a service that counts its requests and records its remaining time.
type tier struct {
	name  string
	start time.Time
	work  http.HandlerFunc

	mu    sync.Mutex
	calls int
	left  time.Duration // remaining time at the first request
	ended time.Duration // end of the last request, since start
}

// tierStats are the statistics of the caller or a service.
type tierStats struct {
	name        string
	calls       int
	left, ended time.Duration
}

func (t *tier) stats() tierStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return tierStats{t.name, t.calls, t.left, t.ended}
}

func (t *tier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	deadline, _ := r.Context().Deadline() // set by DeadlineHandler
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

// forward calls the next service and returns its status. The context of the request has the deadline
// and the retry ownership, so the call must use it.
func forward(client *http.Client, next string) http.HandlerFunc {
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
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be reused
	return resp.StatusCode, nil
}
