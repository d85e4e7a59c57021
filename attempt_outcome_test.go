package resilienthttp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// §4.15: the outer circuit counts a rejection by an inner circuit as the failure that it stands for, and one by a rate limit not.
func TestInnerRejection_countedByOuterBreaker(t *testing.T) {
	for _, row := range []struct {
		name  string
		inner func(*resilienthttp.Transport)
		want  error
		state resilienthttp.BreakerState
	}{
		{"by its circuit: the server is away", func(tr *resilienthttp.Transport) { tr.Breaker = &resilienthttp.Breaker{MinRequests: 1} }, resilienthttp.ErrBreakerOpen, resilienthttp.StateOpen},
		{"by its rate limit", func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.001, Burst: 1, MaxWait: -1}
		}, resilienthttp.ErrRateLimited, resilienthttp.StateClosed},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			inner := bareTransport(puppetStatus(500), 1)
			row.inner(inner)
			tripped(t, inner, newCall(t.Context(), t, http.MethodGet, ""))
			outer := bareTransport(inner, 1)
			outer.Breaker = &resilienthttp.Breaker{MinRequests: 1}
			_, err := outer.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
			require.ErrorIs(t, err, row.want)
			require.Equal(t, row.state, outer.Breaker.State("api.test", resilienthttp.PriorityDefault))
		})
	}
}

// http.Client recognizes ErrSchemeMismatch only in a bare RecordHeaderError.
func TestSchemeMismatch(t *testing.T) {
	server := faulttest.New(t, nil)
	_, err := (&http.Client{Transport: bareTransport(&http.Transport{}, 2)}).Get("https" + strings.TrimPrefix(server.URL, "http"))
	require.ErrorIs(t, err, http.ErrSchemeMismatch)
	server.AssertRequests(t, 0)
}

// Bases that break the contract of http.RoundTripper.
func TestBadBases(t *testing.T) {
	t.Run("neither", func(t *testing.T) {
		breaker := nervous(time.Hour)
		base := script(func(*http.Request) (*http.Response, error) { return nil, nil })
		_, err := (&resilienthttp.Transport{Base: base, Breaker: breaker}).RoundTrip(get(t))
		require.ErrorContains(t, err, "neither a response nor an error")
		require.Len(t, base.calls(), 1, "one attempt")
		require.Equal(t, resilienthttp.StateClosed, breaker.State("api.test", resilienthttp.PriorityDefault))
	})
	t.Run("a zero response", func(t *testing.T) {
		resp, err := (&resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{}, nil
		})}).RoundTrip(get(t))
		require.NoError(t, err)
		require.Empty(t, readAll(t, resp))
	})
	bubble.Run(t, "nil bodies, retried", func(t *testing.T) {
		base := script(withBody(503, nil))
		resp, err := (&http.Client{Transport: &resilienthttp.Transport{Base: base}}).Do(get(t))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Empty(t, readAll(t, resp))
		require.Len(t, base.calls(), 4)
	})
	bubble.Run(t, "an error that cannot be compared", func(t *testing.T) {
		_, err := (&resilienthttp.Transport{Base: script(failing(listError{"a", "b"}))}).RoundTrip(get(t))
		require.Error(t, err)
		require.ErrorIs(t, err, resilienthttp.ErrMaxAttempts)
		require.Equal(t, "resilienthttp: no retries left: resilienthttp_test.listError (not shown) (attempt 5 ended with resilienthttp_test.listError (not shown))", err.Error())
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(listError{"c"})
		_, err = (&resilienthttp.Transport{Base: script(failing(listError{"a", "b"}))}).RoundTrip(get(t).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
	})
	bubble.Run(t, "panics in a retry", func(t *testing.T) {
		base := script(status(503), panicking("boom"), status(200))
		tr := &resilienthttp.Transport{Base: base, Budget: tokens(1)}
		require.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(get(t)) })
		base.requireBalance(t)
		readAll(t, roundTrip(t, tr, get(t)))
	})
	t.Run("the hooks of a hedge panic, and the first copy answers", func(t *testing.T) {
		for name, arrange := range map[string]func(*resilienthttp.Transport, *http.Request){
			"OnChange": func(tr *resilienthttp.Transport, _ *http.Request) {
				tr.Breaker = nervous(time.Hour)
				tr.Breaker.OnChange = func(resilienthttp.BreakerChange) { panic("boom") }
			},
			"GetBody": func(_ *resilienthttp.Transport, r *http.Request) {
				r.GetBody = func() (io.ReadCloser, error) { panic("boom") }
			},
		} {
			bubble.Run(t, name, func(t *testing.T) {
				base := script(after(3*time.Second, status(200)), status(500))
				tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: time.Second}}
				req := newRequest(t, "PUT", "http://api.test/", "content")
				arrange(tr, req)
				resp := roundTrip(t, tr, req)
				require.Equal(t, 200, resp.StatusCode)
				readAll(t, resp)
				synctest.Wait()
				base.requireBalance(t)
			})
		}
	})
}

