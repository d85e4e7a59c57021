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
)

const url = "https://api.test:8443/v1/charges/s3cr3t?s3cr3t=1"

// TestT1Trees: one CLIENT span for each attempt, hedges among them, under the call's; none
// for a refusal. T2: the call's ends when RoundTrip returns. T3: no path and no query.
func TestT1Trees(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name      string
		transport *resilienthttp.Transport
		base      *scripted
		calls     func(t *testing.T, rt http.RoundTripper)
		want      string
	}{
		{
			name: "retried", base: script(answer{after: s, status: 503}, answer{after: s, err: errors.New("malformed HTTP response \"s3cr3t\"")}, answer{after: s, status: 201}),
			transport: &resilienthttp.Transport{Policy: every(2 * s), Breaker: never()},
			calls: func(t *testing.T, rt http.RoundTripper) {
				ctx := resilienthttp.WithIdempotencyKey(t.Context(), "s3cr3t key")
				require.NoError(t, called(t, rt, get(t, ctx, url)))
			},
			want: `
internal call GET 0s–7s
  http.request.method=GET http.response.status_code=201 resilienthttp.attempts=3 resilienthttp.idempotency_key_hash=sha256:HASH resilienthttp.outcome=success resilienthttp.queued=0 resilienthttp.sent=3 resilienthttp.waited=4 server.address=api.test server.port=8443
  * 1s retry resilienthttp.attempt=1 resilienthttp.reason=503 resilienthttp.wait=2
  * 4s retry resilienthttp.attempt=2 resilienthttp.reason=_OTHER resilienthttp.wait=2
  client HTTP GET 0s–1s Error ""
    error.type=503 http.request.method=GET http.response.status_code=503 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
  client HTTP GET 3s–4s Error "malformed HTTP response (not shown)"
    error.type=*errors.errorString http.request.method=GET http.request.resend_count=1 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
  client HTTP GET 6s–7s
    http.request.method=GET http.request.resend_count=2 http.response.status_code=201 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
		{
			name: "hedged", base: script(answer{after: 10 * s, status: 200}, answer{after: s, status: 200}),
			transport: &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: 2 * s}},
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
			},
			want: `
internal call GET 0s–3s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempts=2 resilienthttp.outcome=success resilienthttp.queued=0 resilienthttp.sent=3 resilienthttp.waited=0 server.address=api.test server.port=8443
  client HTTP GET 0s–3s Error "context canceled"
    error.type=*errors.errorString http.request.method=GET network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
  client HTTP GET 2s–3s
    http.request.method=GET http.request.resend_count=1 http.response.status_code=200 network.protocol.version=1.1 resilienthttp.hedge=true server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
		{
			name: "refused by the breaker", base: script(answer{status: 503}),
			transport: &resilienthttp.Transport{
				Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Cooldown: time.Hour},
				Scope: func(*http.Request) string { return "bank" },
			},
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
				time.Sleep(s)
				require.ErrorIs(t, called(t, rt, get(t, t.Context(), url)), resilienthttp.ErrBreakerOpen)
			},
			want: `
internal call GET 0s–0s Error ""
  error.type=503 http.request.method=GET http.response.status_code=503 resilienthttp.attempts=1 resilienthttp.outcome=failed resilienthttp.queued=0 resilienthttp.scope=bank resilienthttp.sent=0 resilienthttp.stop=max_attempts resilienthttp.waited=0 server.address=api.test server.port=8443
  client HTTP GET 0s–0s Error ""
    error.type=503 http.request.method=GET http.response.status_code=503 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
internal call GET 1s–1s Error "resilienthttp: circuit breaker is open; not before TIME"
  error.type=breaker_open http.request.method=GET resilienthttp.attempts=0 resilienthttp.outcome=refused resilienthttp.queued=0 resilienthttp.scope=bank resilienthttp.sent=0 resilienthttp.waited=0 server.address=api.test server.port=8443
  * 1s refused resilienthttp.gate=breaker
`,
		},
		{
			name: "refused by the rate limit", base: script(answer{status: 200}),
			transport: &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1, MaxWait: -1}},
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
				time.Sleep(s)
				require.ErrorIs(t, called(t, rt, get(t, t.Context(), url)), resilienthttp.ErrRateLimited)
			},
			want: `
internal call GET 0s–0s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempts=1 resilienthttp.outcome=success resilienthttp.queued=0 resilienthttp.sent=0 resilienthttp.waited=0 server.address=api.test server.port=8443
  client HTTP GET 0s–0s
    http.request.method=GET http.response.status_code=200 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
internal call GET 1s–1s Error "resilienthttp: rate limited; not before TIME"
  error.type=rate_limited http.request.method=GET resilienthttp.attempts=0 resilienthttp.outcome=refused resilienthttp.queued=0 resilienthttp.sent=0 resilienthttp.waited=0 server.address=api.test server.port=8443
  * 1s refused resilienthttp.gate=rate_limit
`,
		},
		{
			name: "cancelled under way", base: script(answer{after: time.Hour}),
			calls: func(t *testing.T, rt http.RoundTripper) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*s, cancel)
				require.ErrorIs(t, called(t, rt, get(t, ctx, url)), context.Canceled)
			},
			want: `
internal call GET 0s–3s Error "resilienthttp: context canceled (attempt 1)"
  error.type=canceled http.request.method=GET resilienthttp.attempts=1 resilienthttp.outcome=canceled resilienthttp.queued=0 resilienthttp.sent=3 resilienthttp.waited=0 server.address=api.test server.port=8443
  client HTTP GET 0s–3s Error "context canceled"
    error.type=*errors.errorString http.request.method=GET network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
		{
			name: "cancelled before it began", base: script(answer{status: 200}),
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
			name: "ten seconds in line", base: script(answer{status: 200, header: []string{"X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10"}}),
			calls: func(t *testing.T, rt http.RoundTripper) {
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
				require.NoError(t, called(t, rt, get(t, t.Context(), url)))
			},
			want: `
