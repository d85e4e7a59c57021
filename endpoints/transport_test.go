package endpoints_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
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

func asError(err error) *resilienthttp.Error {
	failed, _ := errors.AsType[*resilienthttp.Error](err)
	return failed
}

// N1: a request moves only if that cannot do the work twice. Each row has the servers that got the
// attempts; b works.
func TestTransport_moves(t *testing.T) {
	const get, put, post = http.MethodGet, http.MethodPut, http.MethodPost
	busy, wait := answers(http.StatusServiceUnavailable, nil), http.Header{"Retry-After": {"20"}}
	shared := func(tr *endpoints.Transport) { tr.SharedKeys = true }
	keyless := func(tr *endpoints.Transport) { tr.Transport.Idempotency.Disabled = true }
	sharedKeyless := func(tr *endpoints.Transport) { shared(tr); keyless(tr) }
	for _, row := range []struct {
		name   string
		method string
		edit   func(*endpoints.Transport)
		first  http.RoundTripper // what a does
		want   string
	}{
		{"GET, works: it stays", get, nil, nil, "a"},
		{"GET, refused: it moves", get, nil, refused, "a b"},
		{"GET, reset: it moves", get, nil, reset, "a b"},
		{"GET, 500: it moves", get, nil, answers(500, nil), "a b"},
		{"GET, 503: it moves", get, nil, busy, "a b"},
		{"GET, 503 with Retry-After: it moves at once", get, nil, answers(503, wait), "a b"},
		{"GET, 429 with Retry-After: it moves at once", get, nil, answers(429, wait), "a b"},
		{"GET, 404: it is the result", get, nil, answers(404, nil), "a"},
		{"GET, 501: it is the result", get, nil, answers(501, nil), "a"},
		{"PUT, reset: it moves", put, nil, reset, "a b"},
		{"DELETE, reset: it moves", http.MethodDelete, nil, reset, "a b"},
		{"POST, refused: it moves", post, nil, refused, "a b"},
		{"POST, refused, no key: it moves", post, keyless, refused, "a b"},
		{"POST, 429: it moves", post, nil, answers(429, nil), "a b"},
		{"POST, 429, no key: it moves", post, keyless, answers(429, nil), "a b"},
		{"POST, 503 with Retry-After: it moves", post, nil, answers(503, wait), "a b"},
		{"POST, 503: it stays, with its key", post, nil, busy, "a a…"},
		{"POST, 503, no key: no retry", post, keyless, busy, "a"},
		{"POST, reset: it stays, with its key", post, nil, reset, "a a…"},
		{"POST, reset, no key: no retry", post, keyless, reset, "a"},
		{"POST, 500: it stays, with its key", post, nil, answers(500, nil), "a a…"},
		{"POST, 500 that may be repeated: it stays", post, nil, answers(500, http.Header{"X-Should-Retry": {"true"}}), "a a…"},
		{"POST, 504 that may be repeated: it stays", post, nil, answers(504, http.Header{"Stripe-Should-Retry": {"true"}}), "a a…"},
		{"POST, 409 that may be repeated: it stays", post, nil, answers(409, http.Header{"X-Should-Retry": {"true"}}), "a a…"},
		{"POST, 503 that may be repeated: it stays", post, nil, answers(503, http.Header{"X-Should-Retry": {"true"}}), "a a…"},
		{"POST with a shared key, reset: it moves", post, shared, reset, "a b"},
		{"POST with a shared key, 500: it moves", post, shared, answers(500, nil), "a b"},
		{"POST, shared, no key, reset: no retry", post, sharedKeyless, reset, "a"},
		{"PATCH with a shared key, 503: it moves", http.MethodPatch, shared, busy, "a b"},
		{"PATCH, 503: it stays", http.MethodPatch, nil, busy, "a a…"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, row.edit, faulttest.OK("a"), faulttest.OK("b"))
			l.Transport.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: -1}
			if row.first != nil {
				l.setDown("a.test", row.first)
			}
			body := "{}"
			if row.method == get {
				body = ""
			}
			began := time.Now()
			resp, err := l.do(row.method, "/x", body)
			if stays, several := strings.CutSuffix(row.want, "…"); several {
				require.Contains(t, visited(resp, err), stays)
			} else {
				require.Equal(t, row.want, visited(resp, err))
			}
			if row.want == "a b" {
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Less(t, time.Since(began), 10*time.Millisecond, "the first visit of an endpoint has no wait")
				l.servers["b.test"].AssertRequests(t, 1)
			} else {
				l.servers["b.test"].AssertRequests(t, 0)
			}
		})
	}
}

// N1: once a server may have done the work of a POST, a later response that says "no work" does not
// free it.
func TestTransport_staysAfterUnknownResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		n := 0
		l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
			if n++; n == 1 {
				return reset.RoundTrip(req)
			}
			return answers(429, nil).RoundTrip(req)
		}))
		resp, err := l.post("/x")
		require.NoError(t, err)
		require.Contains(t, visited(resp, err), "a a a")
		require.Equal(t, 429, resp.StatusCode)
		l.servers["b.test"].AssertRequests(t, 0)
	})
}

// N2: MaxAttempts counts the attempts at all endpoints, and each endpoint is visited once before the
// series of waits begins.
func TestTransport_maxAttempts(t *testing.T) {
	for _, row := range []struct {
		name        string
		maxAttempts int
		want        string
	}{
		{"one: no move", 1, "a"},
		{"two: one move", 2, "a b"},
		{"three: every endpoint once", 3, "a b c"},
		{"default: six", 0, "a b c a b c"},
		{"seven", 7, "a b c a b c a"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, func(tr *endpoints.Transport) {
				tr.Transport.Policy.MaxAttempts = row.maxAttempts
				tr.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: -1}
				tr.Transport.Budget = &resilienthttp.Budget{Ratio: -1}
			}, faulttest.Status(500), faulttest.Status(500), faulttest.Status(500))
			began := time.Now()
			resp, err := l.get("/x")
			require.NoError(t, err)
			require.Equal(t, 500, resp.StatusCode)
			require.Equal(t, row.want, visited(resp, err))
			if len(row.want) <= len("a b c") {
				require.Zero(t, time.Since(began).Truncate(10*time.Millisecond), "no wait before every endpoint was visited")
			} else {
				require.Greater(t, time.Since(began), 50*time.Millisecond, "then the series of waits")
			}
		})
	}
}

// N4: if all are down, one *Error has all attempts, and State shows each endpoint.
func TestTransport_allDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		l.setDown("a.test", refused)
		l.setDown("b.test", refused)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		calls := 0
		l.Transport.Transport.Trace = &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) {
			calls++
			assert.Equal(t, "a.test#a", c.Scope[:8])
		}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.test/x", http.NoBody)
		require.NoError(t, err)
		_, err = l.RoundTrip(req)
		failed := asError(err)
		require.NotNil(t, failed)
		t.Log(resilienthttp.Explain(nil, err))
		require.Greater(t, len(failed.Attempts), 2)
		require.Equal(t, "a b a b", visited(nil, err)[:7])
		require.Equal(t, 1, calls, "one call")
		var scopes []string
		for _, s := range l.Transport.Transport.State().Scopes {
			scopes = append(scopes, s.Scope)
			assert.NotZero(t, s.Failure.At, s.Scope)
		}
		require.Equal(t, []string{"a.test#a", "b.test#b"}, scopes)
	})
}
