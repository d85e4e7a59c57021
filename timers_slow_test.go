package resilienthttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// §4.25, L5: with the default AttemptTimeout: which requests get a copy at what time, which copy
// wins, and when an attempt is cut. Each row has the attempts and the times at which they were
// sent.
func TestSlowAttempt_copies(t *testing.T) {
	const (
		s = time.Second
		m = time.Minute
	)
	own := func(ctx context.Context) context.Context { return resilienthttp.WithIdempotencyKey(ctx, "order-1") }
	never := copyOf{after: 10 * time.Hour}
	for _, row := range []struct {
		name     string
		method   string
		ctx      func(context.Context) context.Context
		deadline time.Duration
		copies   []copyOf
		max      int // MaxAttempts
		header   http.Header
		want     string
		took     time.Duration
		sent     []time.Duration
	}{
		{name: "GET, quick", method: "GET", copies: []copyOf{{after: 29 * s}}, want: "1 200", took: 29 * s, sent: []time.Duration{0}},
		{name: "GET, 40 s", method: "GET", copies: []copyOf{{after: 40 * s}}, want: "1 200, 2 lost", took: 40 * s, sent: []time.Duration{0, 30 * s}},
		{name: "GET, the copy is answered first", method: "GET", copies: []copyOf{never, {after: s}}, want: "1 lost, 2 200", took: 31 * s, sent: []time.Duration{0, 30 * s}},
		{name: "POST, generated key, 40 s", method: "POST", copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "POST, own key, 40 s", method: "POST", ctx: own, copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "QUERY, 40 s", method: "QUERY", copies: []copyOf{{after: 40 * s}}, want: "1 200, 2 lost", took: 40 * s, sent: []time.Duration{0, 30 * s}},
		{name: "PUT, 40 s", method: "PUT", copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "PUT, own key, 40 s", method: "PUT", ctx: own, copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "DELETE, 40 s", method: "DELETE", copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "GET of events, 40 s", method: "GET", header: http.Header{"Accept": {"Text/Event-Stream; q=1"}}, copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "GET of JSON or events, 40 s", method: "GET", header: http.Header{"Accept": {"application/json, text/event-stream"}}, copies: []copyOf{{after: 40 * s}}, want: "1 200, 2 lost", took: 40 * s, sent: []time.Duration{0, 30 * s}},
		{name: "an upgrade, 40 s", method: "GET", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "an upgrade, 6 of 10 s", method: "GET", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, deadline: 10 * s, copies: []copyOf{{after: 6 * s}}, want: "1 200", took: 6 * s, sent: []time.Duration{0}},
		{name: "single attempt", method: "GET", ctx: resilienthttp.WithSingleAttempt, copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},
		{name: "one attempt", method: "GET", max: -1, copies: []copyOf{{after: 40 * s}}, want: "1 200", took: 40 * s, sent: []time.Duration{0}},

		{name: "half of the deadline", method: "GET", deadline: 10 * s, copies: []copyOf{never, {after: s}}, want: "1 lost, 2 200", took: 6 * s, sent: []time.Duration{0, 5 * s}},
		{name: "30 s, where the half is more", method: "GET", deadline: 5 * m, copies: []copyOf{never, {after: s}}, want: "1 lost, 2 200", took: 31 * s, sent: []time.Duration{0, 30 * s}},
		{name: "and half of the rest", method: "GET", deadline: 8 * s, copies: []copyOf{never, never, {after: s / 2}}, want: "1 lost, 2 lost, 3 200", took: 13 * s / 2, sent: []time.Duration{0, 4 * s, 6 * s}},
		{name: "twice at most", method: "GET", deadline: 8 * s, copies: []copyOf{never}, want: "1 gone, 2 gone, 3 gone", took: 8 * s, sent: []time.Duration{0, 4 * s, 6 * s}},
		{name: "as often as attempts are left", method: "GET", deadline: 8 * s, max: 2, copies: []copyOf{never}, want: "1 gone, 2 gone", took: 8 * s, sent: []time.Duration{0, 4 * s}},
		{name: "POST, generated key, under a deadline", method: "POST", deadline: 10 * s, copies: []copyOf{never}, want: "1 gone", took: 10 * s, sent: []time.Duration{0}},
		{name: "POST, 50 s of 60", method: "POST", deadline: m, copies: []copyOf{{after: 50 * s}}, want: "1 200", took: 50 * s, sent: []time.Duration{0}},

		{name: "the copy fails, the first is waited for", method: "GET", copies: []copyOf{{after: 50 * s}, {after: s, status: 503}}, want: "1 200, 2 503", took: 50 * s, sent: []time.Duration{0, 30 * s}},
		{name: "the first fails, the copy is waited for", method: "GET", copies: []copyOf{{after: 35 * s, status: 503}, {after: 10 * s}}, want: "1 503, 2 200", took: 40 * s, sent: []time.Duration{0, 30 * s}},
		{name: "both fail, the copy last", method: "GET", copies: []copyOf{{after: 35 * s, status: 503}, {after: 10 * s, status: 502}, {}}, want: "1 503, 2 502, 3 200", took: 40 * s, sent: []time.Duration{0, 30 * s, 40 * s}},
		{name: "both fail, the first last", method: "GET", copies: []copyOf{{after: 35 * s, status: 503}, {after: s, status: 502}, {}}, want: "1 503, 2 502, 3 200", took: 35 * s, sent: []time.Duration{0, 30 * s, 35 * s}},
		{name: "both fail, and no attempt is left", method: "GET", max: 2, copies: []copyOf{{after: 35 * s, status: 503}, {after: s, status: 502}}, want: "1 503, 2 502", took: 35 * s, sent: []time.Duration{0, 30 * s}},
		{name: "a final response ends the call", method: "GET", copies: []copyOf{never, {after: s, status: 404}}, want: "1 lost, 2 404", took: 31 * s, sent: []time.Duration{0, 30 * s}},

		{name: "a POST of 2 min 10 s is sent once", method: "POST", copies: []copyOf{{after: 130 * s}}, want: "1 200", took: 130 * s, sent: []time.Duration{0}},
		{name: "a GET of 9 min is sent twice", method: "GET", copies: []copyOf{{after: 9 * m}, {after: 9 * m}}, want: "1 200, 2 lost", took: 9 * m, sent: []time.Duration{0, 30 * s}},
		{name: "15 min without a deadline: the end", method: "POST", copies: []copyOf{never, {}}, want: "1 timeout", took: 15 * m, sent: []time.Duration{0}},
		{name: "15 min without a deadline: the end of the second attempt too", method: "GET", copies: []copyOf{never}, want: "1 timeout, 2 timeout", took: 15*m + 30*s, sent: []time.Duration{0, 30 * s}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(row.copies...)
			transport := bareTransport(base, row.max)
			ctx := applied(t.Context(), row.ctx)
			ctx = until(t, ctx, row.deadline)
			body := "body"
			if row.method == "GET" || row.method == "DELETE" {
				body = ""
			}
			req := newCall(ctx, t, row.method, body)
			maps.Copy(req.Header, row.header)
			start := time.Now()
			attempts := tripped(t, transport, req)
			require.Equal(t, row.want, story(attempts))
			require.Equal(t, row.took, time.Since(start))
			var sent []time.Duration
			for i, a := range attempts {
				require.Equal(t, i+1, a.Number)
				require.False(t, a.Hedge)
				sent = append(sent, a.Start.Sub(start))
			}
			require.Equal(t, row.sent, sent)
			base.balanced(t)
		})
	}
}

