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
		requests int // that the API receives
		charges  int // that it makes
		check    func(*testing.T, error, *faulttest.Server)
	}{
		{
			name: "success: one request", script: before(),
			requests: 1, charges: 1, check: succeeds,
		}, {
			name:   "declined: no retry",
			script: always(problem(http.StatusPaymentRequired, "Card declined", "insufficient_funds")),
			check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, vendorsdk.ErrDeclined)
				e := requireError(t, err, http.StatusPaymentRequired)
				assert.Equal(t, "Card declined", e.Title)
				assert.Equal(t, "insufficient_funds", e.Code)
				assert.Equal(t, "req_1", e.RequestID)
				assert.EqualError(t, err, "vendorsdk: 402 Card declined (insufficient_funds), request req_1")
				checkCallAgain(t, err, false)
			},
			requests: 1,
		}, {
			name: "declined after a lost response: in doubt, the same key again",
			script: func(charges http.Handler) http.Handler {
				declined := problem(http.StatusPaymentRequired, "Card declined", "insufficient_funds")
				return faulttest.Sequence(faulttest.LoseResponse(charges), declined)
			},
			check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.NotErrorIs(t, err, vendorsdk.ErrDeclined)
				requireError(t, err, http.StatusPaymentRequired)
				checkCallAgain(t, err, true)
			},
			requests: 2, charges: 1,
		}, {
			name: "429 with a Retry-After above the policy: returned", script: always(throttled(20 * time.Second)),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				requireError(t, err, http.StatusTooManyRequests)
				notBefore := checkCallAgain(t, err, true)
				assert.WithinDuration(t, time.Now().Add(20*time.Second), notBefore, 0)
			},
		}, {
			name: "first request in progress: retry", script: before(inProgress),
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "other conflict: no retry", script: always(problem(http.StatusConflict, "Reference is taken", "duplicate_reference")),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				requireError(t, err, http.StatusConflict)
				checkCallAgain(t, err, false)
			},
		}, {
			name: "429 of a monthly limit: no retry", script: always(problem(http.StatusTooManyRequests, "Upgrade", "monthly_limit")),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				assert.Equal(t, "monthly_limit", requireError(t, err, http.StatusTooManyRequests).Code)
				checkCallAgain(t, err, false)
			},
		}, {
			name: "BaseURL in upper case: same host", script: before(unavailable),
			client:   func(c *vendorsdk.Client) { c.BaseURL = strings.Replace(c.BaseURL, "fault", "FAULT", 1) },
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "in progress until the last attempt: call again", script: always(inProgress),
			client:   func(c *vendorsdk.Client) { c.Policy.MaxAttempts = 2 },
			requests: 2, check: func(t *testing.T, err error, _ *faulttest.Server) {
				assert.Equal(t, 2, requireError(t, err, http.StatusConflict).Attempts)
				checkCallAgain(t, err, true)
			},
		}, {
			name: "no deadline: Timeout of the Client", script: always(faulttest.Hang),
			client:   func(c *vendorsdk.Client) { c.Timeout = 500 * time.Millisecond },
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, resilienthttp.ErrDeadline)
				checkCallAgain(t, err, true)
			},
		}, {
			name: "canceled in the call: Canceled", script: always(faulttest.Hang),
			context: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorIs(t, err, context.Canceled)
				checkCallAgain(t, err, true)
			},
		}, {
			name: "key of the caller: sent", script: before(unavailable),
			params:   withKey,
			requests: 2, charges: 1, check: func(t *testing.T, err error, srv *faulttest.Server) {
				succeeds(t, err, srv)
				assert.Equal(t, "comp1:invoice:001", srv.Requests()[0].Key)
			},
		}, {
			name: "error of a proxy: status text as title", script: always(faulttest.Reply{Status: http.StatusBadGateway, Body: "<h1>nginx</h1>"}),
			client:   func(c *vendorsdk.Client) { c.Policy.MaxAttempts = -1 },
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				assert.Equal(t, "Bad Gateway", requireError(t, err, http.StatusBadGateway).Title)
			},
		}, {
			name: "redirect: not followed", script: always(faulttest.Redirect(http.StatusTemporaryRedirect, "/elsewhere")),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				requireError(t, err, http.StatusTemporaryRedirect)
			},
		}, {
			name: "body above the maximum: error",
			script: always(faulttest.Reply{
				Status: http.StatusCreated, Body: strings.Repeat(" ", 2<<20), Fault: faulttest.Stalled, At: 1<<20 + 1,
			}),
			requests: 1, check: func(t *testing.T, err error, _ *faulttest.Server) {
				require.ErrorContains(t, err, "longer than 1 MiB")
				checkCallAgain(t, err, true)
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
				srv.AssertKeys(t, min(row.requests, 1)) // one key for each call
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

func TestGetCharge(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, faulttest.Sequence(unavailable, accepted, problem(http.StatusNotFound, "No such charge", "")))
	client := &vendorsdk.Client{BaseURL: srv.URL + "/", APIKey: "sk_test"}
	client.Policy.Backoff = resilienthttp.Constant(time.Millisecond)

	charge, err := client.GetCharge(t.Context(), "ch_1") // a GET is retried without a key
	require.NoError(t, err)
	assert.Equal(t, "ch_1", charge.ID)
	srv.AssertKeys(t, 0)

	_, err = client.GetCharge(t.Context(), "a/../b?c")
	requireError(t, err, http.StatusNotFound)
	checkCallAgain(t, err, false)

	_, err = client.GetCharge(t.Context(), "")
	require.Error(t, err)
	checkCallAgain(t, err, false)
	srv.AssertAttempts(t, 2, 1)
	assert.Equal(t, "/v1/charges/ch_1", srv.Requests()[0].URI)
	assert.Equal(t, "/v1/charges/a%2F..%2Fb%3Fc", srv.Requests()[2].URI)
}

func succeeds(t *testing.T, err error, _ *faulttest.Server) {
	t.Helper()
	require.NoError(t, err)
}

func requireError(t *testing.T, err error, status int) *vendorsdk.Error {
	t.Helper()
	var e *vendorsdk.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, status, e.Status)
	return e
}

func checkCallAgain(t *testing.T, err error, want bool) time.Time {
	t.Helper()
	notBefore, again := vendorsdk.CallAgain(err)
	assert.Equal(t, want, again, "CallAgain")
	return notBefore
}

// accepted is the response to a successful charge.
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

// inProgress is a 409 that is retried because of its code.
var inProgress = problem(http.StatusConflict, "In flight", "request_in_progress")

func throttled(wait time.Duration) faulttest.Reply {
	reply := problem(http.StatusTooManyRequests, "Slow down", "")
	reply.RetryAfter = wait
	return reply
}

// script returns a handler with faults around the endpoint.
type script func(charge http.Handler) http.Handler

// before serves one step per request, and then charges.
func before(steps ...http.Handler) script {
	return func(charge http.Handler) http.Handler { return faulttest.Sequence(append(steps, charge)...) }
}

// always serves each request with the step.
func always(step http.Handler) script { return func(http.Handler) http.Handler { return step } }

// countingBase counts opened and closed response bodies.
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
