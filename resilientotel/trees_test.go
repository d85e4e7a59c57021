package resilientotel

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

const url = "https://api.test:8443/v1/charges/s3cr3t?s3cr3t=1"

// T1: each attempt is one CLIENT span below the span of its call. T2: the span of the call ends
// when RoundTrip returns. T3: no path and no query.
func TestSpanTrees(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name      string
		transport *resilienthttp.Transport
		base      *scripted
		calls     func(t *testing.T, rt http.RoundTripper)
		want      string
	}{
		{
			name: "failures: a span for each attempt", base: script(answer{after: s, status: 503}, answer{after: s, err: errors.New("malformed HTTP response \"s3cr3t\"")}, answer{after: s, status: 201}),
			transport: &resilienthttp.Transport{Policy: every(2 * s), Breaker: never()},
			calls: func(t *testing.T, rt http.RoundTripper) {
				ctx := resilienthttp.WithIdempotencyKey(t.Context(), "s3cr3t key")
				require.NoError(t, called(t, rt, get(t, ctx, url)))
			},
			want: `
internal call GET 0s–7s
  http.request.method=GET http.response.status_code=201 resilienthttp.attempt.count=3 resilienthttp.idempotency_key_hash=sha256:HASH resilienthttp.in_flight=3 resilienthttp.outcome=success resilienthttp.queue_wait=0 resilienthttp.retry_wait=4 server.address=api.test server.port=8443
  * 1s retry resilienthttp.attempt.number=1 resilienthttp.retry.reason=503 resilienthttp.retry_wait=2
  * 4s retry resilienthttp.attempt.number=2 resilienthttp.retry.reason=_OTHER resilienthttp.retry_wait=2
  client HTTP GET 0s–1s Error ""
    error.type=503 http.request.method=GET http.response.status_code=503 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
  client HTTP GET 3s–4s Error "malformed HTTP response (not shown)"
    error.type=_OTHER http.request.method=GET http.request.resend_count=1 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
  client HTTP GET 6s–7s
    http.request.method=GET http.request.resend_count=2 http.response.status_code=201 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
		{
			name: "hedge: both copies have spans, and the lost one is no error", base: script(answer{after: 10 * s, status: 200}, answer{after: s, status: 200}),
			transport: &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: 2 * s}},
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
			},
			want: `
internal call GET 0s–3s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempt.count=2 resilienthttp.in_flight=3 resilienthttp.outcome=success resilienthttp.queue_wait=0 resilienthttp.retry_wait=0 server.address=api.test server.port=8443
  client HTTP GET 0s–3s
    http.request.method=GET network.protocol.version=1.1 resilienthttp.hedge.outcome=lost server.address=api.test server.port=8443 url.full=https://api.test:8443
  client HTTP GET 2s–3s
    http.request.method=GET http.request.resend_count=1 http.response.status_code=200 network.protocol.version=1.1 resilienthttp.hedge.outcome=won resilienthttp.hedge=true server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
		{
			name: "rejected by the breaker: no CLIENT span", base: script(answer{status: 503}),
			transport: &resilienthttp.Transport{
				Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Cooldown: time.Hour, MaxWait: -1},
				Scope: func(*http.Request) string { return "bank" },
			},
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
				time.Sleep(s)
				require.ErrorIs(t, called(t, rt, get(t, t.Context(), url)), resilienthttp.ErrBreakerOpen)
			},
			want: `
internal call GET 0s–0s Error ""
  error.type=503 http.request.method=GET http.response.status_code=503 resilienthttp.attempt.count=1 resilienthttp.in_flight=0 resilienthttp.outcome=failed resilienthttp.queue_wait=0 resilienthttp.retry_wait=0 resilienthttp.scope=bank resilienthttp.stop_reason=max_attempts server.address=api.test server.port=8443
  client HTTP GET 0s–0s Error ""
    error.type=503 http.request.method=GET http.response.status_code=503 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
internal call GET 1s–1s Error "resilienthttp: circuit breaker is open: the server has failed for 1s; not before TIME"
  error.type=breaker_open http.request.method=GET resilienthttp.attempt.count=0 resilienthttp.in_flight=0 resilienthttp.outcome=rejected resilienthttp.queue_wait=0 resilienthttp.retry_wait=0 resilienthttp.scope=bank server.address=api.test server.port=8443
  * 1s rejected resilienthttp.rejected_by=breaker
`,
		},
		{
			name: "rejected by the rate limit: no CLIENT span", base: script(answer{status: 200}),
			transport: &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1, MaxWait: -1}},
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
				time.Sleep(s)
				require.ErrorIs(t, called(t, rt, get(t, t.Context(), url)), resilienthttp.ErrRateLimited)
			},
			want: `
internal call GET 0s–0s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempt.count=1 resilienthttp.in_flight=0 resilienthttp.outcome=success resilienthttp.queue_wait=0 resilienthttp.retry_wait=0 server.address=api.test server.port=8443
  client HTTP GET 0s–0s
    http.request.method=GET http.response.status_code=200 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
internal call GET 1s–1s Error "resilienthttp: rate limited; not before TIME"
  error.type=rate_limited http.request.method=GET resilienthttp.attempt.count=0 resilienthttp.in_flight=0 resilienthttp.outcome=rejected resilienthttp.queue_wait=0 resilienthttp.retry_wait=0 server.address=api.test server.port=8443
  * 1s rejected resilienthttp.rejected_by=rate_limit
`,
		},
		{
			name: "canceled in flight: both spans are errors", base: script(answer{after: time.Hour}),
			calls: func(t *testing.T, rt http.RoundTripper) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*s, cancel)
				require.ErrorIs(t, called(t, rt, get(t, ctx, url)), context.Canceled)
			},
			want: `
internal call GET 0s–3s Error "resilienthttp: context canceled (attempt 1)"
  error.type=canceled http.request.method=GET resilienthttp.attempt.count=1 resilienthttp.in_flight=3 resilienthttp.outcome=canceled resilienthttp.queue_wait=0 resilienthttp.retry_wait=0 server.address=api.test server.port=8443
  client HTTP GET 0s–3s Error "context canceled"
    error.type=canceled http.request.method=GET network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
		{
			name: "canceled before the call: an error without an attempt", base: script(answer{status: 200}),
			calls: func(t *testing.T, rt http.RoundTripper) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				require.ErrorIs(t, called(t, rt, get(t, ctx, url)), context.Canceled)
			},
			want: `
