package vendorsdk_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/examples/vendorsdk"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

func TestCreateCharge(t *testing.T) {
	t.Parallel()
	order := vendorsdk.ChargeParams{Reference: "invoice-1", Amount: 1999, Currency: "EUR", Source: "tok_visa"}
	withKey := order
	withKey.IdempotencyKey = "comp1:invoice:001"

	for _, row := range []struct {
		name     string
		script   script
		client   func(*vendorsdk.Client)
		context  func(context.Context) (context.Context, context.CancelFunc)
		params   vendorsdk.ChargeParams
		requests int // that the API is to see
		charges  int // that it is to make
		check    func(*testing.T, error, *faulttest.Server)
	}{
		{
			name: "success", script: before(),
			requests: 1, charges: 1, check: succeeds,
		}, {
			name:   "a decline is final",
			script: always(problem(http.StatusPaymentRequired, "Card declined", "insufficient_funds")),
			check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, vendorsdk.ErrDeclined)
				e := answered(t, err, http.StatusPaymentRequired)
				assert.Equal(t, "Card declined", e.Title)
				assert.Equal(t, "insufficient_funds", e.Code)
				assert.Equal(t, "req_1", e.RequestID)
				assert.EqualError(t, err, "vendorsdk: 402 Card declined (insufficient_funds), request req_1")
				askAgain(t, err, false)
			},
			requests: 1,
		}, {
			name: "503, then success with the same key", script: before(unavailable),
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "429 waits for Retry-After", script: before(throttled(2 * time.Second)),
			requests: 2, charges: 1, check: func(t *testing.T, err error, srv *faulttest.Server) {
				succeeds(t, err, srv)
				srv.AssertSpacing(t, 2*time.Second, 4*time.Second)
			},
		}, {
			name: "429 for longer than anybody waits at a till", script: always(throttled(20 * time.Second)),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				answered(t, err, http.StatusTooManyRequests)
				notBefore := askAgain(t, err, true)
				assert.WithinDuration(t, time.Now().Add(20*time.Second), notBefore, 0)
			},
		}, {
			name: "the answer is lost after the charge", script: func(charge http.Handler) http.Handler {
				return faulttest.Sequence(faulttest.LoseResponse(charge), charge)
			},
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "the first one is still at work", script: before(stillAtWork),
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "a conflict about the charge is final", script: always(problem(http.StatusConflict, "Reference is taken", "duplicate_reference")),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				answered(t, err, http.StatusConflict)
				askAgain(t, err, false)
			},
		}, {
			name: "429 that no waiting brings back", script: always(problem(http.StatusTooManyRequests, "Upgrade", "monthly_limit")),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				assert.Equal(t, "monthly_limit", answered(t, err, http.StatusTooManyRequests).Code)
				askAgain(t, err, false)
			},
		}, {
			name: "a BaseURL in capitals is the API, too", script: before(unavailable),
			client:   func(c *vendorsdk.Client) { c.BaseURL = strings.Replace(c.BaseURL, "fault", "FAULT", 1) },
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "it is still at work when the attempts are spent", script: always(stillAtWork),
			client:   func(c *vendorsdk.Client) { c.Policy.MaxAttempts = 2 },
			requests: 2, check: func(t *testing.T, err error, _ *faulttest.Server) {
				assert.Equal(t, 2, answered(t, err, http.StatusConflict).Attempts)
				askAgain(t, err, true)
			},
		}, {
			name: "an attempt times out", script: before(faulttest.Hang),
			client:   func(c *vendorsdk.Client) { c.Policy.AttemptTimeout = 500 * time.Millisecond },
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "all attempts time out", script: always(faulttest.Hang),
			client: func(c *vendorsdk.Client) {
				c.Policy.AttemptTimeout, c.Policy.MaxAttempts = 100*time.Millisecond, 2
			},
			requests: 2, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				askAgain(t, err, true)
			},
		}, {
			name: "the Client's timeout, where the context has none", script: always(faulttest.Hang),
			client:   func(c *vendorsdk.Client) { c.Timeout = 500 * time.Millisecond },
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, resilienthttp.ErrDeadline)
				askAgain(t, err, true)
			},
		}, {
			name: "a wait that the deadline does not allow is not begun", script: always(throttled(5 * time.Second)),
			context: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 3*time.Second)
			},
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				answered(t, err, http.StatusTooManyRequests)
				notBefore := askAgain(t, err, true)
				assert.WithinDuration(t, time.Now().Add(5*time.Second), notBefore, 0)
			},
		}, {
			name: "the caller leaves", script: always(faulttest.Hang),
			context: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, context.Canceled)
				askAgain(t, err, true)
			},
		}, {
			name: "the caller left before", script: before(),
			context: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			},
			requests: 0, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, context.Canceled)
			},
		}, {
			name: "the caller's key", script: before(unavailable),
			params:   withKey,
			requests: 2, charges: 1, check: func(t *testing.T, err error, srv *faulttest.Server) {
				succeeds(t, err, srv)
				assert.Equal(t, "comp1:invoice:001", srv.Requests()[0].Key)
			},
		}, {
			name: "a policy for one call", script: always(unavailable),
			context: func(ctx context.Context) (context.Context, context.CancelFunc) {
				once := vendorsdk.DefaultPolicy()
				once.MaxAttempts = -1
				return resilienthttp.WithPolicy(ctx, once), func() {}
			},
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				e := answered(t, err, http.StatusServiceUnavailable)
				assert.Equal(t, 1, e.Attempts)
				askAgain(t, err, true)
			},
		}, {
			name: "the circuit opens, and the answer is what there was", script: always(unavailable),
			client:   func(c *vendorsdk.Client) { c.Breaker = &resilienthttp.Breaker{MinRequests: 1} },
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				answered(t, err, http.StatusServiceUnavailable)
			},
		}, {
			name: "what a proxy says is no problem document", script: always(faulttest.Reply{Status: http.StatusBadGateway, Body: "<h1>nginx</h1>"}),
			client:   func(c *vendorsdk.Client) { c.Policy.MaxAttempts = -1 },
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				assert.Equal(t, "Bad Gateway", answered(t, err, http.StatusBadGateway).Title)
			},
		}, {
			name: "a redirect is not followed", script: always(faulttest.Redirect(http.StatusTemporaryRedirect, "/elsewhere")),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				answered(t, err, http.StatusTemporaryRedirect)
			},
		}, {
			name: "an endless answer is not read to its end",
			script: always(faulttest.Reply{
				Status: http.StatusCreated, Body: strings.Repeat(" ", 2<<20), Fault: faulttest.Stalled, At: 1<<20 + 1,
			}),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorContains(t, err, "longer than 1 MiB")
				askAgain(t, err, true)
			},
		}, {
			name: "an answer that breaks off", script: always(faulttest.Reply{Status: http.StatusCreated, Body: accepted.Body, Fault: faulttest.Truncated}),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				askAgain(t, err, true)
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				charges := &faulttest.Idempotent{Handler: accepted}
				srv := faulttest.NewInMemory(t, row.script(charges))
				bodies := &countingBase{base: srv.Transport()}
				client := &vendorsdk.Client{BaseURL: srv.URL, APIKey: "sk_test", Base: bodies}
				client.Policy.Backoff = resilienthttp.Constant(time.Millisecond)
				if row.client != nil {
					row.client(client)
				}
				ctx := t.Context()
				if row.context != nil {
					var cancel context.CancelFunc
					ctx, cancel = row.context(ctx)
					defer cancel()
				}
				params := row.params
				if params == (vendorsdk.ChargeParams{}) {
					params = order
				}

				charge, err := client.CreateCharge(ctx, params)
				row.check(t, err, srv)
				if err == nil {
					assert.Equal(t, "ch_1", charge.ID)
					assert.EqualValues(t, 1999, charge.Amount)
				} else {
					assert.Nil(t, charge)
				}
				srv.AssertRequests(t, row.requests)
				srv.AssertKeys(t, min(row.requests, 1)) // one call, one key
				charges.AssertExactlyOnce(t, row.charges)
				for _, r := range srv.Requests() {
					assert.Equal(t, "Bearer sk_test", r.Header.Get("Authorization"))
					assert.JSONEq(t, `{"reference":"invoice-1","amount":1999,"currency":"EUR","source":"tok_visa"}`, string(r.Body))
				}
				assert.Equal(t, bodies.opened.Load(), bodies.closed.Load(), "response bodies opened and closed")
			})
		})
	}
}

