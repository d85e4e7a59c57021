package resilientotel

import (
	"context"
	neturl "net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

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

	_, err := record().WrapEndpoints(nil).RoundTrip(get(t, t.Context(), "https://a.test/x"))
	require.ErrorContains(t, err, "Endpoints is empty")
}
