package resilienthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

const priorityField = "X-Request-Priority"

func TestPriorityIsSent(t *testing.T) {
	type p = resilienthttp.Priority
	for _, row := range []struct {
		name     string
		decorate func(context.Context) context.Context
		header   http.Header // the caller's
		want     []string
	}{
		{name: "nothing said"},
		{name: "default", decorate: prioritized(resilienthttp.PriorityDefault)},
		{name: "batch", decorate: prioritized(resilienthttp.PriorityBatch), want: []string{"batch"}},
		{name: "critical", decorate: prioritized(resilienthttp.PriorityCritical), want: []string{"critical"}},
		{name: "an unknown value is default", decorate: prioritized(p(7))},
		{name: "a value below batch is default", decorate: prioritized(p(-128))},
		{name: "the last policy counts", decorate: func(ctx context.Context) context.Context {
			return prioritized(resilienthttp.PriorityDefault)(prioritized(resilienthttp.PriorityCritical)(ctx))
		}},
		{
			name: "the caller's header is not replaced", decorate: prioritized(resilienthttp.PriorityBatch),
			header: http.Header{priorityField: {"critical"}}, want: []string{"critical"},
		},
		{
			name: "nor one that is spelled otherwise", decorate: prioritized(resilienthttp.PriorityBatch),
			header: http.Header{"x-request-PRIORITY": {"critical"}}, want: nil,
		},
		{name: "and goes out without a context's", header: http.Header{priorityField: {"gold"}}, want: []string{"gold"}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(status(http.StatusInternalServerError), status(http.StatusOK))
			ctx := applied(t.Context(), row.decorate)
			req := newCall(ctx, t, http.MethodGet, "")
			if row.header != nil {
				req.Header = row.header
			}
			before := stateOf(req)
			tripped(t, bareTransport(base, 2), req)
			require.Len(t, base.sent, 2)
			for _, sent := range base.sent {
				require.Equal(t, row.want, sent.Header[priorityField], "each attempt")
			}
			before.requireUnchanged(t)
		})
	}
}

func prioritized(p resilienthttp.Priority) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context { return resilienthttp.WithPriority(ctx, p) }
}

// A16: Deadline.Handler puts the client's priority into the context with TrustPriority only.
func TestPriorityIsReceived(t *testing.T) {
	for _, row := range []struct {
		name   string
		header []string
		want   resilienthttp.Priority
	}{
		{"none", nil, resilienthttp.PriorityDefault},
		{"batch", []string{"batch"}, resilienthttp.PriorityBatch},
		{"critical", []string{"Critical "}, resilienthttp.PriorityCritical},
		{"unknown", []string{"highest"}, resilienthttp.PriorityDefault},
		{"the first of two", []string{"batch", "critical"}, resilienthttp.PriorityBatch},
		{"no value at all", []string{}, resilienthttp.PriorityDefault},
	} {
		for _, trusted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, trusted: %v", row.name, trusted), func(t *testing.T) {
				var got resilienthttp.Priority = 99
				handler := resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					got = resilienthttp.PriorityFromContext(r.Context())
				}), TrustPriority: trusted}
				req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
				req.Header[priorityField] = row.header
				handler.ServeHTTP(httptest.NewRecorder(), req)
				want := resilienthttp.PriorityDefault
				if trusted {
					want = row.want
				}
				require.Equal(t, want, got)
			})
		}
	}
}

// The other options of the context are kept, in any order.
func TestPriorityBesideDeadlineAndOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(http.StatusOK))
		handler := resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			tripped(t, bareTransport(base, 3), newCall(r.Context(), t, http.MethodGet, ""))
		}), TrustPriority: true}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		req.Header.Set(priorityField, "batch")
		req.Header.Set(ownerField, "caller")
		req.Header.Set(timeoutField, "1500")
		handler.ServeHTTP(httptest.NewRecorder(), req)
		sent := base.sent[0].Header
		require.Equal(t, "batch", sent.Get(priorityField))
		require.Equal(t, "caller", sent.Get(ownerField))
		require.Equal(t, "1500", sent.Get(timeoutField))
	})
}

