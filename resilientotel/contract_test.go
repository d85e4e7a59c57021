package resilientotel

import (
	"context"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// T6: a wrapped Transport obeys the rules of a Transport.
func TestConformance(t *testing.T) {
	for name, transport := range map[string]func(http.RoundTripper) *resilienthttp.Transport{
		"zero": func(base http.RoundTripper) *resilienthttp.Transport { return &resilienthttp.Transport{Base: base} },
		"all on": func(base http.RoundTripper) *resilienthttp.Transport {
			return &resilienthttp.Transport{
				Base: base, Hedge: &resilienthttp.Hedge{}, OwnsRetries: true, RateLimit: &resilienthttp.RateLimit{Limit: 1e6, Burst: 1000},
				Trace: &resilienthttp.Trace{CallDone: func(*resilienthttp.Call) {}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testConformance(t, func(base http.RoundTripper) http.RoundTripper { return record().Wrap(transport(base)) })
		})
		t.Run(name+", globals", func(t *testing.T) {
			testConformance(t, func(base http.RoundTripper) http.RoundTripper { return new(Instrumentation).Wrap(transport(base)) })
		})
	}
}

// The request of a response can be sent again. Each time it is a new call, which does not keep
// the earlier ones alive.
func TestResponseRequestSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		rt := r.Wrap(&resilienthttp.Transport{Base: script(answer{status: 200})})
		type callersKey struct{}
		req := get(t, context.WithValue(t.Context(), callersKey{}, "kept"), url)
		for range 3 {
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			req = resp.Request
			require.Equal(t, "kept", req.Context().Value(callersKey{}))
		}
		for _, s := range r.spans.Ended() {
			if s.SpanKind() == trace.SpanKindInternal {
				require.False(t, s.Parent().IsValid(), "the span has no parent")
			}
		}
		last, _ := req.Context().Value(callKey{}).(*call)
		require.NotNil(t, last)
		require.Nil(t, last.caller.Value(callKey{}), "the caller's context")

		// A context that is derived from it is the caller's.
		derived := context.WithValue(req.Context(), callersKey{}, "newer")
		resp, err := rt.RoundTrip(req.WithContext(derived))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "newer", resp.Request.Context().Value(callersKey{}))
	})
}

// A Base that is an otelhttp.Transport creates the CLIENT spans with its own options.
func TestBaseIsOtelhttp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		own := otelhttp.NewTransport(script(answer{status: 503}, answer{status: 200}), otelhttp.WithTracerProvider(r.TracerProvider),
			otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.URL.Path }))
		require.NoError(t, called(t, r.Wrap(&resilienthttp.Transport{Base: own}), get(t, t.Context(), "http://api.test/v1")))
		names := map[string]int{}
		for _, s := range r.spans.Ended() {
			names[s.Name()]++
		}
		require.Equal(t, map[string]int{"call GET": 1, "/v1": 2}, names)
		near(t, 1.0, r.metrics(t)["resilienthttp.client.retries{resilienthttp.retry.reason=503 resilienthttp.scope=api.test}"])
	})
}

func TestWrap(t *testing.T) {
	bubble.Run(t, "a second time: the same RoundTripper", func(t *testing.T) {
		r, tr := record(), &resilienthttp.Transport{Base: script(answer{status: 200})}
		first := r.Wrap(tr)
		require.Same(t, first, r.Wrap(tr))
		require.NoError(t, called(t, r.Wrap(tr), get(t, t.Context(), url)))
		require.Len(t, r.spans.Ended(), 2)
		near(t, 1.0, total(r.metrics(t), "#resilienthttp.client.call.duration"))
	})
	t.Run("nil: a new Transport", func(t *testing.T) {
		rt := record().Wrap(nil)
		require.IsType(t, &resilienthttp.Transport{}, rt.(interface{ Unwrap() http.RoundTripper }).Unwrap())
	})
	t.Run("Base: kept below otelhttp", func(t *testing.T) {
		for name, base := range map[string]http.RoundTripper{"nil": nil, "set": &http.Transport{}} {
			tr := &resilienthttp.Transport{Base: base}
			record().Wrap(tr)
			inner := tr.Base.(interface{ Unwrap() http.RoundTripper }).Unwrap()
			if base == nil {
				require.IsType(t, &resilienthttp.Connections{}, inner, name)
			} else {
				require.Same(t, base, inner, name)
			}
		}
	})
	bubble.Run(t, "Trace: its hooks run after ours", func(t *testing.T) {
		var ran []string
		hook := func(name string) { ran = append(ran, name) }
		r := record()
		tr := &resilienthttp.Transport{
			Base: script(answer{status: 503}, answer{status: 503}, answer{status: 200}), RateLimit: &resilienthttp.RateLimit{Limit: 0.5, Burst: 1},
			Breaker: &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 2, Cooldown: 1e9, Probes: 1, MaxWait: -1}, Policy: every(1e9),
			Trace: &resilienthttp.Trace{
				AttemptStart: func(*resilienthttp.Attempt) { hook("start") }, AttemptDone: func(*resilienthttp.Attempt) { hook("done") },
				RetryWait: func(*resilienthttp.Attempt) { hook("wait") }, QueueWait: func(*resilienthttp.Attempt) { hook("queued") },
				Rejected: func(*resilienthttp.Call) { hook("rejected") }, CallDone: func(*resilienthttp.Call) { hook("call") },
				BreakerChange: func(resilienthttp.BreakerChange) {
					require.Positive(t, total(r.metrics(t), "resilienthttp.client.breaker.transitions"))
					hook("breaker")
				},
			},
		}
		_ = called(t, r.Wrap(tr), get(t, t.Context(), url))
		_ = called(t, r.Wrap(tr), get(t, t.Context(), url))
		for _, want := range []string{"start", "done", "wait", "queued", "call", "breaker", "rejected"} {
			require.Contains(t, ran, want)
		}
	})
	bubble.Run(t, "the Transport is called without its wrapper: metrics and CLIENT spans", func(t *testing.T) {
		r, tr := record(), &resilienthttp.Transport{Base: script(answer{status: 503}, answer{status: 200}), RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}}
		r.Wrap(tr)
		require.NoError(t, called(t, tr, get(t, t.Context(), url)))
		near(t, 1.0, total(r.metrics(t), "#resilienthttp.client.call.duration"))
		r.allEnded(t)
		require.Len(t, r.spans.Ended(), 2, "the attempts")
	})
}

