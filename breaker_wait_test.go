package resilienthttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// A server that is away for four seconds fails no call that has time, unless calls are rejected at once.
func TestBreakerWait_outage(t *testing.T) {
	var sent atomic.Int64
	partlyHangs := func(r *http.Request) (*http.Response, error) {
		if sent.Add(1)%5 == 0 {
			return hanging(r)
		}
		return status(503)(r)
	}
	for _, row := range []struct {
		name    string
		fault   step
		maxWait time.Duration
		nested  bool // two Transports, one above the other
		polls   int  // requests that have been in flight for long keep no circuit closed (law L2)
		most    int64
		least   int64
	}{
		{"503", status(503), 0, false, 0, 0, 0},
		{"503, Retry-After: 2", status(503, "Retry-After", "2"), 0, false, 0, 0, 0},
		{"connection refused", refused, 0, false, 0, 0, 0},
		{"429 that asks for no wait", status(429), 0, false, 0, 6, 0}, // 30 without a hold
		{"503, rejected at once", status(503), -1, false, 0, 40, 16},
		{"503, each fifth request hangs", partlyHangs, 0, false, 0, 0, 0},
		{"503, beside long polls", status(503), 0, false, 50, 0, 0},
		{"nested, 503", status(503), 0, true, 0, 0, 0},
		{"nested, connection refused", refused, 0, true, 0, 0, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			begun := time.Now()
			tr := &resilienthttp.Transport{Breaker: &resilienthttp.Breaker{MaxWait: row.maxWait}}
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/poll" {
					return hanging(r)
				}
				time.Sleep(10 * time.Millisecond)
				if at := time.Since(begun); at >= 10*time.Second && at < 14*time.Second {
					return row.fault(r)
				}
				return status(200)(r)
			})
			var polls sync.WaitGroup
			for range row.polls {
				polls.Go(func() { succeeds(t, tr, "/poll", time.Minute) })
			}
			if row.nested {
				tr = &resilienthttp.Transport{Base: tr}
			}
			lost := lostCalls(t, tr, 10*time.Second, 25*time.Second, time.Second/8, 0, math.MaxInt64)
			polls.Wait()
			require.GreaterOrEqual(t, lost, row.least)
			require.LessOrEqual(t, lost, row.most)
			nothingLeft(t, tr)
		})
	}
}

// L2: a server that is back for half a second and away again gets its waiting calls as slowly as one that stays. Otherwise
// all that have waited since the first failure would be sent within the length of the second one.
func TestBreakerWait_flaps(t *testing.T) {
	for name, flaps := range map[string]int{"back": 0, "back at the second time": 1, "at the fourth": 3} {
		bubble.Run(t, name, func(t *testing.T) {
			const begins, away, flap = 5 * time.Second, 9 * time.Second, time.Second / 2
			begun, back := time.Now(), begins+away+time.Duration(flaps)*2*flap
			var mu sync.Mutex
			sent := map[time.Duration]int{} // in each half second
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				at := time.Since(begun)
				mu.Lock()
				sent[at/flap]++
				mu.Unlock()
				if since := at - begins - away; at > begins && at < back && (since < 0 || since/flap%2 == 1) {
					return status(503, "Retry-After", "1")(r)
				}
				return after(40*time.Millisecond, status(200))(r)
			})}
			var calls sync.WaitGroup
			for time.Since(begun) < back+4*time.Second {
				time.Sleep(5 * time.Millisecond)
				calls.Go(func() { _ = discard(tr, get(t).WithContext(withDeadline(t, 30*time.Second))) })
			}
			calls.Wait()
			require.LessOrEqual(t, slices.Max(slices.Collect(maps.Values(sent))), 300, "usual are 100")
		})
	}
}

// fragile is a Breaker that opens at the first failure for a cooldown. Calls wait for it.
func fragile(cooldown time.Duration) *resilienthttp.Breaker {
	return &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Probes: 1, Cooldown: cooldown, MaxCooldown: cooldown}
}

// A call that was not sent waits as long as it may. Then it is sent once, unless MaxWait says when it is to fail or the server has too
// much work; its error says how long it has waited. Without the right to wait it ends at once.
func TestBreakerWait_howLong(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, row := range []struct {
		name     string
		breaker  *resilienthttp.Breaker
		fault    step
		deadline time.Duration
		age      time.Duration // of the outage
		want     time.Duration
		sent     bool
	}{
		{"no deadline: 10 s", &resilienthttp.Breaker{}, status(503), 0, 0, 10 * s, true},
		{"a far deadline: 30 s", &resilienthttp.Breaker{}, status(503), time.Minute, 0, 30 * s, true},
		{"a deadline: it ends just before", &resilienthttp.Breaker{}, status(503), 5 * s, 0, 5*s - ms, true},
		{"MaxWait: as long", &resilienthttp.Breaker{MaxWait: 4 * s}, status(503), 0, 0, 4 * s, false},
		{"MaxWait and a near deadline: the deadline counts", &resilienthttp.Breaker{MaxWait: 4 * s}, status(503), 3 * s, 0, 3*s - ms, false},
		{"MaxWait and a far deadline: as long", &resilienthttp.Breaker{MaxWait: 40 * s}, status(503), time.Minute, 0, 40 * s, false},
		{"negative MaxWait: not at all", &resilienthttp.Breaker{MaxWait: -1}, status(503), time.Minute, 0, 0, false},
		{"static: not at all", &resilienthttp.Breaker{Static: true}, status(503), time.Minute, 0, 0, false},
		{"static with MaxWait: as long", &resilienthttp.Breaker{Static: true, MaxWait: 4 * s}, status(503), 0, 0, 4 * s, false},
		{"slow failures: 3 s", &resilienthttp.Breaker{}, hanging, time.Minute, 0, 3 * s, false},
		{"slow failures, MaxWait: as long", &resilienthttp.Breaker{MaxWait: 4 * s}, hanging, time.Minute, 0, 4 * s, false},
		{"it has failed for 19 s: as without", &resilienthttp.Breaker{}, status(503), time.Minute, 19 * s, 30 * s, true},
		{"idle since it failed 21 s ago: it may be back", &resilienthttp.Breaker{}, status(503), time.Minute, 21 * s, 30 * s, true},
		{"idle since it failed 21 s ago, MaxWait", &resilienthttp.Breaker{MaxWait: 4 * s}, status(503), time.Minute, 21 * s, 4 * s, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			b := row.breaker
			b.FailureRatio, b.MinRequests, b.Cooldown, b.MaxCooldown = 0.01, 1, time.Hour, time.Hour
			base := script(row.fault)
			tr := &resilienthttp.Transport{Base: base, Breaker: b, Policy: resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: s}}
			tripped(t, tr, get(t))
			time.Sleep(row.age)
			begun, ctx := time.Now(), t.Context()
			ctx = until(t, ctx, row.deadline)
			resp, err := tr.RoundTrip(get(t).WithContext(ctx))
			require.Equal(t, row.want, time.Since(begun))
			require.NoError(t, ctx.Err(), "before the deadline")
			if row.sent {
				require.NoError(t, err)
				require.Equal(t, "status 503", readAll(t, resp))
				require.Equal(t, row.want, lastOf(t, resp).QueueWait)
				require.Len(t, base.calls(), 2)
				return
			}
			require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, asError(t, err).NotBefore.After(time.Now()))
			switch {
			case row.want == 0:
				require.NotContains(t, err.Error(), "waited")
			case row.want%s == 0:
				require.ErrorContains(t, err, "the server has failed for "+(row.age+row.want).String()+", waited "+row.want.String())
			}
			require.Len(t, base.calls(), 1)
		})
	}
}

