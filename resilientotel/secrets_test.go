package resilientotel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// T15: an error of Base quotes a secret of the request, and neither spans nor metrics show it.
func FuzzSecrets(f *testing.F) {
	for _, before := range []string{"", "POST ", "EOF: ", "malformed HTTP response ", "a\nb"} {
		for place := range uint8(9) {
			for layer := range uint8(7) {
				f.Add(before, place, layer)
			}
		}
	}
	f.Fuzz(func(t *testing.T, before string, place, layer uint8) {
		const secret = "q7zx5j"
		if strings.Contains(before, secret) {
			t.Skip()
		}
		r := record()
		rt := r.Wrap(&resilienthttp.Transport{
			Policy: resilienthttp.Policy{MaxAttempts: -1},
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				password, _ := r.URL.User.Password()
				text := before + [...]string{
					r.URL.String(), r.URL.Path, r.URL.RawQuery, r.URL.Fragment, password, r.URL.RequestURI(),
					r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"), string(body),
				}[place%9]
				err := errors.New(text)
				switch layer % 7 {
				case 1:
					err = fmt.Errorf("%s: %w", text, io.EOF)
				case 2:
					err = &neturl.Error{Op: text, URL: text, Err: err}
				case 3:
					err = errors.Join(io.EOF, err)
				case 4:
					err = &net.OpError{Op: text, Net: text, Err: &net.DNSError{Err: text, Name: "/" + text, Server: text}}
				case 5:
					return &http.Response{
						StatusCode: http.StatusOK, Status: text, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
						Header: http.Header{"X-Token": {secret}}, Body: io.NopCloser(failingReader{err}),
					}, nil
				case 6:
					return respond(r, http.StatusUnauthorized, "X-Token", secret, "Www-Authenticate", secret), nil
				}
				return nil, err
			}),
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+secret+":"+secret+"@api.test/"+secret+"?"+secret+"="+secret+"#"+secret, strings.NewReader(secret))
		require.NoError(t, err)
		for _, name := range []string{"Authorization", "Cookie", "Idempotency-Key", "X-Own"} {
			req.Header.Set(name, secret)
		}
		if resp, err := rt.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		r.allEnded(t)
		text := r.everything(t)
		require.Contains(t, text, "api.test")
		require.NotContains(t, text, secret)
	})
}
