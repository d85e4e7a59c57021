// Package retryloop is the retry loop of go-retryablehttp, and the only place that
// knows of it.
//
// The loop never sees a real exchange. It is given a shadow request without a body,
// whose shadow responses have a status and nothing else, and asks its caller, which
// keeps the real ones. That disarms the loop's known traps, each pinned by a test
// here, and as seen from outside by TestRetryLoopTraps of the root:
//
//   - it reads request bodies into memory, and never closes the caller's: the shadow
//     has none.
//   - it follows redirects and parses Location: shadow responses have no header.
//   - it drops Content-Length and refuses RequestURI: neither is on the shadow.
//   - it closes the idle connections of every host on failure: the transport that it
//     is given has no CloseIdleConnections.
//   - it drains responses without a time bound: shadows are empty.
//   - it logs to stderr: Logger is nil.
//   - it calls CheckRetry without the request: Steps are closures over the call.
//   - it replaces the last response by an error: Again says no before RetryMax could.
package retryloop

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Steps are what a round of the loop is made of. They run in the goroutine of Run,
// one after the other, and may panic.
type Hooks struct {
	// Again decides whether what has just failed is tried again, and when. No ends
	// the loop.
	ShouldRetry func() (at time.Time, again bool)

	// Prepare gets the next try ready, after the wait. An error ends the loop.
	Prepare func() error

	// Try is the next try. What came of it is between it and Again.
	Do func()
}

// Run is entered with a first failure in hand. It asks Again, waits, calls Prepare
// and Try, and asks Again, until that says no: then it returns nil. It returns the
// error of Prepare as it is, or that of ctx where it ends a wait.
func Run(ctx context.Context, steps Hooks) error {
	shadow, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, "http://shadow.invalid/", nil)
	if err != nil {
		return fmt.Errorf("retry loop: %w", err) // cannot be: the arguments are constants
	}
	var (
		at       time.Time
		prepared error
	)
	loop := retryablehttp.Client{
		HTTPClient: &http.Client{Transport: &shadowTransport{try: steps.Do}},
		RetryMax:   math.MaxInt32, // Again counts
		CheckRetry: func(context.Context, *http.Response, error) (again bool, _ error) {
			at, again = steps.ShouldRetry()
			return again, nil
		},
		Backoff: func(time.Duration, time.Duration, int, *http.Response) time.Duration { return time.Until(at) },
		PrepareRetry: func(*http.Request) error {
			prepared = steps.Prepare()
			return prepared
		},
		ErrorHandler: func(_ *http.Response, err error, _ int) (*http.Response, error) { return nil, err },
	}
	resp, err := loop.Do(shadow)
	switch {
	case prepared != nil:
		return prepared
	case err != nil:
		return err
	}
	return resp.Body.Close() // http.NoBody
}

// shadowTransport answers the first request with the failure in hand, and makes the
// further tries.
type shadowTransport struct {
	try   func()
	again bool
}

func (s *shadowTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.again {
		s.try()
	}
	s.again = true
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}