// After timeouts a circuit closes, and slow start rejects calls. Their errors do not say that the server fails.
func TestBreaker_slowStartSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := atomic.Bool{}
		tr := &resilienthttp.Transport{
			Breaker: nervous(time.Second), Policy: resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: time.Second},
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if hangs.Load() {
					return hanging(r)
				}
				return after(10*time.Millisecond, status(200))(r)
			}),
		}
		once(t, tr, "/")
		hangs.Store(true)
		once(t, tr, "/")
		hangs.Store(false)
		time.Sleep(2 * time.Second)
		once(t, tr, "/")
		require.Equal(t, resilienthttp.StateClosed, tr.State().Scopes[0].Breaker.State)
		var calls sync.WaitGroup
		rejected := atomic.Int64{}
		for range 20 {
			calls.Go(func() {
				resp, err := tr.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
				if err == nil {
					_ = resp.Body.Close()
					return
				}
				assert.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
				assert.ErrorContains(t, err, "the server is back, and gets few requests at first")
				assert.NotContains(t, err.Error(), "has failed")
				rejected.Add(1)
			})
		}
		calls.Wait()
		require.Positive(t, rejected.Load())
	})
}

// §4.16: the circuit paces the retries that wait for it, so they take no tokens: not after a timeout, either.
func TestBreakerWait_takesNoTokens(t *testing.T) {
	for name, failed := range map[string]step{"503": status(503), "503, Retry-After: 2": status(503, "Retry-After", "2"), "refused": refused, "timeout": hanging} {
		bubble.Run(t, name, func(t *testing.T) {
			tr := &resilienthttp.Transport{
				Budget: &resilienthttp.Budget{Burst: -1}, Breaker: fragile(time.Second), Base: script(failed, status(200)),
				Policy: resilienthttp.Policy{AttemptTimeout: time.Second},
			}
			require.Len(t, tripped(t, tr, get(t)), 2)
		})
	}
}

// If the circuit holds the retry of a call, the call returns the server's last response, with its body unread.
func TestBreakerWait_lastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(503))
		tr := &resilienthttp.Transport{Base: base, Breaker: &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Cooldown: time.Hour}}
		resp := roundTrip(t, tr, get(t))
		require.Equal(t, "status 503", readAll(t, resp))
		require.Equal(t, resilienthttp.ErrBreakerOpen, lastOf(t, resp).StopReason)
		base.requireBalance(t)
	})
}

// failsAt responds to the query fails with the fault, so on the route of all others. Elsewhere the step responds.
func failsAt(fault, elsewhere step) *scriptedBase {
	return script(func(r *http.Request) (*http.Response, error) {
		if r.URL.RawQuery == "fails" {
			return fault(r)
		}
		return elsewhere(r)
	})
}

// once makes a call that makes no retry and does not wait.
func once(tb testing.TB, tr http.RoundTripper, path string, options ...func(context.Context) context.Context) {
	req := newRequest(tb, http.MethodGet, "http://api.test"+path, "")
	req = req.WithContext(resilienthttp.WithSingleAttempt(tb.Context()))
	for _, option := range options {
		req = req.WithContext(option(req.Context()))
	}
	_ = discard(tr, req)
}

// held returns the number of calls that wait for a circuit.
func held(tr *resilienthttp.Transport) (n int) {
	for _, s := range tr.State().Scopes {
		n += s.Breaker.Waiting
	}
	return n
}

// caller makes a call with a Transport.
type caller func(testing.TB, *resilienthttp.Transport) error

// direct is a caller without a layer above. The header fields are those of an SDK.
func direct(ctx func(context.Context) context.Context, header ...string) caller {
	return func(tb testing.TB, tr *resilienthttp.Transport) error {
		req := get(tb)
		if ctx != nil {
			req = req.WithContext(ctx(tb.Context()))
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		_, err := tr.RoundTrip(req)
		return err
	}
}

// below is a caller with a Transport that is the Base of another one.
func below(tb testing.TB, tr *resilienthttp.Transport) error {
	_, err := (&resilienthttp.Transport{Base: tr, Policy: resilienthttp.Policy{MaxAttempts: -1}}).RoundTrip(get(tb))
	return err
}

// within is a caller in a server that has received the request of a client.
func within(client *resilienthttp.Transport) caller {
	return func(tb testing.TB, tr *resilienthttp.Transport) (err error) {
		server := resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err = tr.RoundTrip(get(tb).WithContext(r.Context()))
		})}
		client.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			server.ServeHTTP(httptest.NewRecorder(), r.Clone(context.Background())) // another process
			return response(r, 200, ""), nil
		})
		tripped(tb, client, get(tb))
		return err
	}
}

// Only the layer that owns the retries waits. The others reject the call at once, and say when to come back.
func TestBreakerWait_layers(t *testing.T) {
	sdk := []string{"Amz-Sdk-Request", "attempt=1; max=3"}
	for _, row := range []struct {
		name string
		owns bool
		call caller
		want time.Duration
	}{
		{"no layer above: waits", false, direct(nil), 10 * time.Second},
		{"WithSingleAttempt: at once", false, direct(resilienthttp.WithSingleAttempt), 0},
		{"WithSingleAttempt, OwnsRetries: at once", true, direct(resilienthttp.WithSingleAttempt), 0},
		{"below another Transport: at once", false, below, 0},
		{"below another Transport, OwnsRetries: at once", true, below, 0},
		{"the server's client owns the retries: at once", false, within(&resilienthttp.Transport{OwnsRetries: true}), 0},
		{"the server's client does not own them: waits", false, within(&resilienthttp.Transport{}), 10 * time.Second},
		{"below an SDK that retries: at once", false, direct(nil, sdk...), 0},
		{"below an SDK, OwnsRetries: waits", true, direct(nil, sdk...), 10 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(status(503))
			b := fragile(time.Hour)
			b.MaxWait = 10 * time.Second
			tr := &resilienthttp.Transport{Base: base, Breaker: b, OwnsRetries: row.owns}
			tripped(t, tr, get(t).WithContext(resilienthttp.WithSingleAttempt(t.Context())))
			begun := time.Now()
			err := row.call(t, tr)
			require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
			require.Equal(t, row.want, time.Since(begun))
			require.True(t, asError(t, err).NotBefore.After(time.Now()))
			require.Len(t, base.calls(), 1)
		})
	}
	// A copy of an attempt in flight does not wait either, and the attempt goes on.
	const s = time.Second
	for _, row := range []struct {
		name  string
		hedge *resilienthttp.Hedge
		opens time.Duration
		want  int // attempts
	}{
		{"a hedge and a second attempt, closed: they are sent", &resilienthttp.Hedge{Delay: s, MaxRatio: -1}, 41 * s, 3},
		{"a hedge, open: at once", &resilienthttp.Hedge{Delay: s, MaxRatio: -1}, s / 2, 1},
		{"a second attempt, closed: it is sent", nil, 41 * s, 2},
		{"a second attempt, open: at once", nil, 29 * s, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			b := fragile(35 * s)
			b.MaxWait = time.Minute
			tr := &resilienthttp.Transport{Breaker: b, Hedge: row.hedge, Base: failsAt(status(503), after(40*s, status(200)))}
			opens := time.AfterFunc(row.opens, func() { once(t, tr, "/things?fails") })
			defer opens.Stop()
			for at := range 39 {
				time.AfterFunc(time.Duration(at)*s+s/4, func() { assert.Zero(t, held(tr)) })
			}
			begun := time.Now()
			resp := roundTrip(t, tr, get(t))
			require.Equal(t, 40*s, time.Since(begun), "the first attempt goes on")
			require.Equal(t, "status 200", readAll(t, resp))
			require.Len(t, resilienthttp.Attempts(resp), row.want)
		})
	}
}

