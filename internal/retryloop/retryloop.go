// Package retryloop is the retry loop of go-retryablehttp. No other package uses that module.
//
// The loop sees a shadow request without a body and shadow responses with a status only. The
// caller keeps the real ones. So these traps of the loop have no effect (tests here, and those of
// the root for bodies, redirects, connections and logs, cover each):
//
//   - It reads request bodies into memory and does not close them: the shadow has none.
//   - It follows redirects and parses Location: shadow responses have no header.
//   - It drops Content-Length and rejects RequestURI: the shadow has neither.
//   - It closes the idle connections of all hosts after a failure: its transport has no
//     CloseIdleConnections.
//   - It drains responses without a time limit: shadows are empty.
//   - It logs to stderr: Logger is nil.
//   - It calls CheckRetry without the request: Hooks are closures over the call.
//   - It replaces the last response by an error: ShouldRetry ends the loop before RetryMax.
package retryloop

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Hooks are the steps of the loop. Run calls them in its goroutine, one after the other. They
// may panic.
type Hooks struct {
	ShouldRetry func() (at time.Time, retry bool) // after each failure; false ends the loop
	Prepare     func() error                      // after the wait; an error ends the loop
	Do          func()                            // sends the next attempt and keeps its result
}

// Run is called after a first failure. It calls ShouldRetry, waits, calls Prepare and Do, and
// begins again, until ShouldRetry returns false: then it returns nil. It returns the error of
// Prepare unchanged, or that of ctx if it ends a wait.
func Run(ctx context.Context, hooks Hooks) error {
	shadow, _ := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, "http://shadow.invalid/", nil) // no error: they are constants
	var at time.Time
	loop := retryablehttp.Client{
		HTTPClient: &http.Client{Transport: &shadowTransport{do: hooks.Do}},
		RetryMax:   math.MaxInt32, // ShouldRetry counts
		CheckRetry: func(context.Context, *http.Response, error) (retry bool, _ error) {
			at, retry = hooks.ShouldRetry()
			return retry, nil
		},
		Backoff:      func(time.Duration, time.Duration, int, *http.Response) time.Duration { return time.Until(at) },
		PrepareRetry: func(*http.Request) error { return hooks.Prepare() },
		ErrorHandler: func(_ *http.Response, err error, _ int) (*http.Response, error) { return nil, err },
	}
	resp, err := loop.Do(shadow)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// shadowTransport stands for the first failure at its first request, and calls do for each
// retry.
type shadowTransport struct {
	do    func()
	retry bool
}

func (s *shadowTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.retry {
		s.do()
	}
	s.retry = true
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}