// §4.25, L5: a copy is for one slow request among quick ones. If the whole scope is slow, it would be work without a result.
func TestSlowAttempt_uselessCopies(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name    string
		usually time.Duration // 0: nothing was called before
		want    string
	}{
		{"nothing is known: a copy", 0, "1 200, 2 lost"},
		{"usually quick: a copy", s / 10, "1 200, 2 lost"},
		{"a fifth as slow: a copy", s, "1 200, 2 lost"},
		{"a third as slow: none", 5 * s / 3, "1 200"},
		{"as slow: none", 4 * s, "1 200"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase()
			transport := bareTransport(base, 3)
			call := func(took time.Duration) string {
				base.next(copyOf{after: took})
				return story(tripped(t, transport, newCall(withDeadline(t, 10*s), t, http.MethodGet, "")))
			}
			for range 5 {
				if row.usually > 0 {
					call(row.usually)
				}
			}
			require.Equal(t, row.want, call(6*s))
			base.balanced(t)
		})
	}
}

// §4.16, §4.25: a copy takes tokens and needs permits without waiting; otherwise there is no
// copy. The first attempt is not affected.
func TestSlowAttempt_permitsOfCopies(t *testing.T) {
	for name, arrange := range map[string]func(*resilienthttp.Transport){
		"no budget": func(tr *resilienthttp.Transport) { tr.Budget = &resilienthttp.Budget{Ratio: 1e-9, Burst: -1} },
		"no permit": func(tr *resilienthttp.Transport) { tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.01, Burst: 1} },
		"a timeout that is set": func(tr *resilienthttp.Transport) {
			tr.Policy.AttemptTimeout = 35 * time.Second
		},
		"none, that is set": func(tr *resilienthttp.Transport) { tr.Policy.AttemptTimeout = -1 },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			base := newHedgeBase(copyOf{after: 34 * time.Second}, copyOf{})
			transport := bareTransport(base, 4)
			arrange(transport)
			require.Equal(t, "1 200", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
			base.balanced(t)
		})
	}
	bubble.Run(t, "a winner returns its tokens", func(t *testing.T) {
		base := newHedgeBase()
		transport := bareTransport(base, 4)
		transport.Budget = tokens(1)
		transport.Budget.Static = false
		for range 5 {
			base.next(copyOf{after: time.Hour}, copyOf{})
			require.Equal(t, "1 lost, 2 200", story(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))))
		}
	})
	for name, beforeBody := range map[string]func(){
		"a copy that is not sent costs nothing": func() { time.Sleep(2 * time.Second) },
		"GetBody panics":                        func() { panic("odd") },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			base := newHedgeBase(copyOf{after: 31 * time.Second}, copyOf{})
			transport := bareTransport(base, 4)
			transport.Budget = tokens(1)
			req := newCall(t.Context(), t, "QUERY", "body")
			body := req.GetBody
			req.GetBody = func() (io.ReadCloser, error) { beforeBody(); return body() }
			require.Equal(t, "1 200", story(tripped(t, transport, req)))
			base.next(copyOf{status: 503}, copyOf{})
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 2, "the token was returned")
		})
	}
}

