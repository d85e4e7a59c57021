package resilienthttp_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// provider is a Base that does the work of a key once. While the work lasts it responds 409 to
// another request with the key, and after it with the stored 201, as payment providers do.
type provider struct {
	works  time.Duration // of the work
	loses  time.Duration // after it the connection of the first request is closed; 0: never
	lost   int           // if not 0, the status of a gateway instead of a closed connection
	header http.Header   // of each 409

	mu       sync.Mutex
	requests int
	done     map[string]time.Time // by key, the end of the work
}

func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	p.mu.Lock()
	p.requests++
	key, begun := req.Header.Get("Idempotency-Key"), time.Now()
	end, duplicate := p.done[key]
	if !duplicate {
		end = begun.Add(p.works)
		p.done[key] = end
	}
	p.mu.Unlock()
	if duplicate && time.Now().Before(end) {
		resp := puppetAnswer(req, http.StatusConflict)
		maps.Copy(resp.Header, p.header)
		return resp, nil
	}
	wait := time.Until(end)
	loses := p.loses > 0 && !duplicate
	if loses {
		wait = min(wait, p.loses)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	switch {
	case loses && p.lost != 0:
		return puppetAnswer(req, p.lost), nil
	case loses:
		return nil, io.EOF
	}
	return puppetAnswer(req, http.StatusCreated), nil
}

// §4.9: a 409 is not the result of a call while the server may be at work at another attempt with
// the same key. After a known failure it is.
func TestConflict_whileTheServerMayBeAtWork(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	callers := func(ctx context.Context) context.Context { return resilienthttp.WithIdempotencyKey(ctx, "order-1") }
	for _, row := range []struct {
		name     string
		provider *provider
		ctx      func(context.Context) context.Context
		deadline time.Duration // 0: none
		arrange  func(*resilienthttp.Transport)
		want     int
		sent     int // requests
	}{
		{name: "slow, the caller's key, a deadline: one request", provider: &provider{works: 3 * s}, ctx: callers, deadline: 5 * s, want: 201, sent: 1},
		{name: "slow, the caller's key, no deadline: one request", provider: &provider{works: 40 * s}, ctx: callers, want: 201, sent: 1},
		{name: "closed connection, generated key: retried until the work is done", provider: &provider{works: 3 * s, loses: 10 * ms}, want: 201, sent: 4},
		{name: "closed connection, a deadline: the last wait uses its time", provider: &provider{works: 3 * s, loses: 10 * ms}, deadline: 5 * s, want: 201, sent: 4},
		{name: "lost late: the 409 comes at once, and the rest of the deadline is used", provider: &provider{works: 4 * s, loses: 3500 * ms}, deadline: 5 * s, want: 201, sent: 3},
		{name: "lost late, with Retry-After", provider: &provider{works: 4 * s, loses: 3500 * ms, header: http.Header{"Retry-After": {"1"}}}, deadline: 5 * s, want: 201, sent: 3},
		{name: "lost in the second half of 20 s", provider: &provider{works: 14 * s, loses: 11 * s}, deadline: 20 * s, want: 201, sent: 4},
		{name: "502 of a gateway", provider: &provider{works: 3 * s, loses: 10 * ms, lost: 502}, want: 201, sent: 4},
		{name: "504 of a gateway", provider: &provider{works: 3 * s, loses: 10 * ms, lost: 504}, want: 201, sent: 4},
		{name: "attempt timeout", provider: &provider{works: 3 * s}, arrange: func(t *resilienthttp.Transport) { t.Policy.AttemptTimeout = s }, want: 201, sent: 2},
		{name: "work of a minute: two retries, then the 409", provider: &provider{works: time.Minute, loses: 10 * ms}, want: 409, sent: 4},
		{name: "many attempts: still two retries after a 409", provider: &provider{works: time.Minute, loses: 10 * ms}, arrange: func(t *resilienthttp.Transport) {
			t.Policy.MaxAttempts, t.Policy.Backoff = 10, resilienthttp.Constant(s)
		}, want: 409, sent: 4},
		{name: "hedge gets the 409, the first attempt the result", provider: &provider{works: 3 * s}, arrange: func(t *resilienthttp.Transport) {
			t.Hedge = &resilienthttp.Hedge{Delay: s, MaxRatio: -1}
		}, want: 201, sent: 2},
		{name: "should-retry false decides first", provider: &provider{works: 3 * s, loses: 10 * ms, header: http.Header{"X-Should-Retry": {"false"}}}, want: 409, sent: 2},
		{name: "without a key: not repeated", provider: &provider{works: 3 * s, loses: 10 * ms}, arrange: func(t *resilienthttp.Transport) { t.Idempotency.Disabled = true }, want: 0, sent: 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := row.provider
			base.done = map[string]time.Time{}
			transport := &resilienthttp.Transport{Base: base}
			if row.arrange != nil {
				row.arrange(transport)
			}
			ctx := t.Context()
			if row.ctx != nil {
				ctx = row.ctx(ctx)
			}
			if row.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.deadline)
				defer cancel()
			}
			resp, err := transport.RoundTrip(newCall(ctx, t, http.MethodPost, "charge"))
			if row.want == 0 {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, row.want, resp.StatusCode)
				readAll(t, resp)
			}
			synctest.Wait()
			require.Len(t, base.done, 1, "the work is done once")
			require.Equal(t, row.sent, base.requests)
		})
	}
	t.Run("without another attempt, or after a known failure: final", func(t *testing.T) {
		for _, statuses := range [][]int{{409}, {500, 409}, {503, 409}, {408, 409}} {
			synctest.Test(t, func(t *testing.T) {
				var steps []puppet
				for _, status := range statuses {
					steps = append(steps, puppetStatus(status))
				}
				n := 0
				transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
					n++
					return steps[min(n, len(steps))-1](req)
				}), 6)
				resp := roundTrip(t, transport, newCall(t.Context(), t, http.MethodPost, "charge"))
				require.Equal(t, http.StatusConflict, resp.StatusCode)
				require.Equal(t, len(statuses), n, "%v", statuses)
			})
		}
	})
}

