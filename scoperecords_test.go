package resilienthttp_test

import (
	"fmt"
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
)

// visit makes a call to a host.
func visit(tb testing.TB, tr *resilienthttp.Transport, host string) error {
	tb.Helper()
	return discard(tr, newRequest(tb, http.MethodGet, "http://"+host, ""))
}

func scopeNames(tr *resilienthttp.Transport) map[string]bool {
	names := map[string]bool{}
	for _, s := range tr.State().Scopes {
		names[s.Scope] = true
	}
	return names
}

// §4.18
func TestMaxScopes(t *testing.T) {
	ok := roundTripper(status(200))
	for _, row := range []struct {
		name  string
		tr    *resilienthttp.Transport
		hosts int
		want  int
	}{
		{"default: 16,384", &resilienthttp.Transport{Base: ok}, 20_000, 16_384},
		{"one", &resilienthttp.Transport{Base: ok, MaxScopes: 1}, 3000, 1},
		{"fewer than are replaced at once", &resilienthttp.Transport{Base: ok, MaxScopes: 70}, 3000, 70},
		{"more than the default", &resilienthttp.Transport{Base: ok, MaxScopes: 18_000}, 20_000, 18_000},
		{"parts that others may share", &resilienthttp.Transport{
			Base: ok, MaxScopes: 70, Breaker: never(), Budget: &resilienthttp.Budget{}, RateLimit: &resilienthttp.RateLimit{}, Hedge: &resilienthttp.Hedge{},
		}, 3000, 70},
		{"all have a fixed limit", &resilienthttp.Transport{Base: ok, MaxScopes: 70, RateLimit: &resilienthttp.RateLimit{Limit: 100}}, 3000, 70},
		{"all fail", &resilienthttp.Transport{Base: roundTripper(status(500)), MaxScopes: 70, Policy: resilienthttp.Policy{MaxAttempts: -1}}, 3000, 70},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			for i := range row.hosts {
				require.NoError(t, visit(t, row.tr, strconv.Itoa(i)+".test"))
			}
			require.Len(t, row.tr.State().Scopes, row.want)
		})
	}
}

// crawl calls more hosts than the map of scopes holds.
func crawl(tb testing.TB, tr *resilienthttp.Transport) {
	tb.Helper()
	for i := range 2000 {
		require.NoError(tb, visit(tb, tr, "crawl-"+strconv.Itoa(i)+".test"))
	}
}

// A new scope of a full map is remembered if its server fails or shows a quota.
func TestMaxScopes_remembersWhatMatters(t *testing.T) {
	for _, row := range []struct {
		name  string
		first step
		after func(t *testing.T, tr *resilienthttp.Transport)
	}{
		{"a failure: the next ones open the circuit", failing(errReset), func(t *testing.T, tr *resilienthttp.Transport) {
			require.Contains(t, scopeNames(tr), "new.test")
			for range 20 {
				_ = visit(t, tr, "new.test")
			}
			require.ErrorIs(t, discard(tr, single(newRequest(t, http.MethodGet, "http://new.test/", ""))), resilienthttp.ErrBreakerOpen)
		}},
		{"an exhausted quota: the next call waits", status(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"),
			func(t *testing.T, tr *resilienthttp.Transport) {
				begun := time.Now()
				_ = visit(t, tr, "new.test")
				require.GreaterOrEqual(t, time.Since(begun), 30*time.Second)
			}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{MaxScopes: 100, Policy: resilienthttp.Policy{MaxAttempts: -1}}
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "new.test" {
					return row.first(r)
				}
				return status(200)(r)
			})
			crawl(t, tr)
			_ = visit(t, tr, "new.test")
			row.after(t, tr)
			require.LessOrEqual(t, len(tr.State().Scopes), 100)
		})
	}
}

// T5: new hosts replace idle ones, and hosts in use stay. State does not keep scopes from being replaced.
func TestMaxScopes_replacesIdleScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: roundTripper(status(200)), MaxScopes: 100}
		crawl(t, tr)
		time.Sleep(time.Second)
		for i := range 500 {
			require.NoError(t, visit(t, tr, "later-"+strconv.Itoa(i)+".test"))
			require.NoError(t, visit(t, tr, "busy.test"))
		}
		names := scopeNames(tr)
		require.Contains(t, names, "busy.test")
		require.Contains(t, names, "later-499.test")
		for name := range names {
			require.NotContains(t, name, "crawl")
		}
	})
}

// The priorities of a scope have records of their own, and one bucket and one quota.
func TestMaxScopes_countsNoPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(failing(errReset), status(200)), MaxScopes: 1}
		for _, p := range []resilienthttp.Priority{resilienthttp.PriorityBatch, resilienthttp.PriorityDefault, resilienthttp.PriorityCritical} {
			req := get(t)
			readAll(t, roundTrip(t, tr, req.WithContext(resilienthttp.WithPriority(req.Context(), p))))
		}
		scopes := tr.State().Scopes
		require.Len(t, scopes, 3)
		for _, s := range scopes {
			require.Equal(t, 1, s.Responses.Calls, s.Priority)
			require.Equal(t, scopes[0].Budget, s.Budget)
		}
	})
}

// Calls, evictions, failures and States at once, for the race detector.
func TestMaxScopes_stress(t *testing.T) {
	var calls atomic.Int64
	for _, tr := range []*resilienthttp.Transport{
		{MaxScopes: 8},
		{MaxScopes: 8, Breaker: &resilienthttp.Breaker{}, Budget: &resilienthttp.Budget{}, RateLimit: &resilienthttp.RateLimit{}, Hedge: &resilienthttp.Hedge{}},
	} {
		tr.Policy = resilienthttp.Policy{Backoff: atOnce}
		tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			switch calls.Add(1) % 7 {
			case 0:
				return response(r, 500, ""), nil
			case 1:
				return response(r, 200, "", "X-RateLimit-Limit", "1000000", "X-RateLimit-Remaining", "999999", "X-RateLimit-Reset", "60"), nil
			}
			return response(r, 200, ""), nil
		})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 400 {
					req := newRequest(t, http.MethodGet, fmt.Sprintf("http://%d.test", (g*i)%40), "")
					_ = discard(tr, req.WithContext(resilienthttp.WithPriority(req.Context(), resilienthttp.Priority(i%3-1))))
					if i%50 == 0 {
						tr.State()
					}
				}
			})
		}
		wg.Wait()
		nothingLeft(t, tr)
	}
}
