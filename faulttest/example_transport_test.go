package faulttest_test //nolint:testableexamples // an example has no testing.T: TestClient runs the same

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// retrier is the client under test. It retries GET and HEAD.
type retrier struct{ base http.RoundTripper }

func (r retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return r.base.RoundTrip(req)
	}
	for wait := time.Second; ; wait *= 2 {
		resp, err := r.base.RoundTrip(req.Clone(req.Context()))
		failed := err != nil || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError
		if !failed || wait > 8*time.Second || req.Context().Err() != nil {
			return resp, err
		}
		jittered := time.Duration(float64(wait) * (0.6 + 0.6*rand.Float64()))
		if err == nil {
			jittered += retryAfter(resp)
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(jittered):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

func retryAfter(resp *http.Response) time.Duration {
	value := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	sent, dateErr := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || dateErr != nil {
		return 0
	}
	return at.Sub(sent)
}

// The client under test has neither idempotency keys nor a retry budget.
func ExampleTestTransport() {
	var t *testing.T // of the test

	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		return retrier{base}
	}, faulttest.Without("keys", "redirects", "retry-after-list", "throttled-host", "budget"))
}