// Each priority has its own circuit: calls of the others do not wait, and do not end the wait.
func TestBreakerWait_priorities(t *testing.T) {
	for _, p := range priorities {
		bubble.Run(t, p.String()+" waits: the others do not", func(t *testing.T) {
			tr := &resilienthttp.Transport{Breaker: fragile(4 * time.Second), Base: failsAt(status(503), status(200))}
			var changes []resilienthttp.BreakerChange
			tr.Breaker.OnChange = func(c resilienthttp.BreakerChange) { changes = append(changes, c) }
			once(t, tr, "/things?fails", prioritized(p))
			var calls sync.WaitGroup
			defer calls.Wait()
			begun := time.Now()
			calls.Go(func() {
				resp, err := tr.RoundTrip(get(t).WithContext(prioritized(p)(t.Context())))
				if assert.NoError(t, err) {
					assert.Equal(t, "status 200", readAll(t, resp))
					assert.True(t, lastOf(t, resp).Held)
					assert.GreaterOrEqual(t, time.Since(begun), 4*time.Second)
					assert.LessOrEqual(t, time.Since(begun), 5*time.Second)
				}
			})
			synctest.Wait()
			for _, other := range priorities {
				if other == p {
					continue
				}
				resp := roundTrip(t, tr, get(t).WithContext(prioritized(other)(t.Context())))
				require.Equal(t, "status 200", readAll(t, resp))
				require.False(t, lastOf(t, resp).Held)
			}
			synctest.Wait()
			require.Zero(t, time.Since(begun))
			require.Len(t, tr.State().Scopes, 3)
			for _, s := range tr.State().Scopes {
				require.Equal(t, "api.test", s.Scope)
				require.Equal(t, s.Priority == p, s.Breaker.Waiting == 1, s.Priority)
				require.Equal(t, s.Priority == p, s.Breaker.State == resilienthttp.StateOpen, s.Priority)
				require.Equal(t, s.Breaker.State, tr.Breaker.State(s.Scope, s.Priority))
			}
			calls.Wait()
			require.Len(t, changes, 3, "open, half-open, closed")
			for _, change := range changes {
				require.Equal(t, "api.test", change.Scope)
				require.Equal(t, p, change.Priority)
			}
		})
	}
}

// A call that waits for the circuit holds nothing of a quota. So calls of other priorities, which share the quotas, are
// sent at once. After the wait it waits for the quota, as any call does.
func TestBreakerWait_quota(t *testing.T) {
	for _, row := range []struct {
		name    string
		limit   *resilienthttp.RateLimit
		header  []string
		between time.Duration // of two released calls
	}{
		{"MaxInFlight", &resilienthttp.RateLimit{MaxInFlight: 1}, nil, time.Second},
		{"Limit", &resilienthttp.RateLimit{Limit: 0.5, Burst: 1}, nil, 2 * time.Second},
		{"quota of the server", &resilienthttp.RateLimit{}, []string{"X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2"}, 2 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			b := fragile(10 * time.Second)
			b.MaxWait = time.Minute
			base := failsAt(status(503), after(time.Second, status(200, row.header...)))
			tr := &resilienthttp.Transport{Breaker: b, RateLimit: row.limit, Base: base}
			batch := prioritized(resilienthttp.PriorityBatch)
			once(t, tr, "/")
			time.Sleep(3 * time.Second)
			once(t, tr, "/things?fails", batch)
			time.Sleep(3 * time.Second) // the quotas are full again
			var calls sync.WaitGroup
			defer calls.Wait()
			for range 3 {
				calls.Go(func() {
					resp, err := tr.RoundTrip(get(t).WithContext(batch(t.Context())))
					if assert.NoError(t, err) {
						assert.True(t, lastOf(t, resp).Held)
						assert.NoError(t, resp.Body.Close())
					}
				})
			}
			synctest.Wait()
			require.Equal(t, 3, held(tr))
			begun := time.Now()
			once(t, tr, "/")
			require.Equal(t, time.Second, time.Since(begun), "it did not wait")
			calls.Wait()
			sent := base.calls()
			require.Len(t, sent, 6)
			for i := 4; i < 6; i++ {
				require.GreaterOrEqual(t, sent[i].At.Sub(sent[i-1].At), row.between)
			}
		})
	}
}

// If the circuit opens while a call waits for a slot, the call returns the slot and waits for the circuit.
func TestBreakerWait_quotaReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{Breaker: fragile(5 * time.Second), RateLimit: &resilienthttp.RateLimit{MaxInFlight: 1}}
		tr.Base = failsAt(after(time.Second, status(503)), status(200))
		begun := time.Now()
		var calls sync.WaitGroup
		defer calls.Wait()
		calls.Go(func() { once(t, tr, "/things?fails") })
		synctest.Wait()
		calls.Go(func() {
			resp, err := tr.RoundTrip(get(t))
			if assert.NoError(t, err) {
				assert.NoError(t, resp.Body.Close())
				assert.True(t, lastOf(t, resp).Held)
				assert.GreaterOrEqual(t, time.Since(begun), 6*time.Second)
			}
		})
		synctest.Wait()
		require.Equal(t, 1, tr.State().Scopes[0].Queued)
		require.Zero(t, held(tr), "it waits for the slot")
		time.Sleep(time.Second + 1)
		require.Equal(t, 1, held(tr))
		require.EqualValues(t, 1, slots(t, tr).Remaining)
		once(t, tr, "/", prioritized(resilienthttp.PriorityCritical))
		require.Equal(t, time.Second+1, time.Since(begun))
		calls.Wait()
	})
}

// A held call that ends early leaves the queue, and the next one is the probe: the caller cancels, or a hook panics or
// exits the goroutine while the call waits or becomes the probe.
func TestBreakerWait_ends(t *testing.T) {
	panics, exits := func() { panic("hook") }, runtime.Goexit
	type options = func(context.Context) context.Context
	onQueue := func(do func()) options {
		return func(ctx context.Context) context.Context {
			return resilienthttp.WithTrace(ctx, &resilienthttp.Trace{QueueWait: func(*resilienthttp.Attempt) { do() }})
		}
	}
	onProbe := func(do func()) options {
		return func(ctx context.Context) context.Context {
			return resilienthttp.WithTrace(ctx, &resilienthttp.Trace{BreakerChange: func(resilienthttp.BreakerChange) { do() }})
		}
	}
	cancels := func(ctx context.Context) context.Context { return canceledAfter(ctx, 2*time.Second) }
	const s = time.Second
	for _, row := range []struct {
		name     string
		ctx      options
		onChange func() // of the Breaker, for the first probe
		want     error  // nil: the call does not return
		from, to time.Duration
	}{
		{"canceled", cancels, nil, context.Canceled, 2 * s, 2 * s},
		{"QueueWait panics", onQueue(panics), nil, nil, 0, 0},
		{"QueueWait exits", onQueue(exits), nil, nil, 0, 0},
		{"BreakerChange panics", onProbe(panics), nil, nil, 4 * s, 5 * s},
		{"BreakerChange exits", onProbe(exits), nil, nil, 4 * s, 5 * s},
		{"OnChange panics", nil, panics, nil, 4 * s, 5 * s},
		{"OnChange exits", nil, exits, nil, 4 * s, 5 * s},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			b := fragile(4 * s)
			var probes atomic.Int64
			b.OnChange = func(c resilienthttp.BreakerChange) {
				if c.To == resilienthttp.StateHalfOpen && probes.Add(1) == 1 && row.onChange != nil {
					row.onChange()
				}
			}
			base := failsAt(status(503), status(200))
			tr := &resilienthttp.Transport{Base: base, Breaker: b}
			once(t, tr, "/things?fails")
			begun := time.Now()
			var calls sync.WaitGroup
			defer calls.Wait()
			req := newRequest(t, http.MethodGet, "http://api.test/things", "")
			body := trackBody(req, "text")
			req = req.WithContext(applied(t.Context(), row.ctx))
			calls.Go(func() {
				resp, err := tr.RoundTrip(get(t))
				if assert.NoError(t, err) {
					assert.NoError(t, resp.Body.Close())
					assert.GreaterOrEqual(t, time.Since(begun), 4*s)
					assert.LessOrEqual(t, time.Since(begun), 5*s)
				}
			})
			synctest.Wait()
			calls.Go(func() {
				defer func() {
					_ = recover()
					assert.GreaterOrEqual(t, time.Since(begun), row.from)
					assert.LessOrEqual(t, time.Since(begun), row.to)
				}()
				_, err := tr.RoundTrip(req)
				assert.Error(t, err)
				assert.ErrorIs(t, err, row.want)
			})
			synctest.Wait()
			time.Sleep(2*s + 1)
			want := 1
			if row.from > 2*s {
				want = 2
			}
			require.Equal(t, want, held(tr))
			require.Equal(t, want, tr.State().Scopes[0].Queued)
			calls.Wait()
			nothingLeft(t, tr)
			require.Len(t, base.calls(), 2, "the first call was not sent")
			body.requireClosedOnce(t, 1)
		})
	}
}