var priorities = []resilienthttp.Priority{resilienthttp.PriorityBatch, resilienthttp.PriorityDefault, resilienthttp.PriorityCritical}

// refusingPriority responds to calls of one priority with the status, and to others with 200.
func refusingPriority(p resilienthttp.Priority, status int, header ...string) puppet {
	field := map[resilienthttp.Priority]string{resilienthttp.PriorityBatch: "batch", resilienthttp.PriorityCritical: "critical"}[p]
	return func(req *http.Request) (*http.Response, error) {
		if req.Header.Get(priorityField) == field {
			return response(req, status, "body", header...), nil
		}
		return response(req, http.StatusOK, "body"), nil
	}
}

// of is a call of a priority.
func of(t *testing.T, p resilienthttp.Priority) *http.Request {
	return newCall(resilienthttp.WithPriority(t.Context(), p), t, http.MethodGet, "")
}

// State has an entry for each priority. Shared parts are at the scope itself.
func TestStateOfPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{
			Base: puppetStatus(http.StatusOK, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "30"),
		}
		tripped(t, transport, of(t, resilienthttp.PriorityCritical))
		tripped(t, transport, of(t, resilienthttp.PriorityBatch))
		tripped(t, transport, of(t, resilienthttp.PriorityBatch))
		odd := of(t, resilienthttp.PriorityDefault)
		odd.URL.Host = "api.test-2"
		tripped(t, transport, odd)
		scopes := transport.State().Scopes
		type recorded struct {
			scope                  string
			priority               resilienthttp.Priority
			calls, samples, quotas int
		}
		var got []recorded
		for _, s := range scopes {
			got = append(got, recorded{s.Scope, s.Priority, s.Breaker.Calls, s.Latency.Samples, len(s.Quotas)})
		}
		require.Equal(t, []recorded{
			{"api.test", resilienthttp.PriorityDefault, 0, 0, 1}, {"api.test", resilienthttp.PriorityBatch, 2, 2, 0},
			{"api.test", resilienthttp.PriorityCritical, 1, 1, 0}, {"api.test-2", resilienthttp.PriorityDefault, 1, 1, 1},
		}, got)
	})
	t.Run("an unknown priority is the default", func(t *testing.T) {
		breaker := nervous(time.Hour)
		transport := bareTransport(puppetStatus(http.StatusInternalServerError), -1)
		transport.Breaker = breaker
		tripped(t, transport, of(t, resilienthttp.PriorityDefault))
		require.Equal(t, resilienthttp.StateOpen, breaker.State("api.test", 99))
		require.Equal(t, resilienthttp.StateClosed, breaker.State("api.test", resilienthttp.PriorityBatch))
	})
}

// §4.17: all priorities share quotas: consecutive 429s, or one that shows an exhausted quota,
// block all of them.
func TestRejections_blockAllPriorities(t *testing.T) {
	for _, row := range []struct {
		name   string
		header []string
		runs   int
		closed []resilienthttp.Priority
	}{
		{"a streak", []string{"Retry-After", "20"}, 8, priorities},
		{"one alone", []string{"Retry-After", "20"}, 1, nil},
		{"proof", []string{"Retry-After", "20", "RateLimit-Remaining", "0"}, 1, priorities},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			transport := &resilienthttp.Transport{
				Base: refusingPriority(resilienthttp.PriorityBatch, http.StatusTooManyRequests, row.header...), Policy: resilienthttp.Policy{MaxAttempts: -1},
				RateLimit: &resilienthttp.RateLimit{MaxWait: -1},
			}
			for range row.runs {
				tripped(t, transport, of(t, resilienthttp.PriorityBatch))
				time.Sleep(200 * time.Millisecond)
			}
			var closed []resilienthttp.Priority
			for _, p := range priorities {
				if _, err := transport.RoundTrip(of(t, p)); err != nil {
					require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
					closed = append(closed, p)
				}
			}
			require.Equal(t, row.closed, closed)
			for _, recorded := range transport.State().Scopes {
				until := time.Time{}
				for _, q := range recorded.Quotas {
					until = q.BlockedUntil
				}
				require.Equal(t, recorded.Priority == resilienthttp.PriorityDefault && len(row.closed) == 3, !until.IsZero(), recorded.Priority)
			}
		})
	}
}

