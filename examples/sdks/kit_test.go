package sdks

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// quick returns a policy with short waits.
func quick() resilienthttp.Policy {
	return resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Millisecond)}
}

// plain returns a Transport without the limits that end retries to a failing server.
func plain(base http.RoundTripper) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base: base, Policy: quick(),
		Budget: &resilienthttp.Budget{Ratio: -1}, Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}
}

// start starts an API on a socket.
func start(t *testing.T, script http.Handler) *faulttest.Server {
	t.Helper()
	return faulttest.New(t, script)
}

// lossy is a Base that loses the first response and records the headers of all requests.
type lossy struct {
	http.RoundTripper

	mu   sync.Mutex
	sent []http.Header
}

var errLost = errors.New("response lost")

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.sent = append(l.sent, r.Header.Clone())
	first := len(l.sent) == 1
	l.mu.Unlock()
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil && first {
		_ = resp.Body.Close()
		return nil, errLost
	}
	return resp, err
}

// close1 closes the body of a response.
func close1(t *testing.T, resp *http.Response, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}
