package faulttest

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// loadRows are about a client with many calls.
func loadRows() []row {
	return []row{
		{"throttled-host", checkThrottledHost,
			"Each of the other calls is one more rejected request, and providers block clients that send many of them.",
			"RFC 6585, 4; RFC 9110, 10.2.3"},
		{"outage", checkOutage,
			"A restart or a deployment takes seconds: callers with time left need not see it.",
			"Amazon Builders' Library, Timeouts, retries, and backoff with jitter"},
		{"budget", checkBudget,
			"Three attempts for each call triple the load on a server that has failed because of its load.",
			"Google SRE book, 21: a retry budget of 10 % per client"},
	}
}

// during is a Script with a handler until then, and 200 later.
func during(until time.Duration, handler http.Handler) http.Handler {
	return Script{{Until: until, Handler: handler}, {Handler: OK("done")}}
}

func checkThrottledHost(c *trial) {
	const window, calls = 5 * time.Second, 50
	s := c.scene("429 with Retry-After for 5 s, and 10 calls a second", during(window, throttledUntil(time.Now().Add(window))))
	served := s.load(s.client, calls, window/calls, usual)
	rejected := 0
	for _, q := range s.Requests() {
		if q.Status == http.StatusTooManyRequests {
			rejected++
		}
	}
	s.want(rejected <= calls/4, "rejected requests", fmt.Sprintf("at most %d for %d calls", calls/4, calls), fmt.Sprint(rejected))
	s.want(served == calls, "calls that succeed within their minute", fmt.Sprint(calls), fmt.Sprint(served))
}

// throttledUntil rejects requests, and asks for the wait until then.
func throttledUntil(until time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Reply{Status: http.StatusTooManyRequests, RetryAfter: time.Until(until)}.ServeHTTP(w, r)
	})
}

func checkOutage(c *trial) {
	const gone, calls, lone = 4 * time.Second, 8, 30
	for name, script := range map[string]func() http.Handler{
		"503":                func() http.Handler { return during(gone, Status(503)) },
		"connection refused": func() http.Handler { return away{OK("done"), gone} },
	} {
		for _, left := range []time.Duration{10 * time.Second, 30 * time.Second} {
			s := c.scene(fmt.Sprintf("%s for %v, calls with %v", name, gone, left), script())
			var served atomic.Int64
			var alone sync.WaitGroup
			for range lone {
				client, _ := s.another() // it knows nothing of the server
				alone.Go(func() { served.Add(s.load(client, 1, 0, left)) })
			}
			served.Add(s.load(s.client, calls, gone/calls, left))
			alone.Wait()
			s.want(served.Load() == calls+lone, "calls that succeed", fmt.Sprint(calls+lone), fmt.Sprint(served.Load()))
		}
	}
}

func checkBudget(c *trial) {
	const outage, calls = time.Minute, 600
	s := c.scene("503 for a minute, and 10 calls a second with 10 s", during(outage, Status(503)))
	s.load(s.client, calls, outage/calls, 10*time.Second)
	const most = calls * 12 / 10
	s.want(s.Total() <= most, "requests", fmt.Sprintf("at most %d for %d calls", most, calls), fmt.Sprint(s.Total()))
}