// A held call is sent as often as another one: an unsafe request without a key once, if the server may have done the work.
func TestBreakerWait_sent(t *testing.T) {
	for _, row := range []struct {
		name   string
		method string
		probe  step
		want   int
		err    string
	}{
		{"POST, 200: once", http.MethodPost, status(200), 1, ""},
		{"POST, 503: once", http.MethodPost, status(503), 1, ""},
		{"POST, reset: once", http.MethodPost, failing(errReset), 1, errReset.Error()},
		{"POST, refused: it is held again", http.MethodPost, refused, 2, ""},
		{"GET, reset: it is held again", http.MethodGet, failing(errReset), 2, ""},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			b := fragile(2 * time.Second)
			base := script(status(503), row.probe, status(200))
			tr := withoutKeys(&resilienthttp.Transport{Base: base, Breaker: b, Policy: every(time.Millisecond)})
			_ = discard(tr, newRequest(t, row.method, "http://api.test/", "").WithContext(resilienthttp.WithSingleAttempt(t.Context())))
			time.AfterFunc(time.Second, tr.CloseIdleConnections) // it does not end the wait
			req := newRequest(t, row.method, "http://api.test/", "")
			body := trackBody(req, "text")
			resp, err := tr.RoundTrip(req)
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
			} else {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			sent := base.calls()
			require.Len(t, sent, 1+row.want)
			require.EqualValues(t, 1, base.idleClosed.Load())
			for i := range sent[1:] {
				require.GreaterOrEqual(t, sent[i+1].At.Sub(sent[i].At), 2*time.Second)
				require.Equal(t, "text", sent[i+1].Text)
			}
			body.requireClosedOnce(t, row.want)
			require.Zero(t, held(tr))
		})
	}
}

// L2: the calls of a tenant fail after a second each, always, and those of others work. The server restarts, and all fail for seconds. A
// call of the tenant would not show that the server is back, so calls of others test that. In the 20 s about the restart at least as many
// of theirs succeed as with a bare client. With the tenant's calls as probes, .31 to .57 of them do.
func TestBreakerWait_besideATenantThatFails(t *testing.T) {
	for _, row := range []struct {
		paths int // of the tenant
		away  time.Duration
	}{
		{1, 3 * time.Second}, {5, 3 * time.Second}, {20, 6 * time.Second}, {60, 3 * time.Second},
	} {
		run := func(t *testing.T, client func(http.RoundTripper) http.RoundTripper) float64 {
			t.Helper()
			var calls, good atomic.Int64 // of the others
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				tr := client(roundTripper(func(r *http.Request) (*http.Response, error) {
					switch at := time.Since(begin); {
					case at > 30*time.Second && at < 30*time.Second+row.away:
						return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
					case r.URL.Path != "/orders":
						time.Sleep(time.Second)
						return response(r, http.StatusBadGateway, ""), nil
					}
					time.Sleep(20 * time.Millisecond)
					return response(r, http.StatusOK, ""), nil
				}))
				random := rand.New(rand.NewPCG(82, 1))
				var all sync.WaitGroup
				for time.Since(begin) < 45*time.Second { // ten calls a second of the others, and 15 of the tenant
					time.Sleep(time.Duration(random.ExpFloat64() / 25 * float64(time.Second)))
					path, counts := "/orders", time.Since(begin) > 25*time.Second
					if random.IntN(5) < 3 {
						path, counts = pathOf(random.IntN(row.paths)), false
					}
					all.Go(func() {
						ok := succeeds(t, tr, path, 10*time.Second)
						if counts {
							calls.Add(1)
						}
						if counts && ok {
							good.Add(1)
						}
					})
				}
				all.Wait()
			})
			return float64(good.Load()) / float64(calls.Load())
		}
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			bare := run(t, func(base http.RoundTripper) http.RoundTripper { return base })
			const runs = 4 // one of 40 after six seconds is at .94, because waits are random
			ours := 0.
			for range runs {
				ours += run(t, func(base http.RoundTripper) http.RoundTripper { return &resilienthttp.Transport{Base: base} }) / runs
			}
			t.Logf("%.3f of the calls of the others, bare %.3f", ours, bare)
			require.GreaterOrEqual(t, ours, max(bare, .95))
		})
	}
}

// L2: while the circuit is open, a call of a route that has not failed is sent at once, as a test of its route. A request that must not be
// repeated is no test, because its result may be lost at a server that is away.
func TestBreakerWait_whoTestsARoute(t *testing.T) {
	for _, row := range []struct {
		name, method string
		keys         bool
		atOnce       bool
	}{
		{"GET", http.MethodGet, false, true},
		{"PUT", http.MethodPut, false, true},
		{"POST with a key", http.MethodPost, true, true},
		{"POST without a key", http.MethodPost, false, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			const cooldown = 2 * time.Second
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/failing" {
					return response(r, http.StatusInternalServerError, ""), nil
				}
				return response(r, http.StatusOK, ""), nil
			})
			tr := &resilienthttp.Transport{Base: base, Breaker: fragile(cooldown)}
			if !row.keys {
				withoutKeys(tr)
			}
			_ = discard(tr, newRequest(t, http.MethodGet, "http://api.test/failing", "").WithContext(resilienthttp.WithSingleAttempt(t.Context())))
			begun := time.Now()
			require.NoError(t, discard(tr, newCall(withDeadline(t, 10*time.Second), t, row.method, "x")))
			if took := time.Since(begun); row.atOnce {
				require.Zero(t, took)
			} else {
				require.GreaterOrEqual(t, took, cooldown)
			}
		})
	}
}