// §4.15, §4.17: a 503 by load shedding delays its own call and counts for the circuit of its
// priority only.
func TestShedPriority_delaysItsOwnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{Base: refusingPriority(resilienthttp.PriorityBatch, http.StatusServiceUnavailable, "Retry-After", "1")}
		var calls sync.WaitGroup
		for i := range 300 {
			calls.Go(func() {
				begun := time.Now()
				attempts := tripped(t, transport, of(t, priorities[i%3]))
				if priorities[i%3] != resilienthttp.PriorityBatch {
					assert.Len(t, attempts, 1)
					assert.Zero(t, time.Since(begun), "the call does not wait")
				} else if len(attempts) > 1 {
					assert.GreaterOrEqual(t, attempts[0].RetryWait, time.Second)
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		calls.Wait()
		for _, recorded := range transport.State().Scopes {
			require.Empty(t, recorded.Quotas, "no scope is blocked")
			require.Equal(t, recorded.Priority == resilienthttp.PriorityBatch, recorded.Breaker.State != resilienthttp.StateClosed, recorded.Priority)
		}
	})
}

// Batch calls are retried only while the bucket is more than half full. Other calls use all of
// it.
func TestBatch_usesHalfOfTheBudget(t *testing.T) {
	for _, row := range []struct {
		name  string
		first resilienthttp.Priority
		want  []int // retries: of the first, then of batch, then of default
	}{
		{"batch first", resilienthttp.PriorityBatch, []int{6, 0, 5}},
		{"the others first", resilienthttp.PriorityCritical, []int{11, 0, 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(http.StatusInternalServerError), uncapped)
			transport.Budget = tokens(11)
			var got []int
			for _, p := range []resilienthttp.Priority{row.first, resilienthttp.PriorityBatch, resilienthttp.PriorityDefault} {
				attempts := tripped(t, transport, of(t, p))
				got = append(got, len(attempts)-1)
				require.ErrorIs(t, attempts[len(attempts)-1].StopReason, resilienthttp.ErrBudgetExhausted)
			}
			require.Equal(t, row.want, got)
		})
	}
}

// Batch calls are not hedged when half of the retry tokens are used.
func TestBatch_noHedgeWithLowBudget(t *testing.T) {
	for _, row := range []struct {
		name     string
		priority resilienthttp.Priority
		taken    int // of eleven
		hedged   bool
	}{
		{"batch, less than half", resilienthttp.PriorityBatch, 5, true},
		{"batch, more", resilienthttp.PriorityBatch, 6, false},
		{"default, more", resilienthttp.PriorityDefault, 6, true},
		{"critical, all", resilienthttp.PriorityCritical, 11, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			failing := true
			var sent atomic.Int64
			transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
				if failing {
					return response(req, http.StatusInternalServerError, "body"), nil
				}
				sent.Add(1)
				return after(time.Second, status(http.StatusOK))(req)
			}), 2)
			transport.Budget, transport.Hedge = tokens(11), &resilienthttp.Hedge{Delay: 100 * time.Millisecond, MaxRatio: -1}
			for range row.taken {
				tripped(t, transport, of(t, resilienthttp.PriorityCritical))
			}
			failing = false
			tripped(t, transport, of(t, row.priority))
			require.Equal(t, row.hedged, sent.Load() == 2, "%d sent", sent.Load())
		})
	}
}

// An inner Transport sends the priority of the outer call once, and counts the call for it.
func TestNestedTransportsHaveOnePriority(t *testing.T) {
	base := script(status(http.StatusOK))
	inner := bareTransport(base, 3)
	outer := bareTransport(inner, 3)
	tripped(t, outer, of(t, resilienthttp.PriorityBatch))
	require.Equal(t, []string{"batch"}, base.calls()[0].Header[priorityField])
	for _, transport := range []*resilienthttp.Transport{inner, outer} {
		scopes := transport.State().Scopes
		require.Len(t, scopes, 2)
		require.Equal(t, resilienthttp.PriorityBatch, scopes[1].Priority)
		require.Equal(t, 1, scopes[1].Latency.Samples)
	}
}