// listError is an error that cannot be compared: to do so panics.
type listError []string

func (l listError) Error() string { return strings.Join(l, ", ") }

// If Base returns a response and an error, the response is closed.
func TestBrokenBase_responseIsClosed(t *testing.T) {
	base := script(func(r *http.Request) (*http.Response, error) { return response(r, 200, "x"), errReset })
	tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: -1}}
	_, err := tr.RoundTrip(get(t))
	require.ErrorIs(t, err, errReset)
	base.requireBalance(t)

	tr = &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK}, errReset
	})}
	_, err = tr.RoundTrip(get(t))
	require.ErrorIs(t, err, errReset)
}

// If a Base notices a deadline before the timer fires, the result is a deadline.
func TestDeadlineSeenEarly(t *testing.T) {
	tests := []struct {
		name string
		err  error
		is   error
	}{
		{"of package net", os.ErrDeadlineExceeded, resilienthttp.ErrDeadline},
		{"of package context", context.DeadlineExceeded, resilienthttp.ErrDeadline},
		{"of another package", &net.DNSError{Err: "slow", IsTimeout: true}, resilienthttp.ErrDeadline},
		{"something else", errReset, errReset},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			step := func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return nil, tt.err
			}
			ctx := earlyContext{t.Context(), time.Now().Add(time.Second)}
			put := newRequest(t, http.MethodPut, "http://api.test/", "")
			_, err := (&resilienthttp.Transport{Base: script(step)}).RoundTrip(put.WithContext(ctx))
			require.ErrorIs(t, err, tt.is)
			require.ErrorIs(t, err, tt.err)
			require.Len(t, asError(t, err).Attempts, 1)
			require.ErrorIs(t, err, resilienthttp.ErrDeadline, "no wait fits")

			if tt.err == errReset {
				return
			}
			// The same with the attempt's timeout, at the time at which its
			// timer fires.
			base := script(after(time.Second, failing(tt.err)))
			_, err = (&resilienthttp.Transport{
				Base: base, Policy: resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: -1},
			}).RoundTrip(get(t))
			require.Len(t, base.calls(), 1)
			require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
		})
	}
}

// earlyContext has a deadline that its Done does not know of.
type earlyContext struct {
	context.Context

	deadline time.Time
}

func (c earlyContext) Deadline() (time.Time, bool) { return c.deadline, true }