// §4.9: a 4xx to a hedge of an unsafe method is the result only if no other attempt gets a
// response. With a safe method the first final response wins.
func TestHedge_keepsA4xxOfAnUnsafeMethod(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name, method string
		copies       []copyOf
		want         string
	}{
		{"POST: the first attempt's response wins", "POST", []copyOf{{after: 3 * s, status: 201}, {status: 422}}, "1 201, 1h 422"},
		{"POST: also a failure, which is retried", "POST", []copyOf{{after: 3 * s, status: 500}, {status: 422}, {status: 201}}, "1 500, 1h 422, 2 201"},
		{"POST: the hedge's, if the first attempt gets no response", "POST", []copyOf{{after: 3 * s, err: io.EOF}, {status: 422}}, "1 EOF, 1h 422"},
		{"POST: a 409 to the first attempt, while the hedge is at work", "POST", []copyOf{{after: 2 * s, status: 409}, {after: 5 * s, status: 201}}, "1 409, 1h 201"},
		{"GET: the hedge wins", "GET", []copyOf{{after: 3 * s}, {status: 404}}, "1 lost, 1h 404"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(row.copies...)
			transport := hedging(base, 3, &resilienthttp.Hedge{Delay: s, MaxRatio: -1})
			require.Equal(t, row.want, story(tripped(t, transport, newCall(t.Context(), t, row.method, ""))))
			base.balanced(t)
		})
	}
}

// A response that was kept is closed if the other attempt's Base panics.
func TestHedge_closesAKeptResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := newHedgeBase(copyOf{after: 3 * time.Second, panics: true}, copyOf{status: 422})
		transport := hedging(base, 3, &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1})
		require.Panics(t, func() { _, _ = transport.RoundTrip(newCall(t.Context(), t, http.MethodPost, "")) })
		synctest.Wait()
		base.balanced(t)
	})
}