// State, hooks, the transcript and the error name the wait for the circuit.
func TestBreakerWait_reports(t *testing.T) {
	for _, row := range []struct {
		name    string
		maxWait time.Duration
		title   string // of the transcript
		rows    []string
		err     string
	}{
		{"sent", time.Minute, "GET to api.test: 200, 1 attempt", []string{"queue wait for the circuit", "attempt 1 200, success"}, ""},
		{"not sent", 2 * time.Second, "GET to api.test: circuit breaker is open: the server has failed for 2s, waited 2s, nothing sent", []string{
			"queue wait for the circuit", "rejected circuit breaker is open: the server has failed for 2s, waited 2s, next call in",
		}, "resilienthttp: circuit breaker is open: the server has failed for 2s, waited 2s; not before 2000-01-01T00:00:0"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			b := fragile(4 * time.Second)
			b.MaxWait = row.maxWait
			var queued []resilienthttp.Attempt
			tr := &resilienthttp.Transport{Breaker: b, Base: failsAt(status(503), status(200)), Trace: &resilienthttp.Trace{
				QueueWait: func(a *resilienthttp.Attempt) { queued = append(queued, *a) },
			}}
			once(t, tr, "/things?fails")
			begun := time.Now()
			time.AfterFunc(time.Second, func() {
				s := tr.State().Scopes[0]
				assert.Equal(t, 1, s.Breaker.Waiting)
				assert.Equal(t, 1, s.Queued)
				assert.Equal(t, resilienthttp.StateOpen, s.Breaker.State)
				assert.Equal(t, begun, s.Breaker.FailingSince)
			})
			resp, err := tr.RoundTrip(get(t))
			text := resilienthttp.Explain(resp, err)
			require.True(t, strings.HasPrefix(text, row.title), text)
			untimed := slices.DeleteFunc(strings.Fields(text), func(word string) bool {
				_, err := time.ParseDuration(word)
				return err == nil
			})
			for _, cells := range row.rows {
				require.Contains(t, strings.Join(untimed, " "), cells)
			}
			require.Len(t, queued, 1)
			require.True(t, queued[0].Held)
			require.False(t, queued[0].FixedLimit)
			s := tr.State().Scopes[0].Breaker
			require.Zero(t, s.Waiting)
			if row.err == "" {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				a := lastOf(t, resp)
				require.True(t, a.Held)
				require.GreaterOrEqual(t, a.QueueWait, 4*time.Second)
				require.Equal(t, a.QueueWait, a.Start.Sub(begun))
				require.Zero(t, s.FailingSince, "the circuit is closed")
				return
			}
			require.True(t, strings.HasPrefix(err.Error(), row.err), err.Error())
			require.Equal(t, begun, s.FailingSince)
		})
	}
}

// A thousand calls wait for a server that is away for four seconds, and some are canceled: every call ends, nothing is left,
// and the server is not overrun when it is back.
func TestBreakerWait_crowd(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault step
		calls int
		gone  float64 // ratio of callers that cancel within some seconds
		least float64 // ratio of the others that succeed
	}{
		{"503", status(503), 12_000, 0, 0.99},
		{"refused, callers cancel", refused, 12_000, 0.3, 0.99},
		{"timeout, callers cancel", hanging, 1000, 0.3, 0.8},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			const begins, ends, last = 10 * time.Second, 14 * time.Second, 40 * time.Second
			begun := time.Now()
			var mu sync.Mutex
			sent, perSecond := map[string]int{}, map[time.Duration]int{}
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: time.Second}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				sent[r.URL.Path]++
				perSecond[time.Since(begun)/time.Second]++
				mu.Unlock()
				if at := time.Since(begun); at >= begins && at < ends {
					return row.fault(r)
				}
				return after(10*time.Millisecond, status(200))(r)
			})}
			var calls sync.WaitGroup
			var stayed, succeeded atomic.Int64
			for i := range row.calls {
				time.Sleep(rand.N(2 * last / time.Duration(row.calls)))
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					stays := rand.Float64() >= row.gone
					if stays {
						stayed.Add(1)
					} else {
						time.AfterFunc(rand.N(5*time.Second), cancel)
					}
					req := newRequest(t, http.MethodGet, "http://api.test/"+strconv.Itoa(i), "")
					resp, err := tr.RoundTrip(req.WithContext(ctx))
					if err != nil {
						return
					}
					if stays && resp.StatusCode == http.StatusOK {
						succeeded.Add(1)
					}
					_ = resp.Body.Close()
				})
			}
			calls.Wait()
			attempts := slices.Max(slices.Collect(maps.Values(sent)))
			require.LessOrEqual(t, attempts, tr.State().Policy.MaxAttempts)
			most := slices.Max(slices.Collect(maps.Values(perSecond)))
			require.LessOrEqual(t, float64(most), 3*float64(row.calls)/last.Seconds())
			require.GreaterOrEqual(t, float64(succeeded.Load()), row.least*float64(stayed.Load()))
			nothingLeft(t, tr)
		})
	}
}

// §4.29: when the server has failed for 20 s, a probe that fails is not retried: its call would wait for nothing.
func TestBreakerWait_lateProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(hanging), Policy: resilienthttp.Policy{AttemptTimeout: time.Second}}
		begun := time.Now()
		var calls sync.WaitGroup
		var probes atomic.Int64
		for time.Since(begun) < time.Minute {
			at := time.Now()
			calls.Go(func() {
				_, err := tr.RoundTrip(get(t))
				if took := time.Since(at); at.Sub(begun) > 25*time.Second {
					probes.Add(int64(took / time.Second))
					assert.LessOrEqual(t, took, 1100*time.Millisecond, err) // a call that waits for a Cooldown may be a probe
				}
			})
			time.Sleep(370 * time.Millisecond)
		}
		calls.Wait()
		require.Greater(t, probes.Load(), int64(10))
	})
}

// §4.29: workers with a long list of jobs go through few of them while the server fails, because a rejection takes time too.
func TestBreakerWait_workers(t *testing.T) {
	for _, row := range []struct {
		name        string
		maxWait     time.Duration
		fault       step
		least, most int64 // calls of three workers in ten seconds of the late outage
	}{
		{"hangs", 0, hanging, 30, 300},
		{"fails after 30 ms", 0, after(30*time.Millisecond, status(500)), 12, 60}, // two seconds, or a probe each Cooldown
		{"refused", 0, refused, 12, 120},
		{"hangs, MaxWait is negative: at once", -1, hanging, 15_000, 30_030},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{
				Base: roundTripper(row.fault), Policy: resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1},
				Breaker: &resilienthttp.Breaker{MaxWait: row.maxWait},
			}
			begun := time.Now()
			late := func(from, to time.Duration) bool { return time.Since(begun) >= from && time.Since(begun) < to }
			var calls atomic.Int64
			var workers sync.WaitGroup
			for range 3 {
				workers.Go(func() {
					for !late(40*time.Second, time.Hour) {
						_ = discard(tr, get(t))
						if late(30*time.Second, 40*time.Second) {
							calls.Add(1)
						}
						time.Sleep(time.Millisecond) // of its own work
					}
				})
			}
			workers.Wait()
			require.GreaterOrEqual(t, calls.Load(), row.least)
			require.LessOrEqual(t, calls.Load(), row.most)
		})
	}
}

// T12: an attempt that waits for the circuit and then for the limit says so each time.
func TestBreakerWait_thenLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held []bool
		tr := &resilienthttp.Transport{Breaker: fragile(4 * time.Second), RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}, Base: failsAt(status(503), status(200)), Trace: &resilienthttp.Trace{
			QueueWait: func(a *resilienthttp.Attempt) { held = append(held, a.Held) },
		}}
		once(t, tr, "/things?fails")
		resp := roundTrip(t, tr, get(t))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []bool{true, false}, held)
		require.True(t, lastOf(t, resp).Held)
	})
}

// 1. A held call keeps the connection of its last response. With MaxConnsPerHost the held calls have all connections, and
// new calls, which are preferred as probes, wait for one: the healthy server is not reached until the held calls end.
func TestAttack_heldResponsesPinConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		srv := faulttest.NewInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(150 * time.Millisecond)
			if away.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "away")
			}
		}))
		base := srv.Transport()
		base.MaxConnsPerHost = 8
		tr := &resilienthttp.Transport{Base: base}
		served := func(ctx context.Context) bool {
			resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, srv.URL, "").WithContext(ctx))
			return finish(t, resp, err)
		}
		for range 30 {
			require.True(t, served(t.Context()))
			time.Sleep(10 * time.Millisecond)
		}
		away.Store(true)
		begun := time.Now()
		time.AfterFunc(time.Second, func() { away.Store(false) }) // a restart of one second
		var calls sync.WaitGroup
		var failed, slow atomic.Int64
		for range 6 * 40 {
			calls.Go(func() {
				start := time.Now()
				if !served(withDeadline(t, 10*time.Second)) {
					failed.Add(1)
				} else if start.Sub(begun) > 2*time.Second && time.Since(start) > time.Second {
					slow.Add(1)
				}
			})
			time.Sleep(25 * time.Millisecond)
		}
		calls.Wait()
		t.Logf("failed %d, slow %d of 240", failed.Load(), slow.Load())
		require.LessOrEqual(t, failed.Load(), int64(12))
		require.Zero(t, slow.Load(), "calls that begin a second after the server is back take longer than a second")
	})
}

