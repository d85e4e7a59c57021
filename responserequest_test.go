package resilienthttp_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// signing returns a Base that sends a signed copy of each request to another URL, as a signer or a recorder does.
func signing(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		signed := req.Clone(req.Context())
		signed.Header.Set("Authorization", "signature")
		signed.URL.Host, signed.Host = "recorder.test", "recorder.test"
		signed.URL.RawQuery = "signature=1"
		return next.RoundTrip(signed)
	})
}

// §4.3: Response.Request is what Base has sent, if that is another request than the client's: its method, URL and header. It has no
// field of the client, and the caller's body and context.
func TestResponseRequest_ofBase(t *testing.T) {
	type key struct{}
	for _, row := range []struct {
		name  string
		base  func(http.RoundTripper) http.RoundTripper
		url   string
		sign  string
		added int // fields of the header
	}{
		{"the client's request", func(next http.RoundTripper) http.RoundTripper { return next }, "http://api.test/orders", "", 1},
		{"a signed copy", signing, "http://recorder.test/orders?signature=1", "signature", 2},
		{"a signer in a Transport", func(next http.RoundTripper) http.RoundTripper { return bareTransport(signing(next), 1) },
			"http://recorder.test/orders?signature=1", "signature", 2},
		{"none", func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				resp.Request = nil
				return resp, err
			})
		}, "http://api.test/orders", "", 1},
		{"one without a URL", func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				resp.Request = &http.Request{Method: http.MethodPatch}
				return resp, err
			})
		}, "http://api.test/orders", "", 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(status(503), status(200))
			tr := bareTransport(row.base(base), 3)
			tr.OwnsRetries = true
			req := newRequest(t, http.MethodPost, "http://api.test/orders", "order")
			req.Header.Set("X-Own", "1")
			ctx := context.WithValue(t.Context(), key{}, "value")
			req = req.WithContext(resilienthttp.WithPriority(ctx, resilienthttp.PriorityCritical))
			before := stateOf(req)
			resp := do(t, &http.Client{Transport: tr}, req)
			readAll(t, resp)
			before.requireUnchanged(t)
			require.Len(t, resilienthttp.Attempts(resp), 2)
			sent := resp.Request
			require.Equal(t, row.url, sent.URL.String())
			require.Equal(t, http.MethodPost, sent.Method)
			require.Equal(t, row.sign, sent.Header.Get("Authorization"))
			require.Equal(t, "1", sent.Header.Get("X-Own"))
			require.Len(t, sent.Header, row.added, "%v", sent.Header)
			require.Equal(t, req.Body, sent.Body)
			require.Equal(t, "value", sent.Context().Value(key{}))
			require.NoError(t, sent.Context().Err())
			require.False(t, resilienthttp.InDoubt(resp, nil))

			// The program sends it again: another operation.
			first := base.calls()[0].Header.Get("Idempotency-Key")
			var err error
			sent.Body, err = sent.GetBody()
			require.NoError(t, err)
			readAll(t, do(t, &http.Client{Transport: tr}, sent))
			last := base.calls()[2]
			require.Equal(t, "order", last.Text)
			require.NoError(t, uuid.Validate(last.Header.Get("Idempotency-Key")))
			require.NotEqual(t, first, last.Header.Get("Idempotency-Key"))
		})
	}
	bubble.Run(t, "the caller's own key stays", func(t *testing.T) {
		req := newRequest(t, http.MethodPost, "http://api.test/orders", "order")
		req.Header.Set("Idempotency-Key", "invoice-1")
		resp := roundTrip(t, bareTransport(signing(script(status(200))), 1), req)
		readAll(t, resp)
		require.Equal(t, "invoice-1", resp.Request.Header.Get("Idempotency-Key"))
	})
	bubble.Run(t, "net/http sends the client's request", func(t *testing.T) {
		server := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, body := range []string{"", "body"} {
			req := newRequest(t, http.MethodPost, server.URL, body)
			resp := roundTrip(t, &resilienthttp.Transport{Base: server.Transport()}, req)
			readAll(t, resp)
			require.Empty(t, resp.Request.Header, "added fields are only on the attempts")
		}
	})
}

// §4.3, §4.8: what a Base makes of a request changes nothing of a redirect: the chain is that of the caller's requests.
func TestResponseRequest_redirects(t *testing.T) {
	for _, row := range []struct {
		name     string
		location string
		code     int
		sameKey  bool
		priority string // after the redirect
	}{
		{"to the same origin: the same operation", "/b", 307, true, "critical"},
		{"to the origin that only Base knows: another one", "http://recorder.test/b", 307, false, ""},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(status(row.code, "Location", row.location), status(200))
			client := &http.Client{Transport: bareTransport(signing(base), 1)}
			req := newRequest(t, http.MethodPost, "http://api.test/a", "order")
			req.Header.Set("X-Request-Priority", "critical")
			resp := do(t, client, req)
			readAll(t, resp)
			calls := base.calls()
			require.Len(t, calls, 2)
			same := calls[0].Header.Get("Idempotency-Key") == calls[1].Header.Get("Idempotency-Key")
			require.Equal(t, row.sameKey, same, "%v", calls)
			require.Equal(t, row.priority, calls[1].Header.Get("X-Request-Priority"))
			require.Equal(t, "/b", resp.Request.URL.Path)
		})
	}
	bubble.Run(t, "a POST that Base sends as a GET is in doubt", func(t *testing.T) {
		override := roundTripper(func(req *http.Request) (*http.Response, error) {
			sent := req.Clone(req.Context())
			sent.Method = http.MethodGet
			return status(500)(sent)
		})
		resp := roundTrip(t, bareTransport(override, 1), newRequest(t, http.MethodPost, "http://api.test/", ""))
		readAll(t, resp)
		require.Equal(t, http.MethodGet, resp.Request.Method)
		require.True(t, resilienthttp.InDoubt(resp, nil))
	})
	bubble.Run(t, "a redirect of a POST that Base sends as a GET stays in doubt", func(t *testing.T) {
		base := script(status(303, "Location", "/result"), status(500))
		override := roundTripper(func(req *http.Request) (*http.Response, error) {
			sent := req.Clone(req.Context())
			sent.Method = http.MethodGet
			return base.RoundTrip(sent)
		})
		resp := do(t, &http.Client{Transport: bareTransport(override, 1)}, newRequest(t, http.MethodPost, "http://api.test/", ""))
		readAll(t, resp)
		require.True(t, resilienthttp.InDoubt(resp, nil))
	})
	bubble.Run(t, "a POST in doubt is not redirected to the host of Base", func(t *testing.T) {
		base := script(status(500), status(307, "Location", "http://recorder.test/b"), status(200))
		_, err := (&http.Client{Transport: bareTransport(signing(base), 2)}).Do(newRequest(t, http.MethodPost, "http://api.test/a", "order"))
		require.ErrorContains(t, err, "redirected to another server")
		require.Len(t, base.calls(), 2)
	})
}
