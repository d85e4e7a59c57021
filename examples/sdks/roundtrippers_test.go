package sdks

import (
	"context"
	"net/http"
	"testing"

	"github.com/gregjones/httpcache"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

func get(t *testing.T, transport http.RoundTripper, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	close1(t, resp, err)
	return resp
}

// One token is used for all attempts of a call, above and below the Transport. Below, an invalid
// client is an error without a retry.
func TestOAuth2(t *testing.T) {
	for _, row := range []struct {
		name  string
		above bool
	}{{"above", true}, {"below", false}} {
		t.Run(row.name, func(t *testing.T) {
			tokens := start(t, faulttest.OK(`{"access_token":"t1","token_type":"Bearer","expires_in":3600}`))
			api := start(t, faulttest.Sequence(faulttest.Status(503), faulttest.OK("fine")))
			config := clientcredentials.Config{ClientID: "me", ClientSecret: "s", TokenURL: tokens.URL}
			ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: plain(nil)})
			source := config.TokenSource(ctx)
			var transport http.RoundTripper = &oauth2.Transport{Source: source, Base: plain(nil)}
			if !row.above {
				transport = plain(&oauth2.Transport{Source: source})
			}
			assert.Equal(t, 200, get(t, transport, api.URL).StatusCode)
			tokens.AssertRequests(t, 1)
			api.AssertAttempts(t, 2)
			for _, r := range api.Requests() {
				assert.Equal(t, "Bearer t1", r.Header.Get("Authorization"))
			}
		})
	}
	t.Run("below, invalid client: one token request", func(t *testing.T) {
		tokens := start(t, faulttest.Reply{Status: 401, Body: `{"error":"invalid_client"}`})
		api := start(t, faulttest.OK("fine"))
		config := clientcredentials.Config{ClientID: "me", ClientSecret: "s", TokenURL: tokens.URL, AuthStyle: oauth2.AuthStyleInHeader}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, nil)
		require.NoError(t, err)
		resp, err := plain(&oauth2.Transport{Source: config.TokenSource(t.Context())}).RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		require.Error(t, err)
		tokens.AssertRequests(t, 1)
		api.AssertRequests(t, 0)
	})
}

// A cached response needs no attempt.
func TestCache_above(t *testing.T) {
	api := start(t, faulttest.Sequence(
		faulttest.Status(503),
		faulttest.Reply{Body: "fine", Header: http.Header{"Cache-Control": {"max-age=3600"}}},
	))
	cache := httpcache.NewMemoryCacheTransport()
	cache.Transport = plain(nil)
	client := &http.Client{Transport: cache}
	for i := range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		body := make([]byte, 4)
		_, err = resp.Body.Read(body)
		for err == nil { // the cache stores only bodies that were read to their end
			_, err = resp.Body.Read(make([]byte, 1))
		}
		close1(t, resp, nil)
		assert.Equal(t, "fine", string(body), i)
	}
	api.AssertRequests(t, 2)
}

// Above the Transport, otelhttp makes one span for the call, and below one for each attempt.
func TestOTelHTTP(t *testing.T) {
	for _, row := range []struct {
		name  string
		above bool
		spans int
	}{{"above", true, 1}, {"below", false, 2}} {
		t.Run(row.name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			provider := otelhttp.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
			api := start(t, faulttest.Sequence(faulttest.Status(503), faulttest.OK("fine")))
			var transport http.RoundTripper = otelhttp.NewTransport(plain(nil), provider)
			if !row.above {
				transport = plain(otelhttp.NewTransport(http.DefaultTransport, provider))
			}
			assert.Equal(t, 200, get(t, transport, api.URL).StatusCode)
			api.AssertAttempts(t, 2)
			assert.Len(t, recorder.Ended(), row.spans)
		})
	}
}