// 2. The probe is the call that began first: with equal deadlines the one that has no time left.
func TestAttack_probesHaveNoTime(t *testing.T) {
	for _, row := range []struct {
		name     string
		fault    step
		takes    time.Duration // after the outage
		away     time.Duration
		deadline time.Duration
		warm     bool
	}{
		{"503, warm, as usual", status(503), 20 * time.Millisecond, 6 * time.Second, time.Second, true},
		{"503, warm, one and a half of usual", status(503), 30 * time.Millisecond, 6 * time.Second, time.Second, true},
		{"503, cold start", status(503), 20 * time.Millisecond, 6 * time.Second, time.Second, false},
		{"503, warm, 2 s", status(503), 30 * time.Millisecond, 6 * time.Second, 2 * time.Second, true},
		{"hanging, warm", hanging, 30 * time.Millisecond, 6 * time.Second, time.Second, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			begun := time.Now()
			from := time.Duration(0)
			if row.warm {
				from = 10 * time.Second
			}
			back := from + row.away
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				at := time.Since(begun)
				switch {
				case at < from:
					return after(20*time.Millisecond, status(200))(r)
				case at < back:
					return row.fault(r)
				}
				return after(row.takes, status(200))(r)
			})}
			lost := lostCalls(t, tr, row.deadline, back+4*time.Second, time.Second/200, back+2*time.Second, back+3*time.Second)
			require.Less(t, lost, int64(20), "of 200 calls that begin two seconds after the server is back")
		})
	}
}

// 2b. Slow start releases the call that began first: it has no time left, so no response comes in time, and the limit does
// not grow. The server is healthy, and no call succeeds.
func TestAttack_slowStartHasNoTime(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
		for _, takes := range []time.Duration{20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond} {
			bubble.Run(t, fmt.Sprint(away, ", ", takes), func(t *testing.T) {
				begun := time.Now()
				const from = 10 * time.Second
				back := from + away
				tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					switch at := time.Since(begun); {
					case at < from:
						return after(20*time.Millisecond, status(200))(r)
					case at < back:
						return hanging(r)
					}
					return after(takes, status(200))(r)
				})}
				lost := lostCalls(t, tr, time.Second, back+7*time.Second, time.Second/200, back+5*time.Second, back+6*time.Second)
				require.Less(t, lost, int64(20), "of 200 calls that begin five seconds after the server is back")
			})
		}
	}
}

// L2: a client that has had no success before an outage does not know how long responses take. That of the probe that closes the circuit
// is then what is usual, so the healthy server is not limited.
func TestBreakerWait_noSuccessBefore(t *testing.T) {
	const away = 5 * time.Second
	for _, takes := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		bubble.Run(t, fmt.Sprint(takes), func(t *testing.T) {
			begun := time.Now()
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if time.Since(begun) < away {
					return hanging(r)
				}
				return after(takes, status(200))(r)
			})}
			lost := lostCalls(t, tr, 2*time.Second, away+20*time.Second, time.Second/50, away+time.Second, math.MaxInt64)
			require.Less(t, lost, int64(10), "of 950 calls that begin a second after the server is back")
		})
	}
}

// 3. Retries that wait for Retry-After while the circuit is open have no jitter and no token: all are sent at once if the
// circuit has closed in the meantime.
func TestAttack_retryAfterHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		perMS := map[int]int{}
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			at := time.Since(begun)
			mu.Lock()
			perMS[int(at/time.Millisecond)]++
			mu.Unlock()
			if at >= 10*time.Second && at < 10*time.Second+600*time.Millisecond {
				return after(10*time.Millisecond, status(503, "Retry-After", "3"))(r)
			}
			return after(10*time.Millisecond, status(200))(r)
		})}
		var calls sync.WaitGroup
		send := func(n int, every time.Duration) {
			for range n {
				calls.Go(func() { _ = discard(tr, get(t)) })
				time.Sleep(every)
			}
		}
		send(500, 20*time.Millisecond)
		send(12, 25*time.Millisecond)
		send(500, 0) // the circuit opens while a batch is in flight
		send(8, 25*time.Millisecond)
		send(100, 20*time.Millisecond)
		calls.Wait()
		most := 0
		for ms, n := range perMS {
			if ms > 10_800 {
				most = max(most, n)
			}
		}
		require.Less(t, most, 50, "requests in one millisecond")
	})
}

// 4. The drain of the last response is a part of the retry's latency, and of its timeout.
func TestAttack_drainCountsInLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(withBody(503, newBlocking()), status(200))
		tr := &resilienthttp.Transport{Base: base, Breaker: fragile(time.Second), Policy: resilienthttp.Policy{AttemptTimeout: 90 * time.Millisecond}}
		resp := roundTrip(t, tr, get(t))
		require.Zero(t, lastOf(t, resp).Latency)
		require.NoError(t, resp.Body.Close())
		require.Len(t, resilienthttp.Attempts(resp), 2)
	})
}

// 5. A client that begins while its server is away does not know the usual latency: 100 ms are slow, so ten calls a second
// are released, and the healthy server's callers run out of time.
func TestAttack_releaseWithoutBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			if time.Since(begun) < 4*time.Second {
				return refused(r)
			}
			return after(150*time.Millisecond, status(200))(r)
		})}
		lost := lostCalls(t, tr, 10*time.Second, 20*time.Second, 10*time.Millisecond, 0, math.MaxInt64)
		t.Log("lost", lost, "of the 400 calls that began in the outage")
		require.Less(t, lost, int64(20))
	})
}

// 7. A held retry that the rate limit rejects loses the last response, although its body was kept.
func TestAttack_rateLimitAfterHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(503), status(200))
		tr := &resilienthttp.Transport{Base: base, Breaker: fragile(2 * time.Second), RateLimit: &resilienthttp.RateLimit{Limit: 0.01, Burst: 1, MaxWait: -1}}
		require.Equal(t, "status 503", readAll(t, roundTrip(t, tr, get(t))))
		base.requireBalance(t)
	})
}

// 10. A Base sends the request, and then makes a second call, which an open circuit rejects.
func TestAttack_innerSecondCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &resilienthttp.Transport{Base: script(status(503)), Breaker: fragile(time.Hour)}
		once(t, inner, "/")
		var paid int
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			paid++ // the payment is done
			_, err := inner.RoundTrip(newRequest(t, http.MethodPost, "http://api.test/audit", "x").WithContext(r.Context()))
			return nil, err
		})
		tr := withoutKeys(&resilienthttp.Transport{Base: base, Policy: every(time.Millisecond)})
		require.Error(t, discard(tr, newRequest(t, http.MethodPost, "http://api.test/pay", "x")))
		require.Equal(t, 1, paid)
	})
}

