//go:build killed && unix

package restart

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

const (
	heldRate     = 1000 // calls a second
	heldFor      = 10 * time.Second
	heldDeadline = 30 * time.Second
)

// held counts the calls that wait, and what they use.
type held struct {
	waiting, failed  atomic.Int64
	waited           int64   // calls that waited at the end of heldFor
	bytes, goroutine float64 // of each of them
	release          time.Duration
}

// hold makes heldRate calls a second for heldFor, measures, and lets the calls go.
func hold(call func(context.Context) error, letGo func()) *held {
	h := &held{}
	bytes, goroutines := used()
	var callers sync.WaitGroup
	start := time.Now()
	for i := range int(heldFor.Seconds()) * heldRate {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / heldRate)))
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), heldDeadline)
			defer cancel()
			h.waiting.Add(1)
			defer h.waiting.Add(-1)
			if call(ctx) != nil {
				h.failed.Add(1)
			}
		})
	}
	h.waited = h.waiting.Load()
	bytesHeld, goroutinesHeld := used()
	waiting := float64(max(h.waited, 1))
	h.bytes, h.goroutine = (bytesHeld-bytes)/waiting, (goroutinesHeld-goroutines)/waiting
	started := processorTime()
	letGo()
	callers.Wait()
	h.release = processorTime() - started
	return h
}

// used is the memory in use, with stacks, and the number of goroutines.
func used() (bytes, goroutines float64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// waiting is a RoundTripper that waits for a channel.
type waiting chan struct{}

func (w waiting) RoundTrip(req *http.Request) (*http.Response, error) {
	<-w
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// Calls to a server that is away wait for it. The callers' own cost is that of the same calls by an http.Client
// with a Base that waits for a channel. The target is that a call adds at most 2 KB.
//
//	go test -tags killed -run TestHeld -v ./benchmarks/restart
func TestHeld_costOfWaitingCalls(t *testing.T) {
	s := newShop(t)
	s.kill()
	request := func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address, http.NoBody)
	}
	open := make(chan struct{})
	calls := func(client *http.Client) func(context.Context) error {
		return func(ctx context.Context) error {
			req, err := request(ctx)
			if err != nil {
				return err
			}
			return send(client, req)
		}
	}
	own := hold(calls(&http.Client{Transport: waiting(open)}), func() { close(open) })
	client := resilienthttp.NewClient()
	defer client.CloseIdleConnections()
	ours := hold(calls(client), s.start)
	for name, h := range map[string]*held{"callers alone": own, "calls": ours} {
		t.Logf("%-14s %d waited, each with %.0f B and %.2f goroutines; %v of CPU to release them; %d failed",
			name, h.waited, h.bytes, h.goroutine, h.release, h.failed.Load())
	}
	require.Zero(t, ours.failed.Load(), "calls that did not wait for the server")
	require.LessOrEqual(t, ours.bytes-own.bytes, 2048.0)
	require.InDelta(t, own.goroutine, ours.goroutine, 0.01)
}