internal call GET 0s–0s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempts=1 resilienthttp.outcome=success resilienthttp.queued=0 resilienthttp.sent=0 resilienthttp.waited=0 server.address=api.test server.port=8443
  client HTTP GET 0s–0s
    http.request.method=GET http.response.status_code=200 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
internal call GET 0s–10s
  http.request.method=GET http.response.status_code=200 resilienthttp.attempts=1 resilienthttp.outcome=success resilienthttp.queued=10 resilienthttp.sent=0 resilienthttp.waited=0 server.address=api.test server.port=8443
  * 0s queued resilienthttp.attempt=1 resilienthttp.for=quota resilienthttp.likely_wait=TIME
  client HTTP GET 10s–10s
    http.request.method=GET http.response.status_code=200 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

var (
	hashes    = regexp.MustCompile(`sha256:[0-9a-f]+`)
	dates     = regexp.MustCompile(`not before [^"]*`)
	starts    = regexp.MustCompile(`GET 10\.\d+s–10\.\d+s`)
	likely    = regexp.MustCompile(`likely_wait=\S+`)
	fractions = regexp.MustCompile(`(queued=|GET 0s–)(\d+)\.\d+`) // of a second, by which calls are spread
)

// masked is a tree without what chance decides.
func masked(tree string) string {
	tree = hashes.ReplaceAllString(tree, "sha256:HASH")
	tree = dates.ReplaceAllString(tree, "not before TIME")
	tree = likely.ReplaceAllString(tree, "likely_wait=TIME")
	return strings.TrimSpace(starts.ReplaceAllString(fractions.ReplaceAllString(tree, "$1$2"), "GET 10s–10s"))
}

// clientSpansAreOnTheWire: each attempt has sent the traceparent of a CLIENT span, which is
// a child of a call's.
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
			require.True(t, calls[s.Parent().SpanID().String()], "it is a child of the call's")
			attempts["00-"+s.SpanContext().TraceID().String()+"-"+s.SpanContext().SpanID().String()+"-01"] = true
		}
	}
	require.Len(t, base.parent, len(attempts))
	for _, parent := range base.parent {
		require.True(t, attempts[parent], parent)
	}
}