// §4.9: the caller's cancellation and deadline are never retried, even if Classify says so.
func TestCallerCanceled_noRetry(t *testing.T) {
	always := func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }
	t.Run("§4.9 canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			cancel()
			return nil, req.Context().Err()
		}), 3)
		transport.Policy.Classify = always
		attempts := tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
		require.ErrorIs(t, attempts[0].Err, context.Canceled)
	})
	bubble.Run(t, "§4.9 deadline", func(t *testing.T) {
		ctx := withDeadline(t, time.Second)
		transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, errors.New("some words of Base's")
		}), 3)
		transport.Policy.Classify = always
		attempts := tripped(t, transport, newCall(ctx, t, http.MethodPut, ""))
		require.Len(t, attempts, 1)
		require.ErrorIs(t, attempts[0].Err, context.DeadlineExceeded)
	})
	bubble.Run(t, "§4.9 attempt timeout may pass", func(t *testing.T) {
		transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}), 3)
		transport.Policy.AttemptTimeout = time.Second
		attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		require.Len(t, attempts, 3)
		require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict)
		require.ErrorIs(t, attempts[0].Err, resilienthttp.ErrAttemptTimeout)
		attempts = tripped(t, unkeyed(transport), newCall(t.Context(), t, http.MethodPost, "body"))
		require.Len(t, attempts, 1, "§4.8: it may have been processed")
		require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].StopReason)
	})
}

// §4.8: errors of net/http and the kernel for requests without a key. TestBrokenConnections has those of broken connections.
func TestUnkeyedOverSockets(t *testing.T) {
	t.Run("§4.8 malformed response", func(t *testing.T) {
		address, _ := rawServer(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "http: no Host in request URL\r\n\r\n")
		})
		attempts := realPOST(t, &http.Transport{}, "http://"+address)
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict, "the text of the server has no effect")
	})
	for name, rcode := range map[string]byte{"NXDOMAIN": 3, "SERVFAIL": 2} {
		t.Run("§4.8 DNS "+name, func(t *testing.T) {
			attempts := realPOST(t, &http.Transport{DialContext: dnsThatSays(t, rcode)}, "http://api.test./")
			var dns *net.DNSError
			require.ErrorAs(t, attempts[0].Err, &dns)
			if rcode == 3 {
				require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
				require.Len(t, attempts, 1)
			} else {
				require.Equal(t, resilienthttp.VerdictTransient, attempts[0].Verdict)
				require.Len(t, attempts, 2)
			}
		})
	}
	t.Run("§4.8 TLS to something else", func(t *testing.T) {
		address, accepted := rawServer(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "220 mail.test ESMTP\r\n")
		})
		attempts := realPOST(t, &http.Transport{}, "https://"+address)
		require.Len(t, attempts, 2)
		require.EqualValues(t, 2, accepted.Load())
	})
	t.Run("§4.9 TLS to a server without", func(t *testing.T) {
		server := faulttest.New(t, nil)
		attempts := realPOST(t, server.Transport(), "https"+strings.TrimPrefix(server.URL, "http"))
		require.Len(t, attempts, 1)
		server.AssertRequests(t, 0)
		require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
		require.NoError(t, attempts[0].StopReason)
	})
	t.Run("§4.8 proxy refused", func(t *testing.T) {
		address := closedPort(t)
		for _, scheme := range []string{"http", "socks5"} {
			proxy := &url.URL{Scheme: scheme, Host: address}
			attempts := realPOST(t, &http.Transport{Proxy: http.ProxyURL(proxy)}, "https://api.test/")
			require.Len(t, attempts, 2, scheme)
		}
	})
	t.Run("§4.8 SOCKS proxy rejects", func(t *testing.T) {
		address, _ := rawServer(t, func(conn net.Conn) {
			buf := make([]byte, 512)
			_, _ = conn.Read(buf)
			_, _ = conn.Write([]byte{5, 0})
			_, _ = conn.Read(buf)
			_, _ = conn.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0}) // host unreachable
		})
		attempts := realPOST(t, &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5", Host: address})}, "http://api.test/")
		require.Len(t, attempts, 2)
	})
}

