package matrix

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// answers returns the results of one peer, by probe.
func answers(t *testing.T, p peers.Peer) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, probe := range allProbes() {
		all[probe.Name] = probe.ask(t, p)
	}
	return all
}

func named(t *testing.T, name string) peers.Peer {
	t.Helper()
	named, err := peers.Named(name)
	require.NoError(t, err)
	return named[0]
}

// The behavior of this library is its contract.
func TestOurs(t *testing.T) {
	want := map[string]string{
		// After 503 and 429 there is no first wait. After a timeout of a server without a success there is only the last.
		"GET 500": "5", "GET 503": "4", "GET 429": "4", "GET timeout": "2",
		// With its generated key, a POST can be retried.
		"POST 500": "5, one key", "POST 503": "4, one key", "POST 429": "4, one key", "POST timeout": "2, one key",
		"body replayed": "yes", "body of a stream": "streamed",
		"Retry-After: 3": "waited for", "Retry-After: date": "waited for",
		"exhausted": "503", "bodies left open": "0", "wait after the last": "0",
		"wait past the deadline": "at once", "canceled": "0",
		"request modified": "no", "other hosts' idle connections": "kept",
	}
	require.Equal(t, want, answers(t, named(t, peers.Ours)))
}

// Without keys, a POST is retried only after a 429, or a 503 with Retry-After: the server did
// no work. The probe's 503 has no Retry-After.
func TestOurs_withoutKeys(t *testing.T) {
	p := peers.Peer{New: func(s peers.Setting) peers.Client {
		return &http.Client{Transport: &resilienthttp.Transport{Base: s.Base, Idempotency: resilienthttp.Idempotency{Disabled: true}}}
	}}
	got := answers(t, p)
	require.Equal(t, "1", got["POST 500"])
	require.Equal(t, "1", got["POST 503"])
	require.Equal(t, "**4**", got["POST 429"])
	require.Equal(t, "1", got["POST timeout"])
	require.Equal(t, "5", got["GET 500"])
}

// The source of the library, at the version in go.mod, confirms each of these results.
func TestPeers(t *testing.T) {
	for _, row := range []struct{ peer, probe, want, because string }{
		{"bare", "GET 500", "1", "http.Client does not retry responses"},
		{"naive", "body replayed", "**no**", "it sends a body that is already read"},
		{"go-retryablehttp", "POST 500", "**5**", "baseRetryPolicy does not look at the method"},
		{"go-retryablehttp", "exhausted", "error", "Do drains the last response, and returns an error, without an ErrorHandler"},
		{"go-retryablehttp-full", "exhausted", "503", "PassthroughErrorHandler"},
		{"go-retryablehttp", "other hosts' idle connections", "**closed**", "Do defers HTTPClient.CloseIdleConnections when it gives up"},
		{"go-retryablehttp", "Retry-After: date", "waited for", "parseRetryAfterHeader reads both forms"},
		{"failsafe-go", "Retry-After: date", "**undercut**", "DelayFunc reads only seconds"},
		{"failsafe-go", "bodies left open", "**3**", "doRequest closes no response that is retried"},
		{"failsafe-go-full", "Retry-After: 3", "**undercut**", "ApplyJitter adds to, and takes from, any delay"},
		{"rehttp", "body of a stream", "in memory", "RoundTrip copies the body to a buffer"},
		{"rehttp", "Retry-After: 3", "**undercut**", "DelayFn ignores the response"},
		{"heimdall", "GET 429", "1", "Do retries errors and 5xx"},
		{"heimdall", "request modified", "**Body**", "Do replaces the body"},
		{"azcore", "Retry-After: date", "waited for", "shared.RetryAfter reads both forms"},
		{"azcore", "wait past the deadline", "at the deadline", "retryPolicy.Do selects between the delay and the context"},
		{"resty", "POST 500", "1", "Execute retries only idempotent methods"},
		{"resty-hedged", "GET 500", "1", "SetHedging sets the retry count to 0"},
		{"aws-sdk-go-v2", "Retry-After: 3", "**undercut**", "adjustForRetryAfterHeader reads only X-Amz-Retry-After"},
		{"gobreaker+backoff+rate", "POST 500", "1", "by design"},
	} {
		for _, probe := range allProbes() {
			if probe.Name == row.probe {
				require.Equal(t, row.want, probe.ask(t, named(t, row.peer)), "%s, %s: %s", row.peer, row.probe, row.because)
			}
		}
	}
}

// Every library has a result for every probe.
func TestAll(t *testing.T) {
	for _, p := range peers.All() {
		for name, answer := range answers(t, p) {
			require.NotEmpty(t, answer, "%s: %s", p.Name, name)
		}
	}
}
