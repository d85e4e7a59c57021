package resilientotel

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
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
	for _, row := range []struct {
		name      string
		transport *resilienthttp.Transport
		base      http.RoundTripper
		want      []string
		errors    map[string]float64 // error.type of http.client.request.duration
	}{
		{
			name: "no hedge: no outcome", transport: hedge(), base: script(answer{status: 200}),
			want: []string{""}, errors: map[string]float64{"": 1},
		},
		{
			name: "hedge is first: won, and the original is canceled", transport: hedge(), base: script(answer{after: 5 * s, status: 200}, answer{after: s, status: 200}),
			want: []string{"lost", "won"}, errors: map[string]float64{"": 2},
		},
		{
			name: "original is first: won, and the hedge is canceled", transport: hedge(), base: script(answer{after: 2 * s, status: 200}, answer{after: 9 * s, status: 200}),
			want: []string{"won", "lost"}, errors: map[string]float64{"": 2},
		},
		{
			name: "loser ignores the cancellation and has a response: lost", transport: hedge(),
			base: faithful(answer{after: 3 * s, status: 200}, answer{after: s, status: 200}),
			want: []string{"lost", "won"}, errors: map[string]float64{"": 2},
		},
		{
			name: "winner is read by ClassifyBody: won", base: script(answer{after: 5 * s, status: 200}, answer{status: 200}),
			transport: &resilienthttp.Transport{
				Hedge: &resilienthttp.Hedge{Delay: s, MaxRatio: -1}, Policy: resilienthttp.Policy{ClassifyBody: func(a *resilienthttp.Attempt, _ []byte) resilienthttp.Verdict { return a.Verdict }},
			},
			want: []string{"lost", "won"}, errors: map[string]float64{"": 2},
		},
		{
			name: "hedge fails by itself: its own error, and lost", transport: hedge(), base: script(answer{after: 5 * s, status: 200}, answer{status: 503}),
			want: []string{"won", "lost 503 Error"}, errors: map[string]float64{"": 1, "503": 1},
		},
		{
			name: "all copies fail: lost, and the retry has no outcome", transport: hedge(), base: script(answer{after: 2 * s, status: 502}, answer{after: 3 * s, status: 503}, answer{status: 200}),
			want: []string{"lost 502 Error", "lost 503 Error", ""}, errors: map[string]float64{"": 1, "502": 1, "503": 1},
		},
		{
			name: "hedge on a slow attempt: both have an outcome", transport: &resilienthttp.Transport{}, base: script(answer{after: time.Hour}, answer{status: 200}),
			want: []string{"lost", "won"}, errors: map[string]float64{"": 2},
		},
		{
			name: "caller cancels all copies: canceled, and lost", transport: hedge(), base: script(answer{after: time.Hour}),
			want: []string{"lost canceled Error", "lost canceled Error", "lost canceled Error"}, errors: map[string]float64{"canceled": 3}, // the third is beside the slow two
		},
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

// T10: of 1,000 hedged requests over connections, none that lost is an error.
func TestHedgeOutcome_overConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, every = 1000, 24 // each 24th request is slow
		slow := faulttest.Reply{Status: 200, Body: "slow", Delay: 10 * time.Second}
		steps := make([]http.Handler, every)
		for i := range steps {
			steps[i] = faulttest.Reply{Status: 200, Body: "quick"}
		}
		steps[0] = slow
		var n atomic.Int64
		server := faulttest.NewInMemory(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			steps[n.Add(1)%every].ServeHTTP(w, r)
		}))
		defer server.Close()
		r := record()
		rt := r.Wrap(&resilienthttp.Transport{Base: server.Transport(), Hedge: &resilienthttp.Hedge{Delay: 100 * time.Millisecond, MaxRatio: -1}})
		for range calls {
			require.NoError(t, called(t, rt, get(t, t.Context(), server.URL)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.allEnded(t)
		outcomes := map[string]int{}
		for _, text := range attemptsOf(r) {
			outcomes[text]++
		}
		lost := outcomes["lost"]
		require.InDelta(t, calls/every, lost, 2)
		require.Equal(t, map[string]int{"": calls - lost, "won": lost, "lost": lost}, outcomes)
		for series := range r.metrics(t) {
			require.NotContains(t, series, "error.type")
		}
		rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	})
}
