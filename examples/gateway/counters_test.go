package main

import (
	"errors"
	"net/http"
	"sync"

	"github.com/resilienthttp/resilienthttp"
)

// caller is a client; the shop is three callers, by priority.
type caller int

const (
	critical caller = iota
	standard
	batch
	partner
	scraper
	bulk
	callers
)

func (c caller) priority() resilienthttp.Priority {
	switch c {
	case critical:
		return resilienthttp.PriorityCritical
	case batch:
		return resilienthttp.PriorityBatch
	default:
		return resilienthttp.PriorityDefault
	}
}

func (c caller) String() string {
	return [...]string{"critical", "default", "batch", "partner", "scraper", "bulk"}[c]
}

// figures are the counts of calls and responses.
type figures struct {
	calls, served, rejected [callers]int // rejected: by the client's circuit breaker
	responses               [callers]int
	shed, throttled, other  [callers]int // responses with 503, 429, and other errors
}

// since returns the difference to an earlier time.
func (f figures) since(earlier figures) figures {
	for _, pair := range [][2]*[callers]int{
		{&f.calls, &earlier.calls}, {&f.served, &earlier.served}, {&f.rejected, &earlier.rejected}, {&f.responses, &earlier.responses},
		{&f.shed, &earlier.shed}, {&f.throttled, &earlier.throttled}, {&f.other, &earlier.other},
	} {
		for c := range pair[0] {
			pair[0][c] -= pair[1][c]
		}
	}
	return f
}

func (f *figures) success(c caller) float64 {
	return float64(f.served[c]) / float64(max(1, f.calls[c]))
}

func sum(counts [callers]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// counters counts calls and responses.
type counters struct {
	mu  sync.Mutex
	all figures
}

func (t *counters) read() figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// call counts a call that has ended.
func (t *counters) call(c caller, status int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.calls[c]++
	switch {
	case errors.Is(err, resilienthttp.ErrBreakerOpen):
		t.all.rejected[c]++
	case err == nil && status == http.StatusCreated:
		t.all.served[c]++
	}
}

// response counts a response of the server.
func (t *counters) response(c caller, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.responses[c]++
	switch status {
	case http.StatusCreated:
	case http.StatusServiceUnavailable:
		t.all.shed[c]++
	case http.StatusTooManyRequests:
		t.all.throttled[c]++
	default:
		t.all.other[c]++
	}
}