// While the circuit is open, calls fail at once, typed, and with the time at
// which to ask again.
func TestBreakerOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := faulttest.NewInMemory(t, unavailable)
		client := &vendorsdk.Client{BaseURL: srv.URL, APIKey: "sk_test", Base: srv.Transport(), Breaker: &resilienthttp.Breaker{MinRequests: 1}}
		_, err := client.CreateCharge(t.Context(), vendorsdk.ChargeParams{Reference: "invoice-1"})
		answered(t, err, http.StatusServiceUnavailable)

		_, err = client.CreateCharge(t.Context(), vendorsdk.ChargeParams{Reference: "invoice-2"})
		require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
		var failed *resilienthttp.Error
		require.ErrorAs(t, err, &failed)
		assert.Empty(t, failed.Attempts, "something was sent")
		assert.Equal(t, failed.NotBefore, askAgain(t, err, true))
		assert.WithinDuration(t, time.Now().Add(time.Second), failed.NotBefore, time.Second)
		srv.AssertRequests(t, 1)
	})
}

func TestGetCharge(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, faulttest.Sequence(unavailable, accepted, problem(http.StatusNotFound, "No such charge", "")))
	client := &vendorsdk.Client{BaseURL: srv.URL + "/", APIKey: "sk_test"}
	client.Policy.Backoff = resilienthttp.Constant(time.Millisecond)

	charge, err := client.GetCharge(t.Context(), "ch_1") // a GET needs no key to be repeated
	require.NoError(t, err)
	assert.Equal(t, "ch_1", charge.ID)
	srv.AssertKeys(t, 0)

	_, err = client.GetCharge(t.Context(), "a/../b?c")
	answered(t, err, http.StatusNotFound)
	askAgain(t, err, false)

	_, err = client.GetCharge(t.Context(), "")
	require.Error(t, err)
	askAgain(t, err, false)
	srv.AssertAttempts(t, 2, 1)
	assert.Equal(t, "/v1/charges/ch_1", srv.Requests()[0].URI)
	assert.Equal(t, "/v1/charges/a%2F..%2Fb%3Fc", srv.Requests()[2].URI)
}

