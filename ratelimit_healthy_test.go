package resilienthttp_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// A server that is healthy, or healthy again, gets nearly all calls of the last minute, within
// five seconds. No earlier response blocks calls without end.
func TestHealthyServer_isServed(t *testing.T) {
	const (
		ms = time.Millisecond
		s  = time.Second
	)
	ok := after(20*ms, status(200))
	one := []string{"RateLimit-Limit", "1", "RateLimit-Remaining", "0", "RateLimit-Reset", "1"}
	always := func(of step) func(time.Duration, int64) step {
		return func(time.Duration, int64) step { return of }
	}
	for _, tt := range []struct {
		name   string
		rate   *resilienthttp.RateLimit
		length time.Duration
		server func(age time.Duration, n int64) step // n counts the requests from 1
		least  float64
	}{
		{"a quota of one a second, shown once", nil, 75 * s, func(_ time.Duration, n int64) step {
			if n == 1 {
				return after(20*ms, status(200, one...))
			}
			return ok
		}, 1},
		{"the same, and by one rejection", nil, 4 * time.Minute, func(_ time.Duration, n int64) step {
			switch n {
			case 1:
				return after(20*ms, status(200, one...))
			case 2:
				return after(20*ms, status(429, one...))
			}
			return ok
		}, 1},
		{"nothing remains, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Remaining", "0", "RateLimit-Reset", "3"))), 1},
		{"nothing remains of a hundred, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "100", "RateLimit-Remaining", "0", "RateLimit-Reset", "1"))), 1},
		{"a reset in the past, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000001"))), 1},
		{"0 of 0, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "0", "RateLimit-Remaining", "0", "RateLimit-Reset", "60"))), 1},
		{"a negative count, always", nil, 2 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "100", "RateLimit-Remaining", "-1", "RateLimit-Reset", "60"))), 1},
		{"a reset an hour off, and nothing remains", nil, 3 * time.Minute, always(after(20*ms, status(200, "RateLimit-Limit", "100", "RateLimit-Remaining", "0", "RateLimit-Reset", "3600"))), 0.99}, // a call is rejected before one tests it
		{"a clock an hour ahead", nil, 2 * time.Minute, func(time.Duration, int64) step { return clockOff(time.Hour) }, 1},
		{"a clock an hour behind", nil, 2 * time.Minute, func(time.Duration, int64) step { return clockOff(-time.Hour) }, 1},
		{"a bad request that asks to wait, and an exhausted 503, which are over", nil, 3 * time.Minute, func(age time.Duration, n int64) step {
			switch {
			case age < 5*s && n%2 == 0:
				return after(20*ms, status(400, "Retry-After", "60"))
			case age < 5*s:
				return after(20*ms, status(503, "Retry-After", "60", "RateLimit-Remaining", "0"))
			}
			return ok
		}, 1},
		{"a block of ten minutes that is over", nil, 12 * time.Minute, func(age time.Duration, _ int64) step {
			if age < 5*s {
				return after(20*ms, status(429, "Retry-After", "600"))
			}
			return ok
		}, 1},
		{"slower than before an outage, and one of twenty fails", nil, 4 * time.Minute, func(age time.Duration, n int64) step {
			switch {
			case age < 10*s:
				return after(50*ms, status(200))
			case age < 20*s:
				return after(500*ms, status(503))
			case n%20 == 0:
				return after(300*ms, status(500))
			}
			return after(300*ms, status(200))
		}, 0.99},
		{"a first request that hangs, and a quota that processes share", &resilienthttp.RateLimit{Shared: new(quotastore.Memory)}, 2 * time.Minute, func(_ time.Duration, n int64) step {
			if n == 1 {
				return hanging
			}
			return ok
		}, 1},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			begin := time.Now()
			var n, calls, served atomic.Int64
			tr := &resilienthttp.Transport{RateLimit: tt.rate, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				return tt.server(time.Since(begin), n.Add(1))(r)
			})}
			ctx, over := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for time.Since(begin) < tt.length {
				wg.Go(func() {
					start := time.Now()
					late := start.Sub(begin) > tt.length-time.Minute
					resp, err := tr.RoundTrip(get(t).WithContext(ctx))
					if !late {
						return
					}
					if calls.Add(1); err == nil && resp.StatusCode == http.StatusOK && time.Since(start) < 5*s {
						served.Add(1)
					}
				})
				time.Sleep(50 * ms)
			}
			time.Sleep(time.Minute)
			over()
			wg.Wait()
			require.GreaterOrEqual(t, float64(served.Load())/float64(calls.Load()), tt.least, "%+v", tr.State())
		})
	}
}