// socksProxy is a SOCKS5 proxy that chooses an authentication method, and replies to
// CONNECT.
func socksProxy(t *testing.T, method, reply byte) (base *http.Transport, accepted *atomic.Int64) {
	t.Helper()
	address, accepted := rawServer(t, func(conn net.Conn) {
		buf := make([]byte, 512)
		if _, err := conn.Read(buf); err != nil {
			return
		}
		_, _ = conn.Write([]byte{5, method})
		if method == 2 {
			_, _ = conn.Read(buf)
			_, _ = conn.Write([]byte{1, 1}) // wrong password
		}
		if n, _ := conn.Read(buf); n > 0 {
			_, _ = conn.Write([]byte{5, reply, 0, 1, 0, 0, 0, 0, 0, 0})
		}
	})
	base = resilienthttp.NewBase()
	base.Proxy = http.ProxyURL(&url.URL{Scheme: "socks5", Host: address, User: url.UserPassword("me", "s3cret")})
	t.Cleanup(base.CloseIdleConnections)
	return base, accepted
}

// §4.9: replies of a SOCKS5 proxy (RFC 1928, section 6). A rejection gets one attempt. An
// unreachable server is the server's failure.
func TestSOCKS(t *testing.T) {
	for _, row := range []struct {
		name          string
		method, reply byte
		attempts      int
	}{
		{"no acceptable method: once", 0xff, 0, 1},
		{"another method: once", 1, 0, 1},
		{"wrong password: once", 2, 0, 1},
		{"general failure: retried", 0, 1, 4},
		{"not allowed by ruleset: once", 0, 2, 1},
		{"network unreachable: retried", 0, 3, 4},
		{"host unreachable: retried", 0, 4, 4},
		{"connection refused: retried", 0, 5, 4},
		{"TTL expired: retried", 0, 6, 4},
		{"command not supported: once", 0, 7, 1},
		{"address type not supported: once", 0, 8, 1},
		{"a code of its own: retried", 0, 240, 4},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(row.name+", "+scheme, func(t *testing.T) {
				base, accepted := socksProxy(t, row.method, row.reply)
				tr := bareTransport(base, 4)
				tr.Breaker = &resilienthttp.Breaker{}
				_, err := tr.RoundTrip(newRequest(t, http.MethodGet, scheme+"://api.test/", ""))
				failed := asError(t, err)
				require.Len(t, failed.Attempts, row.attempts, "%v", err)
				require.EqualValues(t, row.attempts, accepted.Load())
				require.Equal(t, row.attempts == 1, failed.Attempts[0].Verdict == resilienthttp.VerdictPermanent)
				require.True(t, failed.NotSent())
				require.NotContains(t, err.Error(), "s3cret")
				require.ErrorContains(t, err, "socks connect")
				failures := tr.State().Scopes[0].Breaker.Failures
				require.Equal(t, row.attempts > 1, failures > 0, "%d failures of the server", failures)
			})
		}
	}
}