// §4.2: after RoundTrip the caller may write to the request, even if a copy that lost is in
// flight.
func TestSlowAttempt_requestAfterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if calls.Add(1) == 1 {
				return after(31*time.Second, status(200))(r)
			}
			for range 1000 { // ignores its context, and reads the request
				time.Sleep(10 * time.Millisecond)
				_ = fmt.Sprint(r.Method, r.URL.Path, r.Header)
			}
			return nil, errors.New("late")
		})
		req := get(t)
		readAll(t, roundTrip(t, (&resilienthttp.Transport{Base: base}), req))
		require.EqualValues(t, 2, calls.Load())
		for range 1000 { // under -race
			req.Method, req.URL.Path = http.MethodPatch, "/other"
			req.Header.Set("X-Other", "yes")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
	})
}

// §4.25: a request body that makes progress is not cut. A stalled one is cut, and so is a server
// that is too slow after it has the body.
func TestUploads(t *testing.T) {
	const timeout = 5 * time.Second
	for _, row := range []struct {
		name    string
		length  int64
		timeout time.Duration
		pause   time.Duration // pause of Base after each 32 KiB
		stall   time.Duration // once, after the first
		answer  time.Duration // after the last
		cut     bool
		took    time.Duration
	}{
		{name: "progress", length: 40 << 15, timeout: timeout, pause: time.Second, took: 40 * time.Second},
		{name: "progress of unknown length", length: -1, timeout: timeout, pause: time.Second, took: 40 * time.Second},
		{name: "progress, by default", length: 40 << 15, pause: 10 * time.Second, took: 400 * time.Second},
		{name: "progress, and a timeout that never comes", length: 40 << 15, timeout: 1<<63 - 1, pause: time.Second, took: 40 * time.Second},
		{name: "stalled", length: 40 << 15, timeout: timeout, stall: time.Hour, cut: true, took: timeout},
		{name: "stalled for less than the timeout", length: 40 << 15, timeout: timeout, stall: 4 * time.Second, took: 4 * time.Second},
		{name: "stalled, by default", length: 40 << 15, stall: time.Hour, cut: true, took: 15 * time.Minute},
		{name: "answered in time after it", length: 40 << 15, timeout: timeout, pause: time.Second, answer: 4 * time.Second, took: 44 * time.Second},
		{name: "answered too late after it", length: 40 << 15, timeout: timeout, pause: time.Second, answer: 6 * time.Second, cut: true, took: 45 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			calls := 0
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				calls++
				defer r.Body.Close()
				wire := &slowWire{ctx: r.Context(), pause: row.pause, stall: row.stall}
				if _, err := io.Copy(wire, r.Body); err != nil {
					return nil, err
				}
				require.Equal(t, 40<<15, wire.sent)
				return after(row.answer, status(200))(r)
			})
			transport := bareTransport(base, 1)
			transport.Policy.AttemptTimeout = row.timeout
			req := newCall(t.Context(), t, http.MethodPut, "")
			req.Body, req.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 40<<15)), row.length
			start := time.Now()
			resp, err := transport.RoundTrip(req)
			require.Equal(t, row.took, time.Since(start))
			if row.cut {
				require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
			} else {
				require.NoError(t, err)
				readAll(t, resp)
			}
			require.Equal(t, 1, calls)
		})
	}
	bubble.Run(t, "§4.19 no deadline header while progress extends the timeout", func(t *testing.T) {
		base := script(status(200))
		transport := bareTransport(base, 1)
		transport.Policy.AttemptTimeout = timeout
		for length, want := range map[int64]string{1 << 10: "5000", 1 << 20: "60000"} {
			tripped(t, transport, newCall(withDeadline(t, time.Minute), t, http.MethodPut, strings.Repeat("x", int(length))))
			calls := base.calls()
			require.Equal(t, want, calls[len(calls)-1].Header.Get("X-Request-Timeout-Ms"))
		}
	})
}

