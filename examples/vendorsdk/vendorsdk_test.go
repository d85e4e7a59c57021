package vendorsdk_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/examples/vendorsdk"
)

func TestCreateCharge(t *testing.T) {
	t.Parallel()
	order := vendorsdk.ChargeParams{Reference: "invoice-1", Amount: 1999, Currency: "EUR", Source: "tok_visa"}
	withKey := order
	withKey.IdempotencyKey = "comp1:invoice:001"

	for _, row := range []struct {
		name     string
		script   []step // one for each request; the last is for all that follow
		client   func(*vendorsdk.Client)
		context  func(context.Context, *api) (context.Context, context.CancelFunc)
		params   vendorsdk.ChargeParams
		requests int // that the API is to see
		charges  int // that it is to make
		check    func(*testing.T, error, *api)
	}{
		{
			name: "success", script: []step{accept},
			requests: 1, charges: 1, check: succeeds,
		}, {
			name:   "a decline is final",
			script: []step{problem(http.StatusPaymentRequired, "Card declined", "insufficient_funds")},
			check: func(t *testing.T, err error, _ *api) {
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
			name: "503, then success with the same key", script: []step{unavailable, accept},
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "429 waits for Retry-After", script: []step{throttled("0.05"), accept},
			requests: 2, charges: 1, check: func(t *testing.T, err error, a *api) {
				succeeds(t, err, a)
				assert.GreaterOrEqual(t, a.seen[1].at.Sub(a.seen[0].at), 50*time.Millisecond)
			},
		}, {
			name: "429 for longer than anybody waits at a till", script: []step{throttled("60")},
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				answered(t, err, http.StatusTooManyRequests)
				notBefore := askAgain(t, err, true)
				assert.WithinDuration(t, time.Now().Add(time.Minute), notBefore, 10*time.Second)
			},
		}, {
			name: "the answer is lost after the charge", script: []step{acceptAndReset, accept},
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "the first one is still at work", script: []step{problem(http.StatusConflict, "In flight", ""), accept},
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "it is still at work when the attempts are spent", script: []step{problem(http.StatusConflict, "In flight", "")},
			client:   func(c *vendorsdk.Client) { c.Policy.MaxAttempts = 2 },
			requests: 2, check: func(t *testing.T, err error, _ *api) {
				assert.Equal(t, 2, answered(t, err, http.StatusConflict).Attempts)
				askAgain(t, err, true)
			},
		}, {
			name: "an attempt times out", script: []step{silence, accept},
			client:   func(c *vendorsdk.Client) { c.Policy.AttemptTimeout = 500 * time.Millisecond },
			requests: 2, charges: 1, check: succeeds,
		}, {
			name: "all attempts time out", script: []step{silence},
			client: func(c *vendorsdk.Client) {
				c.Policy.AttemptTimeout, c.Policy.MaxAttempts = 100*time.Millisecond, 2
			},
			requests: 2, check: func(t *testing.T, err error, _ *api) {
				require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				askAgain(t, err, true)
			},
		}, {
			name: "the Client's timeout, where the context has none", script: []step{silence},
			client:   func(c *vendorsdk.Client) { c.Timeout = 500 * time.Millisecond },
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				require.ErrorIs(t, err, resilienthttp.ErrDeadline)
				askAgain(t, err, true)
			},
		}, {
			name: "a wait that the deadline does not allow is not begun", script: []step{throttled("5")},
			context: func(ctx context.Context, _ *api) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 3*time.Second)
			},
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				answered(t, err, http.StatusTooManyRequests)
				notBefore := askAgain(t, err, true)
				assert.WithinDuration(t, time.Now().Add(5*time.Second), notBefore, 2*time.Second)
			},
		}, {
			name: "the caller leaves", script: []step{silence},
			context: func(ctx context.Context, a *api) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				a.onRequest = cancel
				return ctx, cancel
			},
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				require.ErrorIs(t, err, context.Canceled)
				askAgain(t, err, true)
			},
		}, {
			name: "the caller left before", script: []step{accept},
			context: func(ctx context.Context, _ *api) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			},
			requests: 0, check: func(t *testing.T, err error, _ *api) {
				require.ErrorIs(t, err, context.Canceled)
			},
		}, {
			name: "the caller's key", script: []step{unavailable, accept},
			params:   withKey,
			requests: 2, charges: 1, check: func(t *testing.T, err error, a *api) {
				succeeds(t, err, a)
				assert.Equal(t, "comp1:invoice:001", a.seen[0].key)
			},
		}, {
			name: "a policy for one call", script: []step{unavailable},
			context: func(ctx context.Context, _ *api) (context.Context, context.CancelFunc) {
				once := vendorsdk.DefaultPolicy()
				once.MaxAttempts = -1
				return resilienthttp.WithPolicy(ctx, once), func() {}
			},
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				e := answered(t, err, http.StatusServiceUnavailable)
				assert.Equal(t, 1, e.Attempts)
				askAgain(t, err, true)
			},
		}, {
			name: "the circuit opens, and the answer is what there was", script: []step{unavailable},
			client:   func(c *vendorsdk.Client) { c.Breaker = &resilienthttp.Breaker{MinRequests: 1} },
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				answered(t, err, http.StatusServiceUnavailable)
			},
		}, {
			name: "what a proxy says is no problem document", script: []step{proxyError},
			client:   func(c *vendorsdk.Client) { c.Policy.MaxAttempts = -1 },
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				assert.Equal(t, "Bad Gateway", answered(t, err, http.StatusBadGateway).Title)
			},
		}, {
			name: "a redirect is not followed", script: []step{redirect},
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				answered(t, err, http.StatusTemporaryRedirect)
			},
		}, {
			name: "an endless answer is not read to its end", script: []step{endless},
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				require.ErrorContains(t, err, "longer than 1 MiB")
				askAgain(t, err, true)
			},
		}, {
			name: "an answer that breaks off", script: []step{truncated},
			requests: 1, check: func(t *testing.T, err error, _ *api) {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				askAgain(t, err, true)
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, row.script...)
			bodies := &countingBase{base: &http.Transport{}}
			t.Cleanup(bodies.base.CloseIdleConnections)
			client := &vendorsdk.Client{BaseURL: a.server.URL, APIKey: "sk_test", Base: bodies}
			client.Policy.Backoff = resilienthttp.Constant(time.Millisecond)
			if row.client != nil {
				row.client(client)
			}
			ctx := t.Context()
			if row.context != nil {
				var cancel context.CancelFunc
				ctx, cancel = row.context(ctx, a)
				defer cancel()
			}
			params := row.params
			if params == (vendorsdk.ChargeParams{}) {
				params = order
			}

			charge, err := client.CreateCharge(ctx, params)
			a.mu.Lock()
			defer a.mu.Unlock()
			row.check(t, err, a)
			if err == nil {
				assert.Equal(t, "ch_1", charge.ID)
				assert.EqualValues(t, 1999, charge.Amount)
			} else {
				assert.Nil(t, charge)
			}
			assert.Len(t, a.seen, row.requests)
			assert.Equal(t, row.charges, a.charges)
			for _, r := range a.seen {
				assert.Equal(t, a.seen[0].key, r.key, "one call, one key")
				assert.NotEmpty(t, r.key)
				assert.Equal(t, "Bearer sk_test", r.authorization)
				assert.JSONEq(t, `{"reference":"invoice-1","amount":1999,"currency":"EUR","source":"tok_visa"}`, r.body)
			}
			assert.Equal(t, bodies.opened.Load(), bodies.closed.Load(), "response bodies opened and closed")
		})
	}
}

