package endpoints_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// newHeldList returns a list of a and b. Their circuits open at the first failure, for five seconds.
func newHeldList(t *testing.T, maxWait time.Duration) *list {
	return newList(t, func(tr *endpoints.Transport) {
		tr.Transport.Breaker = &resilienthttp.Breaker{MaxWait: maxWait, FailureRatio: 0.01, MinRequests: 1, Probes: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second}
	}, faulttest.Status(200), faulttest.Status(200))
}

// only makes a call at one endpoint, without a retry.
func (l *list) only(ctx context.Context, name string) (*http.Response, error) {
	return l.doIn(endpoints.WithEndpoint(resilienthttp.WithSingleAttempt(ctx), name), http.MethodGet, "/", "")
}

// held returns the number of calls that wait for a circuit.
func (l *list) held() (n int) {
	for _, s := range l.Transport.Transport.State().Scopes {
		n += s.Breaker.Waiting
	}
	return n
}

// lastVisited returns the endpoint that responded.
func lastVisited(resp *http.Response) string {
	attempts := resilienthttp.Attempts(resp)
	return attempts[len(attempts)-1].Endpoint
}

// A call waits only while the circuits of all endpoints hold it, for as long as at one server. It goes to
// the first endpoint that is back.
func TestBreakerWait_endpoints(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name     string
		maxWait  time.Duration
		down     []string // their circuits open now
		back     string   // after the cooldown
		option   func(context.Context) context.Context
		answers  string
		from, to time.Duration
	}{
		{"a is held: b at once", 0, []string{"a"}, "", nil, "b", 0, 0},
		{"b is held: a at once", 0, []string{"b"}, "", nil, "a", 0, 0},
		{"all are held, b is back: b after its cooldown", 0, []string{"a", "b"}, "b", nil, "b", 5 * s, 7*s + s/2},
		{"all are held, none is back: an error", 0, []string{"a", "b"}, "", nil, "", 10 * s, 10 * s},
		{"all are held, MaxWait: as long", 4 * s, []string{"a", "b"}, "b", nil, "", 4 * s, 4 * s},
		{"all are held, a single attempt: an error at once", 0, []string{"a", "b"}, "b", resilienthttp.WithSingleAttempt, "", 0, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newHeldList(t, row.maxWait)
			ctx := t.Context()
			if row.option != nil {
				ctx = row.option(ctx)
			}
			for _, name := range row.down {
				l.setDown(name+".test", refused)
				_, err := l.only(t.Context(), name)
				require.Error(t, err)
			}
			if row.back != "" {
				l.setDown(row.back+".test", nil)
			}
			begun := time.Now()
			resp, err := l.doIn(ctx, http.MethodGet, "/", "")
			require.GreaterOrEqual(t, time.Since(begun), row.from)
			require.LessOrEqual(t, time.Since(begun), row.to)
			if row.answers == "" {
				require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
				require.True(t, resilienthttp.NotBefore(resp, err).After(time.Now()))
			} else {
				require.NoError(t, err)
				require.Equal(t, row.answers, lastVisited(resp))
			}
			if row.maxWait > 0 {
				require.ErrorContains(t, err, "the server has failed for 4s, waited 4s")
			}
			require.Zero(t, l.held())
		})
	}
}

// A call that waits at one endpoint looks at the others once a second.
func TestBreakerWait_endpointsLookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		l := newHeldList(t, 0)
		for _, name := range []string{"a", "b"} {
			l.setDown(name+".test", refused)
			_, _ = l.only(t.Context(), name)
		}
		begun := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }
		var calls sync.WaitGroup
		defer calls.Wait()
		at(7 * s) // a probe at a fails: the next one may follow after 12 s
		_, _ = l.only(t.Context(), "a")
		at(9 * s) // a probe at b responds after 11.5 s. Before 14 s no other one may follow
		l.setDown("b.test", roundTripper(func(req *http.Request) (*http.Response, error) {
			at(11*s + s/2)
			return l.servers["a.test"].Transport().RoundTrip(req)
		}))
		calls.Go(func() {
			_, err := l.only(t.Context(), "b")
			assert.NoError(t, err)
		})
		at(9*s + 3*s/4)
		l.setDown("b.test", nil)
		resp, err := l.get("/")
		require.NoError(t, err)
		require.Equal(t, "b", visited(resp, err))
		require.GreaterOrEqual(t, time.Since(begun), 11*s+s/2)
		require.LessOrEqual(t, time.Since(begun), 12*s)
		calls.Wait()
		require.Zero(t, l.held())
	})
}

type blocks struct {
	once   sync.Once
	closed chan struct{}
}

func (b *blocks) Read([]byte) (int, error) { <-b.closed; return 0, io.EOF }
func (b *blocks) Close() error             { b.once.Do(func() { close(b.closed) }); return nil }

// 8. A retry that moves waits for the circuits of endpoints that the call has not tried, although the circuit of the first
// one is closed: b's opens while the response of a is drained.
func TestAttack_movesWaitsAlthoughAnotherIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) {
			tr.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: 0.7, MinRequests: 2, Probes: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second}
		}, faulttest.Status(200), faulttest.Status(200))
		for range 10 {
			_, err := l.only(t.Context(), "a")
			require.NoError(t, err)
		}
		l.setDown("a.test", roundTripper(func(r *http.Request) (*http.Response, error) { // one failure
			l.setDown("a.test", nil)
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: &blocks{closed: make(chan struct{})}, Request: r}, nil
		}))
		l.setDown("b.test", refused)
		time.AfterFunc(50*time.Millisecond, func() {
			_, _ = l.only(t.Context(), "b")
			_, _ = l.only(t.Context(), "b")
		})
		begun := time.Now()
		resp, err := l.get("/")
		t.Log(resilienthttp.Explain(resp, err))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Less(t, time.Since(begun), 2*time.Second, "a is healthy and closed")
	})
}

// A clock that is set back does not keep POSTs from probing: each synctest bubble begins at the same time.
func TestTransport_clockSetBack(t *testing.T) {
	var working atomic.Bool
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "a.test" && !working.Load() {
			return refused.RoundTrip(req)
		}
		return answers(200, nil).RoundTrip(req)
	})
	tr := pair(t, "http://a.test", "http://b.test", base)
	post := func() string {
		resp, err := send(t, tr, http.MethodPost, "http://a.test/x", "{}")
		require.NoError(t, err)
		return visited(resp, err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		_, err := send(t, tr, http.MethodGet, "http://a.test/x", "")
		require.NoError(t, err)
	})
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // opens the circuit
			post()
			time.Sleep(100 * time.Millisecond)
		}
		working.Store(true)
		for range 100 {
			post()
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, "a", post())
	})
}