// A zero Transport makes one attempt if a retry cannot succeed, and
// the budget does not change. The circuit does not count responses of intermediaries.
func TestPermanentFailures(t *testing.T) {
	wrongClient := puppet(func(*http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Get", URL: "https://api.test/", Err: &RetrieveError{
			Response: &http.Response{StatusCode: http.StatusUnauthorized}, ErrorCode: "invalid_client",
		}}
	})
	httpProxy, asked := rawServer(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
	})
	viaHTTP := resilienthttp.NewBase()
	viaHTTP.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: httpProxy})
	viaSOCKS, askedSOCKS := socksProxy(t, 0, 2)
	unknown := resilienthttp.NewBase()
	unknown.DialContext = dnsThatSays(t, 3)
	secure, untrusting, served := tlsServer(t, func(_, client *tls.Config) { client.RootCAs = x509.NewCertPool() })
	for _, row := range []struct {
		name      string
		base      http.RoundTripper
		url       string
		arrivals  func() int64 // at the proxy
		elsewhere bool         // an intermediary responded
	}{
		{"wrong OAuth client", wrongClient, "https://api.test/", nil, true},
		{"proxy says 407", viaHTTP, "https://api.test/", asked.Load, true},
		{"SOCKS5 proxy rejects", viaSOCKS, "https://api.test/", askedSOCKS.Load, true},
		{"unknown host", unknown, "https://api.test./", nil, false},
		{"bad certificate", untrusting, secure, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			healthy := &resilienthttp.Transport{Base: puppetStatus(200)}
			resp, err := healthy.RoundTrip(newRequest(t, http.MethodPut, row.url, "body"))
			require.NoError(t, err)
			readAll(t, resp)

			tr := &resilienthttp.Transport{Base: row.base}
			start := time.Now()
			_, err = tr.RoundTrip(newRequest(t, http.MethodPut, row.url, "body"))
			failed := asError(t, err)
			require.Len(t, failed.Attempts, 1, "%v", err)
			require.NoError(t, failed.Attempts[0].StopReason)
			require.Less(t, time.Since(start), 5*time.Second)
			if row.arrivals != nil {
				require.EqualValues(t, 1, row.arrivals())
			}
			scope := tr.State().Scopes[0]
			require.Equal(t, healthy.State().Scopes[0].Budget, scope.Budget)
			if row.elsewhere {
				require.Zero(t, scope.Breaker.Calls)
			}
			require.Zero(t, served.Total())
		})
	}
}

// dnsThatSays dials with a resolver that always returns rcode.
func dnsThatSays(t *testing.T, rcode byte) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			// A response is the query with QR and the rcode set.
			buf[2] |= 0x80
			buf[3] = buf[3]&0x70 | rcode
			_, _ = server.WriteTo(buf[:n], from)
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}}
	return dialer.DialContext
}

// tlsServer is an HTTPS server with the configuration, and a client's that
// trusts it.
func tlsServer(t *testing.T, change func(server, client *tls.Config)) (url string, client *http.Transport, served *faulttest.Log) {
	t.Helper()
	served = new(faulttest.Log)
	server := httptest.NewUnstartedServer(served.Record(nil))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{}
	clientConfig := &tls.Config{}
	change(server.TLS, clientConfig)
	server.StartTLS()
	t.Cleanup(server.Close)
	if clientConfig.RootCAs == nil {
		clientConfig.RootCAs = x509.NewCertPool()
		clientConfig.RootCAs.AddCert(server.Certificate())
	}
	return server.URL, &http.Transport{TLSClientConfig: clientConfig}, served
}