// Unregister ends the gauges and keeps nothing.
func TestUnregister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := record(), &resilienthttp.Transport{Base: script(answer{status: 200})}
		rt := r.Wrap(tr)
		require.NoError(t, called(t, rt, get(t, t.Context(), url)))
		require.Contains(t, r.metrics(t), "resilienthttp.client.active_attempts{resilienthttp.scope=api.test:8443}")
		r.Unregister()
		r.Unregister()
		require.NoError(t, called(t, rt, get(t, t.Context(), url)))
		all := r.metrics(t)
		require.Zero(t, total(all, "resilienthttp.client.breaker.state"))
		require.NotContains(t, all, "resilienthttp.client.breaker.state{resilienthttp.scope=api.test:8443}")
		near(t, 2.0, total(all, "#resilienthttp.client.call.duration"), "calls are still recorded")
		require.Empty(t, r.wrapped)

		other := r.Wrap(&resilienthttp.Transport{Base: script(answer{status: 200})})
		require.NoError(t, called(t, other, get(t, t.Context(), "http://other.test/")))
		require.Contains(t, r.metrics(t), "resilienthttp.client.active_attempts{resilienthttp.scope=other.test}")
	})
}

// Collecting and registering take the SDK's lock and ours, and must not deadlock.
func TestUnregister_whileCollecting(t *testing.T) {
	r := record()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				rt := r.Wrap(&resilienthttp.Transport{Base: script(answer{status: 200})})
				if resp, err := rt.RoundTrip(httptest.NewRequest(http.MethodGet, url, nil)); err == nil {
					_ = resp.Body.Close()
				}
				r.Unregister()
			}
		})
		all.Go(func() {
			var collected metricdata.ResourceMetrics
			for range 400 {
				_ = r.reader.Collect(context.Background(), &collected)
			}
		})
	}
	all.Wait()
	require.Empty(t, r.wrapped)
}