// While the circuit is open, calls fail at once, typed, and with the time at
// which to ask again.
func TestBreakerOpen(t *testing.T) {
	t.Parallel()
	a := newAPI(t, unavailable)
	client := &vendorsdk.Client{BaseURL: a.server.URL, APIKey: "sk_test", Breaker: &resilienthttp.Breaker{MinRequests: 1}}
	_, err := client.CreateCharge(t.Context(), vendorsdk.ChargeParams{Reference: "invoice-1"})
	answered(t, err, http.StatusServiceUnavailable)

	_, err = client.CreateCharge(t.Context(), vendorsdk.ChargeParams{Reference: "invoice-2"})
	require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
	var failed *resilienthttp.Error
	require.ErrorAs(t, err, &failed)
	assert.Empty(t, failed.Attempts, "something was sent")
	assert.Equal(t, failed.NotBefore, askAgain(t, err, true))
	assert.WithinDuration(t, time.Now().Add(time.Second), failed.NotBefore, time.Second)
	assert.Len(t, a.seen, 1)
}

func TestGetCharge(t *testing.T) {
	t.Parallel()
	a := newAPI(t, unavailable, accept, problem(http.StatusNotFound, "No such charge", ""))
	client := &vendorsdk.Client{BaseURL: a.server.URL + "/", APIKey: "sk_test"}
	client.Policy.Backoff = resilienthttp.Constant(time.Millisecond)

	charge, err := client.GetCharge(t.Context(), "ch_1") // a GET needs no key to be repeated
	require.NoError(t, err)
	assert.Equal(t, "ch_1", charge.ID)
	require.Len(t, a.seen, 2)
	assert.Equal(t, "/v1/charges/ch_1", a.seen[0].path)
	assert.Empty(t, a.seen[0].key)

	_, err = client.GetCharge(t.Context(), "a/../b?c")
	answered(t, err, http.StatusNotFound)
	assert.Equal(t, "/v1/charges/a%2F..%2Fb%3Fc", a.seen[2].path)
	askAgain(t, err, false)

	_, err = client.GetCharge(t.Context(), "")
	require.Error(t, err)
	askAgain(t, err, false)
	assert.Len(t, a.seen, 3)
}