// §4.8, §4.9: TLS handshakes that fail, over loopback sockets. No request reaches the handler.
func TestHandshakes(t *testing.T) {
	expired := certificate(t, time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour))
	for _, row := range []struct {
		name     string
		change   func(server, client *tls.Config)
		want     resilienthttp.Verdict
		attempts int
	}{
		{"protocol version", func(server, client *tls.Config) {
			server.MinVersion, client.MaxVersion = tls.VersionTLS13, tls.VersionTLS12
		}, resilienthttp.VerdictTransient, 2},
		{"no cipher in common", func(server, client *tls.Config) {
			server.MaxVersion = tls.VersionTLS12
			server.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}
			client.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
		}, resilienthttp.VerdictTransient, 2},
		{"no protocol in common", func(server, client *tls.Config) {
			server.NextProtos, client.NextProtos = []string{"spdy/1"}, []string{"gopher"}
		}, resilienthttp.VerdictTransient, 2},
		{"unknown authority", func(_, client *tls.Config) {
			client.RootCAs = x509.NewCertPool()
		}, resilienthttp.VerdictPermanent, 1},
		{"wrong name", func(_, client *tls.Config) {
			client.ServerName = "elsewhere.test"
		}, resilienthttp.VerdictPermanent, 1},
		{"expired", func(server, client *tls.Config) {
			server.Certificates = []tls.Certificate{expired}
			client.RootCAs = x509.NewCertPool()
			client.RootCAs.AddCert(expired.Leaf)
		}, resilienthttp.VerdictPermanent, 1},
		{"client certificate wanted, TLS 1.3", func(server, _ *tls.Config) {
			server.ClientAuth = tls.RequireAnyClientCert
		}, resilienthttp.VerdictPermanent, 1},
		{"client certificate wanted, TLS 1.2", func(server, _ *tls.Config) {
			server.ClientAuth, server.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
		}, resilienthttp.VerdictTransient, 2}, // TLS 1.2 reports only a handshake_failure
		{"client certificate of an unknown authority", func(server, client *tls.Config) {
			server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &expired, nil }
		}, resilienthttp.VerdictPermanent, 1},
	} {
		t.Run("§4.9 "+row.name, func(t *testing.T) {
			url, base, served := tlsServer(t, row.change)
			attempts := realPOST(t, base, url)
			require.Equal(t, row.want, attempts[0].Verdict, "%v", attempts[0].Err)
			require.Len(t, attempts, row.attempts, "%v", attempts[0].Err)
			served.AssertRequests(t, 0)
		})
	}
	bubble.Run(t, "§4.8 handshake timeout", func(t *testing.T) {
		n := memhttp.NewNetwork(t)
		l := n.Listen("silent.test")
		t.Cleanup(func() { _ = l.Close() })
		base := n.Transport()
		base.TLSHandshakeTimeout = time.Second
		attempts := realPOST(t, base, "https://silent.test/")
		require.Len(t, attempts, 2)
		require.Equal(t, time.Second, attempts[0].Latency)
	})
	t.Run("§4.8 hung up in the handshake, under instrumentation", func(t *testing.T) {
		for name, row := range map[string]struct {
			wrap     func(http.RoundTripper) http.RoundTripper
			attempts int
		}{
			"that unwraps":      {func(base http.RoundTripper) http.RoundTripper { return &unwrapping{base, base} }, 2},
			"that does not":     {func(base http.RoundTripper) http.RoundTripper { return roundTripper(base.RoundTrip) }, 1},
			"that loops":        {func(base http.RoundTripper) http.RoundTripper { u := &unwrapping{base, nil}; u.inner = u; return u }, 1},
			"that unwraps none": {func(base http.RoundTripper) http.RoundTripper { return &unwrapping{base, nil} }, 1},
		} {
			bubble.Run(t, name, func(t *testing.T) {
				n := memhttp.NewNetwork(t)
				l := n.Listen("silent.test")
				t.Cleanup(func() { _ = l.Close() })
				go func() {
					for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
						_ = conn.Close() // an EOF could also mean that the request was sent
					}
				}()
				base := n.Transport()
				t.Cleanup(base.CloseIdleConnections)
				req := newRequest(t, http.MethodPost, "https://silent.test/", "charge")
				require.Len(t, tripped(t, unkeyed(bareTransport(row.wrap(base), 2)), req), row.attempts)
			})
		}
	})
	bubble.Run(t, "§4.8 broken after the handshake", func(t *testing.T) {
		// The response is a record of the wrong version: the same type of error
		// as for a server without TLS, but the request has arrived.
		var served faulttest.Log
		server := memhttp.NewServer(t, served.Record(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = memhttp.RequestConn(r).Write([]byte{23, 9, 9, 0, 1, 0})
			<-r.Context().Done()
		})), memhttp.TLS())
		attempts := realPOST(t, server.Transport(), server.URL)
		var record tls.RecordHeaderError
		require.ErrorAs(t, attempts[0].Err, &record)
		require.Len(t, attempts, 1)
		served.AssertRequests(t, 1)
	})
}

// unwrapping is a Base that has Unwrap.
type unwrapping struct {
	http.RoundTripper
	inner http.RoundTripper
}

func (u *unwrapping) Unwrap() http.RoundTripper { return u.inner }

// certificate returns a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T, from, to time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