// slowWire takes its time for each 32 KiB.
type slowWire struct {
	ctx          context.Context
	pause, stall time.Duration
	sent         int
}

func (w *slowWire) Write(p []byte) (int, error) {
	pause := w.pause * time.Duration(len(p)) / (32 << 10)
	if w.sent == 0 {
		pause += w.stall
	}
	w.sent += len(p)
	if err := sleep.Context(w.ctx, pause); err != nil {
		return 0, err
	}
	return len(p), nil
}

// §4.16, §4.25: concurrent attempts leave most of the tokens to the retries of other calls.
func TestSlowAttempt_tokensForRetries(t *testing.T) {
	const calls, perSecond, slowOf, failsOf = 4000, 20, 5, 10
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			switch {
			case r.URL.Path == "/slow":
				return after(20*time.Second, status(200))(r)
			case rand.IntN(failsOf) == 0:
				return status(500)(r)
			}
			return status(200)(r)
		})}
		failed := map[string]*atomic.Int64{"/slow": {}, "/": {}}
		var all sync.WaitGroup
		for i := range calls {
			path := "/"
			if i%slowOf == 0 {
				path = "/slow"
			}
			all.Go(func() {
				if !succeeds(t, tr, path, 30*time.Second) {
					failed[path].Add(1)
				}
			})
			time.Sleep(time.Second / perSecond)
		}
		all.Wait()
		require.Zero(t, failed["/slow"].Load())
		// Concurrent attempts that lose cost tokens: 20 to 40 of 3,200 calls without a retry
		// were measured, and 320 would fail without any.
		require.LessOrEqual(t, failed["/"].Load(), int64(80))
	})
}