internal call GET 0s–0s Error "resilienthttp: context canceled"
  error.type=canceled http.request.method=GET server.address=api.test server.port=8443
`,
		},
		{
			name: "waited ten seconds for a quota: an event and queue_wait", base: script(answer{status: 200, header: []string{"X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10"}}),
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
			},
			want: `
internal call GET 0s–0s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempt.count=1 resilienthttp.in_flight=0 resilienthttp.outcome=success resilienthttp.queue_wait=0 resilienthttp.retry_wait=0 server.address=api.test server.port=8443
  client HTTP GET 0s–0s
    http.request.method=GET http.response.status_code=200 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
internal call GET 0s–10s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempt.count=1 resilienthttp.in_flight=0 resilienthttp.outcome=success resilienthttp.queue_wait=10 resilienthttp.retry_wait=0 server.address=api.test server.port=8443
  * 0s queued resilienthttp.attempt.number=1 resilienthttp.wait.cause=quota resilienthttp.wait.estimated=TIME
  client HTTP GET 10s–10s
    http.request.method=GET http.response.status_code=200 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			r := record()
			tr := row.transport
			if tr == nil {
				tr = &resilienthttp.Transport{}
			}
			tr.Base = row.base
			row.calls(t, r.Wrap(tr))
			synctest.Wait()
			r.allEnded(t)
			require.Equal(t, strings.TrimSpace(row.want), masked(r.tree()))
			require.NotContains(t, r.everything(t), "s3cr3t")
			r.clientSpansAreOnTheWire(t, row.base)
		})
	}
}

var (
	hashes    = regexp.MustCompile(`sha256:[0-9a-f]+`)
	dates     = regexp.MustCompile(`not before [^"]*`)
	starts    = regexp.MustCompile(`GET 10\.\d+s–10\.\d+s`)
	estimates = regexp.MustCompile(`wait.estimated=\S+`)
	fractions = regexp.MustCompile(`(queue_wait=|GET 0s–)(\d+)\.\d+`) // of a second: the random spread of calls
)

// masked replaces the random parts of a tree.
func masked(tree string) string {
	tree = hashes.ReplaceAllString(tree, "sha256:HASH")
	tree = dates.ReplaceAllString(tree, "not before TIME")
	tree = estimates.ReplaceAllString(tree, "wait.estimated=TIME")
	return strings.TrimSpace(starts.ReplaceAllString(fractions.ReplaceAllString(tree, "$1$2"), "GET 10s–10s"))
}

// clientSpansAreOnTheWire requires that each attempt has sent the traceparent of a CLIENT span,
// which is a child of the span of a call.
func (r *recording) clientSpansAreOnTheWire(t *testing.T, base *scripted) {
	t.Helper()
	calls, attempts := map[string]bool{}, map[string]bool{}
	for _, s := range r.spans.Ended() {
		if s.SpanKind().String() == "internal" {
			calls[s.SpanContext().SpanID().String()] = true
		}
	}
	for _, s := range r.spans.Ended() {
		if s.SpanKind().String() == "client" {
			require.True(t, calls[s.Parent().SpanID().String()], "the parent is the span of a call")
			attempts["00-"+s.SpanContext().TraceID().String()+"-"+s.SpanContext().SpanID().String()+"-01"] = true
		}
	}
	require.Len(t, base.parent, len(attempts))
	for _, parent := range base.parent {
		require.True(t, attempts[parent], parent)
	}
}