func succeeds(t *testing.T, err error, _ *faulttest.Server) {
	t.Helper()
	require.NoError(t, err)
}

func answered(t *testing.T, err error, status int) *vendorsdk.Error {
	t.Helper()
	var e *vendorsdk.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, status, e.Status)
	return e
}

func askAgain(t *testing.T, err error, want bool) time.Time {
	t.Helper()
	notBefore, worthIt := vendorsdk.AskAgain(err)
	assert.Equal(t, want, worthIt, "AskAgain")
	return notBefore
}

// accepted is the answer to a charge that was made, problem one to a charge that
// was not.
var accepted = faulttest.Reply{
	Status: http.StatusCreated,
	Body:   `{"id":"ch_1","reference":"invoice-1","amount":1999,"currency":"EUR"}`,
}

func problem(status int, title, code string) faulttest.Reply {
	return faulttest.Reply{
		Status: status,
		Header: http.Header{"Content-Type": {"application/problem+json"}, "Request-Id": {"req_1"}},
		Body:   fmt.Sprintf(`{"status":%d,"title":%q,"code":%q}`, status, title, code),
	}
}

var unavailable = problem(http.StatusServiceUnavailable, "Unavailable", "")

// stillAtWork says so by its code; a 409 with another one is an answer about the
// charge, and is not repeated.
var stillAtWork = problem(http.StatusConflict, "In flight", "request_in_progress")

func throttled(wait time.Duration) faulttest.Reply {
	reply := problem(http.StatusTooManyRequests, "Slow down", "")
	reply.RetryAfter = wait
	return reply
}

// A script is what happens in front of the endpoint that charges.
type script func(charge http.Handler) http.Handler

// before lets the steps happen, one to each request, and then the charge.
func before(steps ...http.Handler) script {
	return func(charge http.Handler) http.Handler { return faulttest.Sequence(append(steps, charge)...) }
}

// always lets nothing else happen.
func always(step http.Handler) script { return func(http.Handler) http.Handler { return step } }

// countingBase counts response bodies.
type countingBase struct {
	base           *http.Transport
	opened, closed atomic.Int64
}

func (c *countingBase) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(r)
	if err == nil {
		c.opened.Add(1)
		resp.Body = &countedBody{ReadCloser: resp.Body, closed: &c.closed}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser
	once   sync.Once
	closed *atomic.Int64
}

func (c *countedBody) Close() error {
	c.once.Do(func() { c.closed.Add(1) })
	return c.ReadCloser.Close()
}