// The Options of the caller apply to the attempts. The providers and the propagator of the
// Instrumentation replace theirs. T3: what the options do not export is not exported.
func TestOptions(t *testing.T) {
	byPath := otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + r.URL.Path })
	for _, row := range []struct {
		name    string
		options []otelhttp.Option
		check   func(t *testing.T, r *recording, base *scripted)
	}{
		{
			name:    "filter: no CLIENT span and no otelhttp metric, and the call is recorded",
			options: []otelhttp.Option{otelhttp.WithFilter(func(*http.Request) bool { return false })},
			check: func(t *testing.T, r *recording, base *scripted) {
				require.Len(t, r.spans.Ended(), 1)
				all := r.metrics(t)
				require.Zero(t, total(all, "#http.client.request.duration"))
				near(t, 1, total(all, "#"+metricCallDuration))
				require.Equal(t, []string{"", ""}, base.parent)
			},
		},
		{
			name: "span names: as formatted", options: []otelhttp.Option{byPath},
			check: func(t *testing.T, r *recording, _ *scripted) {
				require.Equal(t, "GET /v1/items", r.spans.Ended()[0].Name())
				require.Equal(t, "https://api.test:8443", valueOf(r.spans.Ended()[0], "url.full"))
			},
		},
		{
			name: "metric attributes: added to otelhttp's metrics",
			options: []otelhttp.Option{otelhttp.WithMetricAttributesFn(func(r *http.Request) []attribute.KeyValue { //nolint:staticcheck // callers may use it
				return []attribute.KeyValue{attribute.String("route", r.URL.Path)}
			})},
			check: func(t *testing.T, r *recording, _ *scripted) {
				const rest = " http.request.method=GET http.response.status_code=503 network.protocol.name=http network.protocol.version=1.1 route=/v1/items server.address=api.test server.port=8443 url.scheme=https}"
				near(t, 1, r.metrics(t)["#http.client.request.duration{error.type=503"+rest])
			},
		},
		{
			name: "span options: added", options: []otelhttp.Option{otelhttp.WithSpanOptions(trace.WithAttributes(attribute.String("team", "a")))},
			check: func(t *testing.T, r *recording, _ *scripted) {
				require.Equal(t, "a", valueOf(r.spans.Ended()[0], "team"))
				require.Equal(t, "client", r.spans.Ended()[0].SpanKind().String())
			},
		},
		{
			name: "providers and propagator: the Instrumentation's",
			options: []otelhttp.Option{
				otelhttp.WithTracerProvider(sdktrace.NewTracerProvider()), otelhttp.WithMeterProvider(metric.NewMeterProvider()), otelhttp.WithPropagators(propagation.Baggage{}),
			},
			check: func(t *testing.T, r *recording, base *scripted) {
				require.Len(t, r.spans.Ended(), 3)
				near(t, 2, total(r.metrics(t), "#http.client.request.duration"))
				r.clientSpansAreOnTheWire(t, base)
			},
		},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			r, base := record(), script(answer{status: 503}, answer{status: 200})
			r.Options = row.options
			rt := r.Wrap(&resilienthttp.Transport{Base: base, Policy: every(time.Second)})
			require.NoError(t, called(t, rt, get(t, t.Context(), "https://api.test:8443/v1/items?s3cr3t=1")))
			r.allEnded(t)
			row.check(t, r, base)
			require.NotContains(t, r.everything(t), "s3cr3t")
		})
	}
	bubble.Run(t, "no propagator of the Instrumentation: the options'", func(t *testing.T) {
		r, base := record(), script(answer{status: 200})
		r.Propagator, r.Options = nil, []otelhttp.Option{otelhttp.WithPropagators(propagation.TraceContext{})}
		require.NoError(t, called(t, r.Wrap(&resilienthttp.Transport{Base: base}), get(t, t.Context(), url)))
		r.clientSpansAreOnTheWire(t, base)
	})
}

// T1: the span of a call is around a list of endpoints, so the attempts at both are below it. The metrics
// count the call at the endpoint that responded.
func TestWrapEndpoints(t *testing.T) {
	for name, wrapped := range map[string]bool{"once": false, "its Transport is wrapped, too": true} {
		bubble.Run(t, name, func(t *testing.T) {
			r, base := record(), script(answer{after: time.Second, status: 503}, answer{after: time.Second, status: 200})
			first, err := neturl.Parse("https://a.test")
			require.NoError(t, err)
			second, err := neturl.Parse("https://b.test")
			require.NoError(t, err)
			list := &endpoints.Transport{
				Transport: &resilienthttp.Transport{Base: base},
				Endpoints: []endpoints.Endpoint{{Name: "a", URL: first}, {Name: "b", URL: second}},
			}
			if wrapped {
				_ = r.Wrap(list.Transport)
			}
			require.NoError(t, called(t, r.WrapEndpoints(list), get(t, context.Background(), "https://a.test/x")))
			synctest.Wait()
			r.allEnded(t)
			spans := r.spans.Ended()
			require.Len(t, spans, 3, r.tree())
			slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return strings.Compare(b.Name(), a.Name()) })
			require.Equal(t, "call GET", spans[0].Name())
			for _, attempt := range spans[1:] {
				require.Equal(t, spans[0].SpanContext().SpanID(), attempt.Parent().SpanID())
			}
			require.Contains(t, r.tree(), "retry.reason=503")
			// The scope of retries is the endpoint to which the call moved.
			near(t, 1.0, r.metrics(t)["resilienthttp.client.retries{resilienthttp.retry.reason=503 resilienthttp.scope=b.test#b}"])
		})
	}
}

// A nil Transport of the list becomes one that is instrumented.
func TestWrapEndpoints_setsTransport(t *testing.T) {
	list := &endpoints.Transport{}
	_ = record().WrapEndpoints(list)
	require.NotNil(t, list.Transport)
	require.NotNil(t, list.Transport.Trace)

	require.ErrorContains(t, errOf(record().WrapEndpoints(nil).RoundTrip(get(t, t.Context(), "https://a.test/x"))), "Endpoints is empty")
}