func succeeds(t *testing.T, err error, _ *api) {
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

// api is a payment API that follows a script.
type api struct {
	server    *httptest.Server
	over      chan struct{} // closed at the end of the test
	onRequest func()

	mu      sync.Mutex
	script  []step
	seen    []seen
	charged map[string]bool // by key
	charges int
}

type seen struct {
	at                             time.Time
	path, key, authorization, body string
}

// step is what the API does with one request.
type step func(*api, http.ResponseWriter, *http.Request)

func newAPI(t *testing.T, script ...step) *api {
	a := &api{script: script, charged: map[string]bool{}, over: make(chan struct{})}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	t.Cleanup(func() { close(a.over) }) // runs first
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	now := a.script[min(len(a.seen), len(a.script)-1)]
	a.seen = append(a.seen, seen{time.Now(), r.URL.EscapedPath(), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization"), string(body)})
	a.mu.Unlock()
	w.Header().Set("Request-Id", "req_1")
	if a.onRequest != nil {
		a.onRequest()
	}
	now(a, w, r)
}

// charge makes one charge for each key.
func (a *api) charge(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := r.Header.Get("Idempotency-Key"); r.Method == http.MethodPost && (key == "" || !a.charged[key]) {
		a.charged[key] = true
		a.charges++
	}
}

func accept(a *api, w http.ResponseWriter, r *http.Request) {
	a.charge(r)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":"ch_1","reference":"invoice-1","amount":1999,"currency":"EUR"}`)
}

func acceptAndReset(a *api, w http.ResponseWriter, r *http.Request) {
	a.charge(r)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0) // RST
	conn.Close()
}

func problem(status int, title, code string) step {
	return func(_ *api, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "title": title, "code": code})
	}
}

func unavailable(a *api, w http.ResponseWriter, r *http.Request) {
	problem(http.StatusServiceUnavailable, "Unavailable", "")(a, w, r)
}

func throttled(retryAfter string) step {
	return func(a *api, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		problem(http.StatusTooManyRequests, "Slow down", "")(a, w, r)
	}
}

func silence(a *api, _ http.ResponseWriter, _ *http.Request) { <-a.over }

func proxyError(_ *api, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = io.WriteString(w, "<h1>nginx</h1>")
}

func redirect(_ *api, w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
}

func endless(a *api, w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	for block := strings.Repeat(" ", 64<<10); ; {
		if _, err := io.WriteString(w, block); err != nil {
			return
		}
	}
}

func truncated(_ *api, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":"ch_1"`)
}

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
