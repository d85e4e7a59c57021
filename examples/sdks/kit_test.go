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

// quick is a policy whose waits are short.
func quick() resilienthttp.Policy {
	return resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Millisecond)}
}

// plain is a Transport without what would keep it from asking a dead server.
func plain(base http.RoundTripper) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base: base, Policy: quick(),
		Budget: &resilienthttp.Budget{Ratio: -1}, Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}
}

// start is an API on a socket.
func start(t *testing.T, script http.Handler) *faulttest.Server {
	t.Helper()
	return faulttest.New(t, script)
}

// lossy is a Base that loses the first answer to a POST, after the work was done, and
// keeps what was sent.
type lossy struct {
	http.RoundTripper

	mu   sync.Mutex
	sent []http.Header
}

var errLost = errors.New("the answer was lost")

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

// close1 closes the body of what came.
func close1(t *testing.T, resp *http.Response, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}
