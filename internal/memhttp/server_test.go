package memhttp_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

func each(t *testing.T, f func(t *testing.T, major int, opts []memhttp.Option)) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			both(t, func(t *testing.T) { f(t, p.major, p.opts) })
		})
	}
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

func TestBodies(t *testing.T) {
	each(t, func(t *testing.T, major int, opts []memhttp.Option) {
		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, major, r.ProtoMajor)
			// Otherwise HTTP/1 closes a connection if it answers before it has read
			// the request.
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.Copy(w, r.Body)
		}), opts...)
		c := &http.Client{Transport: s.Transport()}
		for _, size := range []int{0, 1, 1 << 20} {
			body := bytes.Repeat([]byte{'x'}, size)
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				req, err := http.NewRequestWithContext(t.Context(), method, s.URL, bytes.NewReader(body))
				require.NoError(t, err)
				resp, err := c.Do(req)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.True(t, bytes.Equal(body, got), "%s of %d bytes", method, size)
			}
		}
		opened, open := s.Conns()
		require.Positive(t, open)
		require.LessOrEqual(t, opened, major, "net/http seldom opens a second connection for HTTP/2")
		c.CloseIdleConnections()
		_, open = s.Conns()
		require.Zero(t, open)
	})
}

func TestManyRequests(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(t, hello)
		c := &http.Client{Transport: s.Transport()}
		for range n {
			status, body := get(t, c, s.URL)
			require.Equal(t, 200, status)
			require.Equal(t, "hello", body)
		}
		opened, _ := s.Conns()
		require.Equal(t, 1, opened)
	})
}

func TestConcurrentRequests(t *testing.T) {
	each(t, func(t *testing.T, _ int, opts []memhttp.Option) {
		s := memhttp.NewServer(t, hello, opts...)
		c := &http.Client{Transport: s.Transport()}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				resp, err := c.Get(s.URL)
				if assert.NoError(t, err) {
					_, err = io.Copy(io.Discard, resp.Body)
					assert.NoError(t, err)
					assert.NoError(t, resp.Body.Close())
				}
			})
		}
		wg.Wait()
	})
}

func TestUpgrade(t *testing.T) {
	both(t, func(t *testing.T) {
		s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, rw, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			_, err = io.Copy(c, rw)
			assert.NoError(t, err)
			assert.NoError(t, c.Close())
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := s.Transport().RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		rw := resp.Body.(io.ReadWriteCloser)
		r := bufio.NewReader(rw)
		for _, line := range []string{"one\n", "two\n"} {
			_, err = io.WriteString(rw, line)
			require.NoError(t, err)
			got, err := r.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, line, got)
		}
		require.NoError(t, rw.Close())
	})
}

func TestExpectContinue(t *testing.T) {
	for _, row := range []struct {
		name   string
		accept bool
	}{{"wanted", true}, {"refused", false}} {
		bubble.Run(t, row.name, func(t *testing.T) {
			s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !row.accept {
					w.WriteHeader(http.StatusExpectationFailed)
					return
				}
				_, _ = io.Copy(w, r.Body)
			}))
			tr := s.Transport()
			tr.ExpectContinueTimeout = time.Hour
			var got100 atomic.Bool
			var read atomic.Int64
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { got100.Store(true) }})
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL, countingReader{strings.NewReader("body"), &read})
			require.NoError(t, err)
			req.ContentLength = 4
			req.Header.Set("Expect", "100-continue")
			begin := time.Now()
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Less(t, time.Since(begin), time.Minute)
			require.Equal(t, row.accept, got100.Load())
			if row.accept {
				require.Equal(t, "body", string(body))
			} else {
				require.Zero(t, read.Load())
			}
		})
	}
}

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

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