// 12. Chaos: at most one POST without a key that may have done the work; all bodies are closed; nothing is left.
func TestAttack_chaos(t *testing.T) {
	for seed := range uint64(40) {
		bubble.Run(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			begun := time.Now()
			var mu sync.Mutex
			work := map[string]int{}
			float := func() float64 { mu.Lock(); defer mu.Unlock(); return rnd.Float64() }
			ends := 10*time.Second + time.Duration(float()*float64(10*time.Second))
			base := script(func(r *http.Request) (*http.Response, error) {
				at := time.Since(begun)
				id := r.Header.Get("X-Id")
				does := func() { mu.Lock(); work[id]++; mu.Unlock() }
				time.Sleep(time.Duration(float() * float64(20*time.Millisecond)))
				if err := r.Context().Err(); err != nil {
					return nil, err
				}
				if at < 5*time.Second || at > ends {
					does()
					return status(200)(r)
				}
				switch x := float(); {
				case x < .2:
					return refused(r)
				case x < .4:
					does()
					return nil, errReset
				case x < .5:
					does()
					return status(500)(r)
				case x < .6:
					return status(503, "Retry-After", "1")(r)
				case x < .7:
					does()
					return hanging(r)
				case x < .75:
					return status(429)(r)
				case x < .8:
					does()
					return withBody(502, newBlocking())(r)
				default:
					return status(503)(r)
				}
			})
			limit := &resilienthttp.RateLimit{}
			if seed%3 == 0 {
				limit = &resilienthttp.RateLimit{Limit: 30, MaxWait: 2 * time.Second, MaxInFlight: 20}
			}
			tr := withoutKeys(&resilienthttp.Transport{Base: base, RateLimit: limit, Policy: resilienthttp.Policy{AttemptTimeout: time.Second}})
			if seed%4 == 1 {
				tr.Hedge = &resilienthttp.Hedge{Delay: 15 * time.Millisecond, MaxRatio: -1}
			}
			if seed%5 == 2 {
				tr.Trace = &resilienthttp.Trace{QueueWait: func(*resilienthttp.Attempt) {
					if float() < .05 {
						panic("hook")
					}
				}}
			}
			if seed%2 == 0 {
				tr.Breaker = fragile(300 * time.Millisecond)
			}
			var calls sync.WaitGroup
			for i := range 1500 {
				calls.Go(func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration((.2+5*float())*float64(time.Second)))
					defer cancel()
					if float() < .3 {
						time.AfterFunc(time.Duration(float()*float64(3*time.Second)), cancel)
					}
					method := http.MethodPost
					if float() < .3 {
						method = http.MethodGet
					}
					req := newRequest(t, method, "http://api.test/", "x").WithContext(ctx)
					id := fmt.Sprint(method, i)
					req.Header.Set("X-Id", id)
					resp, err := tr.RoundTrip(req)
					doubt := resilienthttp.InDoubt(resp, err)
					mu.Lock()
					n := work[id]
					mu.Unlock()
					if method == http.MethodPost {
						assert.LessOrEqual(t, n, 1, id)
						if n > 0 && (err != nil || resp.StatusCode != http.StatusOK) {
							assert.True(t, doubt, "%s: %s", id, resilienthttp.Explain(resp, err))
						}
					}
					var failed *resilienthttp.Error
					if errors.As(err, &failed) && n > 0 {
						assert.False(t, failed.NotSent())
					}
					if err == nil {
						if resp.StatusCode == http.StatusServiceUnavailable {
							text, err := io.ReadAll(resp.Body)
							assert.True(t, err != nil && ctx.Err() != nil || bytes.Equal(text, []byte("status 503")), "%q %v", text, err)
						}
						_ = resp.Body.Close()
					}
				})
				time.Sleep(time.Duration(float() * float64(40*time.Millisecond)))
			}
			calls.Wait()
			time.Sleep(time.Second)
			base.requireBalance(t)
			nothingLeft(t, tr)
		})
	}
}

// §4.15: all responses of one path are slow failures, so most results of its host are, and then the host is away for four
// seconds. When it is back, calls to the other path are served as before: what failed before the outage says nothing about a
// queue, and its retries take tokens again.
func TestBreaker_brokenPath(t *testing.T) {
	const rate, length = 40, 60 * time.Second
	served, calls := 0, 0
	for _, row := range []struct {
		share float64 // of the calls
		slow  time.Duration
		away  error // nil: 503
	}{
		{.4, 150 * time.Millisecond, nil}, {.4, 300 * time.Millisecond, errReset}, {.55, 150 * time.Millisecond, errReset},
		{.55, 300 * time.Millisecond, nil}, {.7, 150 * time.Millisecond, nil}, {.7, 300 * time.Millisecond, errReset},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				at := time.Since(begun)
				switch {
				case 15*time.Second <= at && at < 19*time.Second && row.away != nil:
					return nil, row.away
				case 15*time.Second <= at && at < 19*time.Second:
					return response(r, http.StatusServiceUnavailable, ""), nil
				case r.URL.Path == "/broken":
					time.Sleep(row.slow)
					return response(r, http.StatusGatewayTimeout, ""), nil
				}
				time.Sleep(35 * time.Millisecond)
				return response(r, http.StatusOK, ""), nil
			})}
			draws := rand.New(rand.NewPCG(1, 1))
			var mu sync.Mutex // guards served
			var all sync.WaitGroup
			for time.Since(begun) < length {
				time.Sleep(time.Second / rate)
				path := "/broken"
				if draws.Float64() >= row.share {
					path = "/"
					calls++
				}
				all.Go(func() {
					ok := succeeds(t, tr, path, 10*time.Second)
					if mu.Lock(); ok {
						served++
					}
					mu.Unlock()
				})
			}
			all.Wait()
		})
	}
	t.Logf("served %d of %d calls", served, calls)
	assert.Greater(t, served, calls*17/20)
}

// §4.28: the calls of one customer fail, so often that the circuit is open, and those of another one work. They have the same route, so only
// a request can show that. A bare client would serve them, so the second customer's call is served too, before its time ends.
func TestBreaker_fewGoodCalls(t *testing.T) {
	for _, row := range []struct {
		name   string
		fault  step
		set    time.Duration // MaxWait
		served bool
	}{
		{"errors", status(500), 0, true},
		{"refused", refused, 0, true},
		{"timeouts: the server has too much work", hanging, 0, false},
		{"MaxWait says when a call is to fail", status(500), 2 * time.Second, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			b := fragile(time.Hour)
			b.MaxWait = row.set
			tr := &resilienthttp.Transport{Breaker: b, Base: failsAt(row.fault, status(200)), Policy: resilienthttp.Policy{AttemptTimeout: time.Second}}
			once(t, tr, "/things?fails")
			ctx := until(t, t.Context(), 5*time.Second)
			resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://api.test/things?works", "").WithContext(ctx))
			require.NoError(t, ctx.Err(), "in time")
			if !row.served {
				require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "status 200", readAll(t, resp))
			require.Equal(t, resilienthttp.StateClosed, tr.State().Scopes[0].Breaker.State)
		})
	}
}

// Law L2: a server rejects most requests at once, and answers the others late. Calls are served as if there were no circuit: what
// is in flight may succeed.
func TestBreaker_lateAnswers(t *testing.T) {
	const rate, length = 150, 8 * time.Second
	for _, failing := range []float64{.5, .6, .7} {
		// One draw of .7 is .99 of what it is without a circuit, with a deviation of .03, so three decide.
		draw := func(seed uint64, tr *resilienthttp.Transport) (served int64) {
			synctest.Test(t, func(t *testing.T) {
				fate, begun := rand.New(rand.NewPCG(seed, 1)), time.Now()
				var mu sync.Mutex // guards fate
				tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					fails, late := fate.Float64() < failing, time.Second+time.Duration(fate.Int64N(3e9))
					mu.Unlock()
					if fails {
						return response(r, http.StatusInternalServerError, ""), nil
					}
					if err := sleep.Context(r.Context(), late); err != nil {
						return nil, err
					}
					return response(r, http.StatusOK, ""), nil
				})
				var all sync.WaitGroup
				for time.Since(begun) < length {
					time.Sleep(time.Second / rate)
					all.Go(func() {
						if succeeds(t, tr, "/", 10*time.Second) {
							atomic.AddInt64(&served, 1)
						}
					})
				}
				all.Wait()
			})
			return served
		}
		var without, with int64
		for seed := range uint64(3) {
			without += draw(seed, &resilienthttp.Transport{Breaker: &resilienthttp.Breaker{FailureRatio: -1}})
			with += draw(seed, &resilienthttp.Transport{})
		}
		require.GreaterOrEqual(t, with, without*9/10, "%.1f fail", failing)
	}
}

