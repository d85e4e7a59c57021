package resilientotel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

const url = "https://api.test:8443/v1/charges/s3cr3t?s3cr3t=1"

// T1: each attempt is one CLIENT span below the span of its call. T2: the span of the call ends
// when RoundTrip returns. T3: no path and no query.
func TestSpanTrees(t *testing.T) {
	const s = time.Second
	once := func(t *testing.T, rt http.RoundTripper) { require.NoError(t, called(t, rt, get(t, t.Context(), url))) }
	twice := func(pause time.Duration, second error) func(*testing.T, http.RoundTripper) {
		return func(t *testing.T, rt http.RoundTripper) {
			once(t, rt)
			time.Sleep(pause)
			require.ErrorIs(t, called(t, rt, get(t, t.Context(), url)), second)
		}
	}
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
  client HTTP GET 3s–4s Error "malformed HTTP response"
    error.type=_OTHER http.request.method=GET http.request.resend_count=1 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
  client HTTP GET 6s–7s
    http.request.method=GET http.request.resend_count=2 http.response.status_code=201 network.protocol.version=1.1 server.address=api.test server.port=8443 url.full=https://api.test:8443
`,
		},
		{
			name: "hedge: both copies have spans, and the lost one is no error", base: script(answer{after: 10 * s, status: 200}, answer{after: s, status: 200}),
			transport: &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: 2 * s}},
			calls:     once,
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
			calls: twice(s, resilienthttp.ErrBreakerOpen),
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
			calls:     twice(s, resilienthttp.ErrRateLimited),
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
			calls: twice(0, nil),
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
			tr := cmp.Or(row.transport, &resilienthttp.Transport{})
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

// attemptsOf returns the CLIENT spans in the order of their starts, each as its hedge outcome,
// error.type and status.
func attemptsOf(r *recording) []string {
	texts := []string{}
	for _, s := range r.spans.Started() {
		if span, ok := s.(sdktrace.ReadOnlySpan); ok && s.SpanKind().String() == "client" {
			text := valueOf(span, keyHedgeOutcome) + " " + valueOf(span, "error.type")
			if span.Status().Code != codes.Unset {
				text += " " + span.Status().Code.String()
			}
			texts = append(texts, strings.Join(strings.Fields(text), " "))
		}
	}
	return texts
}

func valueOf(span sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range span.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// T10: a request that lost against another copy is no error, in its span and in otelhttp's
// metrics. The copies of a hedged attempt have resilienthttp.hedge.outcome, all others do not.
func TestHedgeOutcome(t *testing.T) {
	const s = time.Second
	hedge := func() *resilienthttp.Transport {
		return &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s, MaxRatio: -1}, Breaker: never()}
	}
	read := hedge()
	read.Policy.ClassifyBody = func(a *resilienthttp.Attempt, _ []byte) resilienthttp.Verdict { return a.Verdict }
	for _, row := range []struct {
		name      string
		transport *resilienthttp.Transport
		base      http.RoundTripper
		want      []string
		errors    map[string]float64 // error.type of http.client.request.duration
	}{
		{"no hedge: no outcome", hedge(), script(answer{status: 200}), []string{""}, map[string]float64{"": 1}},
		{"hedge is first: won, and the original is canceled", hedge(), script(answer{after: 5 * s, status: 200}, answer{after: s, status: 200}),
			[]string{"lost", "won"}, map[string]float64{"": 2}},
		{"original is first: won, and the hedge is canceled", hedge(), script(answer{after: 2 * s, status: 200}, answer{after: 9 * s, status: 200}),
			[]string{"won", "lost"}, map[string]float64{"": 2}},
		{"loser ignores the cancellation and has a response: lost", hedge(), faithful(answer{after: 3 * s, status: 200}, answer{after: s, status: 200}),
			[]string{"lost", "won"}, map[string]float64{"": 2}},
		{"winner is read by ClassifyBody: won", read, script(answer{after: 5 * s, status: 200}, answer{status: 200}),
			[]string{"lost", "won"}, map[string]float64{"": 2}},
		{"hedge fails by itself: its own error, and lost", hedge(), script(answer{after: 5 * s, status: 200}, answer{status: 503}),
			[]string{"won", "lost 503 Error"}, map[string]float64{"": 1, "503": 1}},
		{"all copies fail: lost, and the retry has no outcome", hedge(), script(answer{after: 2 * s, status: 502}, answer{after: 3 * s, status: 503}, answer{status: 200}),
			[]string{"lost 502 Error", "lost 503 Error", ""}, map[string]float64{"": 1, "502": 1, "503": 1}},
		{"hedge on a slow attempt: both have an outcome", &resilienthttp.Transport{}, script(answer{after: time.Hour}, answer{status: 200}),
			[]string{"lost", "won"}, map[string]float64{"": 2}},
		{"caller cancels all copies: canceled, and lost", hedge(), script(answer{after: time.Hour}), // the third is beside the slow two
			[]string{"lost canceled Error", "lost canceled Error", "lost canceled Error"}, map[string]float64{"canceled": 3}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			r := record()
			row.transport.Base = row.base
			rt := r.Wrap(row.transport)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Minute, cancel)
			_ = called(t, rt, get(t, ctx, url))
			time.Sleep(time.Hour)
			synctest.Wait()
			r.allEnded(t)
			require.Equal(t, row.want, attemptsOf(r))
			got := map[string]float64{}
			for series, n := range r.metrics(t) {
				if rest, ok := strings.CutPrefix(series, "#http.client.request.duration{"); ok {
					got[errorTypeIn(rest)] += n
				}
			}
			require.Equal(t, row.errors, got)
		})
	}
}

// errorTypeIn returns the error.type of a series.
func errorTypeIn(series string) string {
	_, value, ok := strings.Cut(series, "error.type=")
	if !ok {
		return ""
	}
	return strings.TrimRight(strings.Fields(value)[0], "}")
}

// faithful returns a script that ignores the context of requests.
func faithful(answers ...answer) http.RoundTripper {
	base := script(answers...)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		if resp != nil {
			resp.Request, resp.Body = r, io.NopCloser(strings.NewReader("text"))
		}
		return resp, err
	})
}

// T2: no span stays open after a panic of a hook, a broken Base, a 101 or a cancellation.
func TestNoOpenSpan(t *testing.T) {
	fail := func() { panic("boom") }
	failing := script(answer{status: 503}, answer{status: 200})
	for name, row := range map[string]struct {
		transport *resilienthttp.Transport
		ctx       func(context.Context) context.Context
		panics    bool
		call      func(t *testing.T, rt http.RoundTripper, req *http.Request)
	}{
		"AttemptStart panics": {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{AttemptStart: func(*resilienthttp.Attempt) { fail() }}}, panics: true},
		"AttemptDone panics":  {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{AttemptDone: func(*resilienthttp.Attempt) { fail() }}}, panics: true},
		"RetryWait panics":    {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{RetryWait: func(*resilienthttp.Attempt) { fail() }}}, panics: true},
		"CallDone panics":     {transport: &resilienthttp.Transport{Trace: &resilienthttp.Trace{CallDone: func(*resilienthttp.Call) { fail() }}}, panics: true},
		"a context's hook panics": {ctx: func(ctx context.Context) context.Context {
			return resilienthttp.WithTrace(ctx, &resilienthttp.Trace{AttemptDone: func(*resilienthttp.Attempt) { fail() }})
		}, panics: true},
		"Classify panics": {transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { panic("boom") }}}, panics: true},
		"Base panics":     {transport: &resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { panic("boom") })}, panics: true},
		"Base panics in a hedge": {transport: &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: time.Second}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			if _, hedge := resilienthttp.AttemptNumber(r.Context()); hedge {
				panic("boom")
			}
			time.Sleep(2 * time.Second)
			return respond(r, 200), nil
		})}},
		"Base ends the goroutine": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil })},
			call: func(_ *testing.T, rt http.RoundTripper, req *http.Request) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = rt.RoundTrip(req)
				}()
				<-done
			},
		},
		"Base returns nothing": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })},
			call:      func(t *testing.T, rt http.RoundTripper, req *http.Request) { require.Error(t, called(t, rt, req)) },
		},
		"Base returns both": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) { return respond(r, 200), io.EOF })},
			call:      func(t *testing.T, rt http.RoundTripper, req *http.Request) { require.Error(t, called(t, rt, req)) },
		},
		"no body at all": {transport: &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := respond(r, 200)
			resp.Body, resp.ContentLength = nil, 5
			return resp, nil
		})}},
		"an upgraded connection": {
			transport: &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				resp := respond(r, 101, "Upgrade", "x")
				resp.Body = &conn{}
				return resp, nil
			})},
			call: func(t *testing.T, rt http.RoundTripper, req *http.Request) {
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, errOf(resp.Body.(io.Writer).Write([]byte("s3cr3t"))))
				require.NoError(t, resp.Body.Close())
			},
		},
		"no URL": {call: func(t *testing.T, rt http.RoundTripper, req *http.Request) {
			req.URL = nil
			require.Error(t, called(t, rt, req))
		}},
		"no request": {call: func(t *testing.T, rt http.RoundTripper, _ *http.Request) {
			require.Error(t, errOf(rt.RoundTrip(nil)))
		}},
		"canceled in the queue": {
			transport: &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}},
			call: func(t *testing.T, rt http.RoundTripper, req *http.Request) {
				require.NoError(t, called(t, rt, req))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				require.ErrorIs(t, called(t, rt, req.WithContext(ctx)), context.Canceled)
			},
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r, tr := record(), cmp.Or(row.transport, &resilienthttp.Transport{})
			if tr.Base == nil {
				failing.parent = nil
				tr.Base = failing
			}
			rt, ctx := r.Wrap(tr), t.Context()
			if row.ctx != nil {
				ctx = row.ctx(ctx)
			}
			req := get(t, ctx, url)
			switch {
			case row.call != nil:
				row.call(t, rt, req)
			case row.panics:
				require.Panics(t, func() { _, _ = rt.RoundTrip(req) })
			default:
				require.NoError(t, called(t, rt, req))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			r.allEnded(t)
			require.NotContains(t, r.everything(t), "s3cr3t")
		})
	}
}

// conn is the body of a 101.
type conn struct{ bytes.Buffer }

func (*conn) Close() error { return nil }

// The result of a broken Base is that of a Transport that is not wrapped.
func TestBrokenBase(t *testing.T) {
	for name, base := range map[string]roundTripper{
		"nothing": func(*http.Request) (*http.Response, error) { return nil, nil },
		"no body": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: 5, Request: r}, nil
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			_, bare := (&resilienthttp.Transport{Base: base}).RoundTrip(get(t, t.Context(), url))
			_, wrapped := record().Wrap(&resilienthttp.Transport{Base: base}).RoundTrip(get(t, t.Context(), url))
			require.Equal(t, fmt.Sprint(bare), fmt.Sprint(wrapped))
		})
	}
}

// T2: no span stays open after random scripts of servers and clients.
func TestNoOpenSpan_randomScripts(t *testing.T) {
	scripts, each := 2000, 50
	if raceEnabled || testing.Short() {
		scripts = 200
	}
	for n := range scripts / each {
		synctest.Test(t, func(t *testing.T) {
			for i := range each {
				randomScript(t, rand.New(rand.NewPCG(uint64(n), uint64(i))))
			}
		})
	}
}

func randomScript(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	steps := make([]http.Handler, 1+rnd.IntN(6))
	for i := range steps {
		steps[i] = randomReply(rnd)
	}
	server := faulttest.NewInMemory(nil, faulttest.Sequence(steps...))
	defer server.Close()
	r := record()
	tr := &resilienthttp.Transport{Base: server.Transport(), Policy: resilienthttp.Policy{MaxAttempts: rnd.IntN(5) - 1, ReadTimeout: time.Second}}
	if rnd.IntN(2) == 0 {
		tr.Policy.AttemptTimeout = time.Duration(1+rnd.IntN(5)) * time.Second
	}
	if rnd.IntN(3) == 0 {
		tr.Hedge = &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1}
	}
	if rnd.IntN(4) == 0 {
		tr.RateLimit = &resilienthttp.RateLimit{Limit: 1, Burst: 1}
	}
	if rnd.IntN(8) == 0 {
		tr.Trace = &resilienthttp.Trace{AttemptDone: func(*resilienthttp.Attempt) {
			if rnd.IntN(2) == 0 {
				panic("boom")
			}
		}}
	}
	rt, calls := r.Wrap(tr), 1+rnd.IntN(3)
	for range calls {
		randomCall(t, rnd, rt, server.URL)
	}
	time.Sleep(time.Minute) // bodies that are read in the background end
	synctest.Wait()
	r.allEnded(t)
	all := 0
	for _, s := range r.spans.Ended() {
		if s.SpanKind().String() == "internal" {
			all++
		} else {
			require.True(t, s.Parent().SpanID().IsValid())
		}
	}
	require.Equal(t, calls, all)
	rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

func randomReply(rnd *rand.Rand) http.Handler {
	statuses := []int{200, 200, 201, 204, 301, 404, 409, 429, 500, 502, 503, 529}
	reply := faulttest.Reply{Status: statuses[rnd.IntN(len(statuses))], Body: strings.Repeat("x", rnd.IntN(200))}
	if reply.Status == http.StatusNoContent {
		reply.Body = ""
	}
	if rnd.IntN(3) == 0 {
		reply.Fault = faulttest.Fault(rnd.IntN(int(faulttest.Hang) + 1))
	}
	if rnd.IntN(3) == 0 {
		reply.Delay = time.Duration(rnd.IntN(8000)) * time.Millisecond
	}
	if reply.Status >= 429 && rnd.IntN(2) == 0 {
		reply.RetryAfter = time.Duration(1+rnd.IntN(3)) * time.Second
	}
	return reply
}

func randomCall(t *testing.T, rnd *rand.Rand, rt http.RoundTripper, to string) {
	t.Helper()
	defer func() { _ = recover() }() // from the hook
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(30))*time.Second)
	defer cancel()
	if rnd.IntN(4) == 0 {
		time.AfterFunc(time.Duration(rnd.IntN(5000))*time.Millisecond, cancel)
	}
	method, body := http.MethodGet, io.Reader(nil)
	if rnd.IntN(2) == 0 {
		method, body = http.MethodPost, strings.NewReader(strings.Repeat("y", rnd.IntN(1000)))
	}
	req, err := http.NewRequestWithContext(ctx, method, to+"/s3cr3t", body)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		_, ok := errors.AsType[*resilienthttp.Error](err)
		require.True(t, ok, "%T", err)
		return
	}
	if rnd.IntN(2) == 0 {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	require.NoError(t, resp.Body.Close())
}
