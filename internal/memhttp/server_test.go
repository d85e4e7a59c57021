package memhttp_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// both runs f in a bubble and in real time.
func both(t *testing.T, f func(t *testing.T)) {
	bubble.Run(t, "bubble", f)
	t.Run("real time", f)
}

// protocols are the protocols that the server tests run over.
var protocols = []struct {
	name  string
	opts  []memhttp.Option
	major int
}{
	{"http/1", nil, 1},
	{"h2c", []memhttp.Option{memhttp.HTTP2()}, 2},
	{"https/1", []memhttp.Option{memhttp.TLS()}, 1},
	{"https/2", []memhttp.Option{memhttp.TLS(), memhttp.HTTP2()}, 2},
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestRequestConn_panicsForOtherRequests(t *testing.T) {
	require.Panics(t, func() { memhttp.RequestConn(mustGet(t, "http://mem.test")) })
}

func TestCertificates(t *testing.T) {
	for _, row := range []struct {
		name string
		url  string
		tls  func(*tls.Config)
		want any
	}{
		{"trusted", "https://mem.test:8443", func(*tls.Config) {}, nil},
		{"unknown authority", "https://mem.test:8443", func(c *tls.Config) { c.RootCAs = nil }, new(*tls.CertificateVerificationError)},
		{"another name", "https://mem.test:8443", func(c *tls.Config) { c.ServerName = "x.test" }, new(x509.HostnameError)},
	} {
		t.Run(row.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				s := memhttp.NewServer(t, hello, memhttp.TLS(), memhttp.Host("mem.test:8443"))
				tr := s.Transport()
				row.tls(tr.TLSClientConfig)
				resp, err := tr.RoundTrip(mustGet(t, row.url))
				if row.want != nil {
					require.ErrorAs(t, err, row.want)
					return
				}
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

func mustGet(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}