// clockOff is a response of a server with a wrong clock and a quota that is not short.
func clockOff(by time.Duration) step {
	return after(20*time.Millisecond, func(r *http.Request) (*http.Response, error) {
		now := time.Now().Add(by)
		return status(200, "Date", now.UTC().Format(http.TimeFormat), "X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "500",
			"X-RateLimit-Reset", strconv.FormatInt(now.Add(30*time.Second).Unix(), 10))(r)
	})
}

// §4.17: a bucket of 3 that refills 20 times a second tells a reset of a whole second. Once that is
// refuted, the calls that wait for it are sent evenly, and not all at once.
func TestRefutedQuota_releasesEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []time.Time
		tokens, filled := 3.0, time.Now()
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			now := time.Now()
			sent = append(sent, now)
			tokens, filled = min(tokens+20*now.Sub(filled).Seconds(), 3), now
			code := 503
			if tokens >= 1 {
				tokens, code = tokens-1, 200
			}
			left := strconv.Itoa(int(tokens))
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			return response(r, code, "", "RateLimit-Limit", "3", "RateLimit-Remaining", left, "RateLimit-Reset", "1"), nil
		})}
		var calls sync.WaitGroup
		for i := range 70 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 13 * time.Millisecond)
				_ = discard(tr, get(t))
			})
		}
		calls.Wait()
		for i := range sent[:len(sent)-10] {
			require.Greater(t, sent[i+10].Sub(sent[i]), 20*time.Millisecond, "ten requests at once, %v after the start", sent[i].Sub(sent[0]))
		}
	})
}

// Rejections that ask for no wait may be those of one customer or path: they delay no new call of another.
func TestHealthyServer_beside429s(t *testing.T) {
	for _, row := range []struct {
		name            string
		healthy, others float64 // new calls a second
		path            string  // of the others
	}{
		{"one of twenty is served, another path: nearly at once", 1, 19, "/other"},
		{"one of ten, the same path: nearly at once", 2, 18, "/"},
		{"one of five, slowly: nearly at once", 1, 4, "/"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			random, begun := rand.New(rand.NewPCG(1, 2)), time.Now()
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Customer") == "rejected" {
					return after(20*time.Millisecond, status(429))(r)
				}
				return after(50*time.Millisecond, status(200))(r)
			})}
			var calls, served atomic.Int64
			var wg sync.WaitGroup
			for time.Since(begun) < time.Minute {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / (row.healthy + row.others)))
				healthy := random.Float64()*(row.healthy+row.others) < row.healthy
				wg.Go(func() {
					req, start := get(t).WithContext(withDeadline(t, 10*time.Second)), time.Now()
					if !healthy {
						req.URL.Path = row.path
						req.Header.Set("Customer", "rejected")
					}
					resp, err := tr.RoundTrip(req)
					if !healthy {
						return
					}
					if calls.Add(1); err == nil && resp.StatusCode == http.StatusOK && time.Since(start) < 100*time.Millisecond {
						served.Add(1)
					}
				})
			}
			wg.Wait()
			require.GreaterOrEqual(t, float64(served.Load())/float64(calls.Load()), .99)
			nothingLeft(t, tr)
		})
	}
}