// §4.2, §4.13: after RoundTrip the request is the caller's, even if a hedge was in preparation.
func TestHedge_requestAfterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(after(30*time.Millisecond, status(200)))
		tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: 10 * time.Millisecond}}
		req := newRequest(t, http.MethodPost, "http://api.test/", "body")
		var asked, returned atomic.Bool
		req.GetBody = func() (io.ReadCloser, error) {
			asked.Store(true)
			time.Sleep(time.Minute) // the first copy gets its response
			require.False(t, returned.Load())
			return io.NopCloser(strings.NewReader("body")), nil
		}
		resp, err := tr.RoundTrip(req)
		returned.Store(true)
		require.NoError(t, err)
		require.True(t, asked.Load())
		readAll(t, resp)
		for range 100 { // under -race
			req.Method, req.URL.Path = http.MethodPatch, "/other"
			req.Header.Set("X-Other", "yes")
			*req = *req.WithContext(context.Background())
			time.Sleep(time.Millisecond)
		}
		require.Len(t, base.calls(), 1, "the hedge is not sent")
	})
}

// §4.2: a Base may write to the URL and the header of its request.
func TestHedgedCopiesShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			r.Header.Set("Authorization", "token")
			r.URL.Path = "/rewritten"
			return after(time.Second, status(200))(r)
		})
		tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: time.Millisecond}}
		req := get(t)
		before := stateOf(req)
		readAll(t, roundTrip(t, tr, req))
		before.requireUnchanged(t)
	})
}

// §4.24: the time of a copy with a Base that panics counts as that of any other.
func TestPanickingCopy_timings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := newHedgeBase(copyOf{after: 35 * time.Second, status: 503}, copyOf{after: 9 * time.Second, panics: true}, copyOf{})
		attempts := tripped(t, bareTransport(base, 4), newCall(t.Context(), t, http.MethodGet, ""))
		require.Equal(t, "1 503, 2 panic in a concurrent attempt: Base is broken, 3 200", story(attempts))
		require.Equal(t, 9*time.Second, attempts[1].Latency)
		require.Zero(t, attempts[1].RetryWait)
		base.balanced(t)
	})
}

// §4.5: a hook that panics for one copy leaves no body of another open.
func TestPanickingHook_closesBodies(t *testing.T) {
	for name, copies := range map[string][]copyOf{
		"both fail, the first last": {{after: 35 * time.Second, status: 503}, {after: time.Second, status: 502}},
		"both fail, the copy last":  {{after: 35 * time.Second, status: 503}, {after: 10 * time.Second, status: 502}},
		"the copy answers":          {{after: 35 * time.Second, status: 503}, {after: 10 * time.Second}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			base := newHedgeBase(copies...)
			transport := bareTransport(base, 4)
			transport.Trace = &resilienthttp.Trace{AttemptDone: func(a *resilienthttp.Attempt) {
				if a.Number == 2 {
					panic("odd")
				}
			}}
			require.PanicsWithValue(t, "odd", func() {
				_, _ = transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
			})
			base.balanced(t)
		})
	}
}
