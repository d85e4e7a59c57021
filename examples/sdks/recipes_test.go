package sdks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// refresher is above the Transport. After a 401 it gets a new token, and repeats the call once: a
// server that answers 401 has done nothing.
type refresher struct {
	Base  http.RoundTripper
	Host  string                                                     // the API's, with its port; other hosts get no token, also after a redirect
	Token func(ctx context.Context, rejected string) (string, error) // a token that is not the rejected one

	mu    sync.Mutex
	token string
}

func (t *refresher) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != t.Host {
		return t.Base.RoundTrip(req)
	}
	token, err := t.current(req.Context(), "")
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	again := req.Clone(req.Context()) // before Base has read the body
	resp, err := t.Base.RoundTrip(authorized(req, token))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	token, err = t.current(req.Context(), token)
	if err == nil && req.GetBody != nil {
		again.Body, err = req.GetBody()
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
	return t.Base.RoundTrip(authorized(again, token))
}

// current returns the token, or a new one if the current one was rejected. Many calls that are
// rejected at once get one new token.
func (t *refresher) current(ctx context.Context, rejected string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != rejected {
		return t.token, nil
	}
	token, err := t.Token(ctx, rejected)
	if err == nil {
		t.token = token
	}
	return token, err
}

func authorized(req *http.Request, token string) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

func TestRefresh(t *testing.T) {
	for _, row := range []struct {
		name                     string
		valid                    string
		tokens, requests, status int
	}{
		{"the token is valid: one request", "token 1", 1, 1, 200},
		{"the token has expired: a new one, once", "token 2", 2, 2, 200},
		{"no token is valid: the second 401", "none", 2, 2, 401},
	} {
		t.Run(row.name, func(t *testing.T) {
			api := start(t, faulttest.Script{
				{Match: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+row.valid }, Handler: faulttest.OK("fine")},
				{Handler: faulttest.Status(http.StatusUnauthorized)},
			})
			tokens := 0
			transport := &refresher{Base: plain(nil), Host: strings.TrimPrefix(api.URL, "http://"), Token: func(context.Context, string) (string, error) {
				tokens++
				return "token " + strconv.Itoa(tokens), nil
			}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL, strings.NewReader("body"))
			require.NoError(t, err)
			resp, err := (&http.Client{Transport: transport}).Do(req)
			close1(t, resp, err)
			assert.Equal(t, row.status, resp.StatusCode)
			assert.Equal(t, row.tokens, tokens)
			api.AssertRequests(t, row.requests)
			for _, r := range api.Requests() {
				assert.Equal(t, "body", string(r.Body))
			}
		})
	}
}

// webhook verifies an event, and then executes it once, because senders repeat events. The event's
// ID is the key; the sender is the scope.
func webhook(verifier *webhooks.Webhook, store idempotency.Store, work func(context.Context, []byte) error) http.Handler {
	const largest = 1 << 20
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largest))
		if err != nil {
			http.Error(w, "cannot read the event", http.StatusBadRequest)
			return
		}
		if err := verifier.Verify(event, r.Header); err != nil {
			http.Error(w, "the signature is not valid", http.StatusUnauthorized)
			return
		}
		id := r.Header.Get(webhooks.HeaderWebhookID)
		once := func(ctx context.Context) (idempotency.Result, error) {
			return idempotency.Result{}, work(ctx, event)
		}
		fingerprint := idempotency.NewFingerprint(event)
		_, err = idempotency.Do(r.Context(), store, "bank.example", "event", id, fingerprint, once)
		if err != nil {
			http.Error(w, "not done yet: send the event again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func TestWebhook(t *testing.T) {
	verifier, err := webhooks.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	var work []string
	handler := webhook(verifier, new(idempotency.Memory), func(_ context.Context, event []byte) error {
		work = append(work, string(event))
		if len(work) == 1 {
			return idempotency.Retryable(errors.New("the database is busy"))
		}
		return nil
	})
	for _, row := range []struct {
		name, id, event, signed string
		status                  int
		work                    int // so far
	}{
		{"forged", "msg_1", `{"paid":1000}`, `{"paid":1}`, 401, 0},
		{"the work fails: the sender repeats", "msg_1", `{"paid":1}`, `{"paid":1}`, 503, 1},
		{"repeated: executed", "msg_1", `{"paid":1}`, `{"paid":1}`, 204, 2},
		{"repeated once more: not executed", "msg_1", `{"paid":1}`, `{"paid":1}`, 204, 2},
		{"another event", "msg_2", `{"paid":2}`, `{"paid":2}`, 204, 3},
	} {
		now := time.Now()
		signature, err := verifier.Sign(row.id, now, []byte(row.signed))
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/webhooks", bytes.NewReader([]byte(row.event)))
		r.Header.Set(webhooks.HeaderWebhookID, row.id)
		r.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
		r.Header.Set(webhooks.HeaderWebhookSignature, signature)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		assert.Equal(t, row.status, w.Code, row.name)
		assert.Len(t, work, row.work, row.name)
	}
}

// A refresher above a Transport keeps what the Transport promises. It repeats a 401 once, which is what it is for.
func TestRefresh_conforms(t *testing.T) {
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		return &refresher{
			Base:  &resilienthttp.Transport{Base: base},
			Host:  "fault.test",
			Token: func(context.Context, string) (string, error) { return "token", nil },
		}
	}, faulttest.Without("client-errors"))
}

// The other host is another owner, and http.Client removes only the fields that the caller has set.
func TestRefresh_redirect(t *testing.T) {
	other := start(t, faulttest.OK("fine"))
	api := start(t, faulttest.Redirect(http.StatusTemporaryRedirect, other.URL))
	transport := &refresher{
		Base: plain(nil), Host: strings.TrimPrefix(api.URL, "http://"),
		Token: func(context.Context, string) (string, error) { return "token", nil },
	}
	resp, err := (&http.Client{Transport: transport}).Get(api.URL)
	close1(t, resp, err)
	assert.Equal(t, "Bearer token", api.Requests()[0].Header.Get("Authorization"))
	assert.Empty(t, other.Requests()[0].Header.Get("Authorization"))
}

func TestRefresh_noToken(t *testing.T) {
	body := &closed{Reader: strings.NewReader("body")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test", body)
	require.NoError(t, err)
	transport := &refresher{Host: "api.test", Token: func(context.Context, string) (string, error) { return "", errors.New("no token") }}
	_, err = transport.RoundTrip(req)
	require.ErrorContains(t, err, "no token")
	assert.True(t, body.was)
}

// closed is a body that knows whether it was closed.
type closed struct {
	io.Reader

	was bool
}

func (c *closed) Close() error {
	c.was = true
	return nil
}