// L2: a server fails, and its errors take long. They are no timeouts, so they show no queue: calls wait as for a server that fails at
// once, and once it works each is sent.
func TestBreakerWait_slowErrors(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		works, fails time.Duration // latencies
		warm, outage time.Duration
		perSecond    float64
		deadline     time.Duration
		header       []string
	}{
		{20 * ms, 300 * ms, 10 * time.Second, 6 * time.Second, 20, 20 * time.Second, nil},
		{1 * ms, 100 * ms, 10 * time.Second, 7 * time.Second, 100, 10 * time.Second, nil},
		{200 * ms, 3000 * ms, 10 * time.Second, 8 * time.Second, 5, 30 * time.Second, nil},
		{200 * ms, 200 * ms, 0, 3 * time.Second, 20, 10 * time.Second, []string{"Retry-After", "2"}},
		{200 * ms, 200 * ms, 0, 3 * time.Second, 20, 10 * time.Second, nil},
		{800 * ms, 800 * ms, 0, 6 * time.Second, 10, 20 * time.Second, nil},
		{110 * ms, 110 * ms, 0, 4 * time.Second, 60, 15 * time.Second, nil},
	} {
		bubble.Run(t, fmt.Sprintf("%v for %v, %v a second, %v", row.fails, row.outage, row.perSecond, row.header), func(t *testing.T) {
			begun := time.Now()
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				latency, status := row.works, http.StatusOK
				if at := time.Since(begun); at >= row.warm && at < row.warm+row.outage {
					latency, status = row.fails, http.StatusServiceUnavailable
				}
				time.Sleep(latency*9/10 + time.Duration(rand.Int64N(int64(latency/5))))
				return response(r, status, "", row.header...), nil
			})}
			_, failed := timedCalls(t, tr, http.MethodGet, row.perSecond, row.warm+row.outage+2*time.Second, row.deadline)
			require.LessOrEqual(t, failed, 2)
		})
	}
}

// §4.15: a path that always fails opens the circuit of its host. It does not hold the calls of a path that works.
func TestBreakerWait_besideFailingPaths(t *testing.T) {
	for _, row := range []struct {
		name       string
		paths      int // that fail
		works      int // paths that work
		fails      time.Duration
		every, pay time.Duration
		deadline   time.Duration
	}{
		{"one path", 1, 1, time.Second / 20, time.Second / 20, 4 * time.Second, 10 * time.Second},
		{"one path, often", 1, 1, time.Second / 20, time.Second / 70, 4 * time.Second, 10 * time.Second},
		{"four paths", 4, 1, time.Second / 20, time.Second / 40, 4 * time.Second, 10 * time.Second},
		{"rare", 1, 1, time.Second / 20, 5 * time.Second, 17 * time.Second, time.Second},
		{"slowly", 1, 1, time.Second * 4 / 5, time.Second / 5, 4 * time.Second, time.Second},
		{"timeouts", 1, 1, 4 * time.Second, time.Second / 3, 12 * time.Second, 2 * time.Second},
		{"one path, beside 31", 1, 31, time.Second / 5, time.Second / 50, time.Second, 2 * time.Second},
		{"four paths, slowly", 4, 1, time.Second * 4 / 5, time.Second / 20, 4 * time.Second, 5 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second / 20)
				if strings.HasPrefix(r.URL.Path, "/report") {
					time.Sleep(row.fails)
					return response(r, http.StatusInternalServerError, ""), nil
				}
				return response(r, http.StatusOK, ""), nil
			})}
			var calls sync.WaitGroup
			for n := range int(40 * row.pay / row.every) {
				time.Sleep(row.every)
				calls.Go(func() { succeeds(t, tr, fmt.Sprintf("/report%c/%d", 'a'+n%row.paths, n), row.deadline) })
				if n%int(row.pay/row.every) == 0 {
					calls.Go(func() { assert.True(t, succeeds(t, tr, fmt.Sprintf("/pay%c/%d", 'a'+n%row.works, n), row.deadline)) })
				}
			}
			calls.Wait()
		})
	}
}

// §4.15: of a path that fails for minutes beside one that works, callers get the server's responses. By chance the circuit opens, and
// the path that works closes it.
func TestBreakerWait_besideAPathThatFails(t *testing.T) {
	for _, working := range []float64{.2, .3} {
		bubble.Run(t, fmt.Sprint(working), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				time.Sleep(20 * time.Millisecond)
				if r.URL.RawQuery == "fails" {
					return response(r, http.StatusInternalServerError, ""), nil
				}
				return response(r, http.StatusOK, ""), nil
			})}
			var calls sync.WaitGroup
			for range 6000 {
				time.Sleep(time.Second / 20)
				if random.Float64() < working {
					calls.Go(func() { assert.True(t, succeeds(t, tr, "/works", 10*time.Second)) })
					continue
				}
				calls.Go(func() { readAll(t, roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/fails", ""))) })
			}
			calls.Wait()
		})
	}
}

// §4.28: a server stops while it has no calls, and needs some seconds to start. It has worked before, so the few calls that come
// then wait for it, although the tokens for retries are spent.
func TestBreakerWait_startsFromZero(t *testing.T) {
	for _, row := range []struct {
		name    string
		fault   step
		takes   time.Duration
		maxWait time.Duration
		served  int // at least, of forty
		each    int // attempts of a call at most
	}{
		{"502", status(502), 4 * time.Second, 0, 25, 4},
		{"refused", refused, 6 * time.Second, 0, 40, 5},
		{"503, calls do not wait", status(503), 4 * time.Second, -1, 0, 3},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var up, last time.Time
			var mu sync.Mutex // guards them
			attempts := 0
			tr := &resilienthttp.Transport{Breaker: &resilienthttp.Breaker{MaxWait: row.maxWait}}
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				if time.Since(last) > time.Minute {
					up = time.Now().Add(row.takes)
				}
				last = time.Now()
				attempts++
				starts := last.Before(up)
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				if starts {
					return row.fault(r)
				}
				return response(r, http.StatusOK, ""), nil
			})
			var served atomic.Int64
			up, last = time.Now(), time.Now()
			require.True(t, succeeds(t, tr, "/", 20*time.Second))
			for range 8 {
				time.Sleep(2 * time.Minute)
				var calls sync.WaitGroup
				for range 5 {
					time.Sleep(time.Millisecond)
					calls.Go(func() {
						if succeeds(t, tr, "/", 20*time.Second) {
							served.Add(1)
						}
					})
				}
				calls.Wait()
			}
			require.GreaterOrEqual(t, served.Load(), int64(row.served))
			require.LessOrEqual(t, attempts, 40*row.each)
		})
	}
}

// L2: requests time out before they take twice as long as usual. So a server with little room, which returns after two seconds, gets
// few requests at first. Otherwise its queue would be full of requests that have timed out, for ever.
func TestBreakerWait_littleRoom(t *testing.T) {
	const takes, givesUp, begins, away = 300 * time.Millisecond, 550 * time.Millisecond, 20 * time.Second, 2250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex // guards free
		free := make([]time.Time, 14)
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			if at := time.Since(begun); begins <= at && at < begins+away {
				return response(r, http.StatusServiceUnavailable, ""), nil
			}
			mu.Lock()
			slices.SortFunc(free, time.Time.Compare)
			ends := slices.MaxFunc([]time.Time{time.Now(), free[0]}, time.Time.Compare).Add(takes)
			free[0] = ends
			mu.Unlock()
			time.Sleep(min(time.Until(ends), givesUp))
			if time.Now().Before(ends) {
				return nil, context.DeadlineExceeded
			}
			return response(r, http.StatusOK, ""), nil
		})}
		lost := lostCalls(t, tr, 5*time.Second, 100*time.Second, time.Second/38, begins+away, math.MaxInt64)
		require.Less(t, lost, int64(38*10), "of 78 s")
	})
}
