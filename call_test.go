package resilienthttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// Bad input causes a clear error or a documented clamp, and never a panic of this module, a hang, a
// leak or a hot loop. The bubbles of synctest detect hangs and leaks.

// §4.9: a request that cannot be sent fails once, its body is closed, and the circuit does not count it. The texts are those of
// net/http, for HTTP/1 and HTTP/2.
func TestBadRequests(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header = http.Header{name: {value}} }
	}
	tests := []struct {
		name  string
		spoil func(*http.Request)
		text  string // of the error over HTTP/1
		text2 string // over HTTP/2, where it is another; "-": it is taken
		early bool   // fails before any attempt
	}{
		{"nil URL", func(r *http.Request) { r.URL = nil }, "nil Request.URL", "", true},
		{"nil body with a length", func(r *http.Request) { r.Body = nil }, "ContentLength 7 with nil Body", "", true},
		{"nil body with an unknown length", func(r *http.Request) { r.Body, r.ContentLength = nil, -1 }, "ContentLength -1 with nil Body", "", true},
		{"a key with a control character", func(r *http.Request) {
			*r = *r.WithContext(resilienthttp.WithIdempotencyKey(r.Context(), "a\nb"))
		}, "idempotency key", "", true},
		{"a key that is too long", func(r *http.Request) {
			*r = *r.WithContext(resilienthttp.WithIdempotencyKey(r.Context(), strings.Repeat("k", 256)))
		}, "idempotency key", "", true},
		{"empty host", func(r *http.Request) { r.URL.Host = "" }, "no Host in request URL", "", false},
		{"empty URL", func(r *http.Request) { r.URL = &url.URL{} }, "unsupported protocol scheme", "", false},
		{"unknown scheme", func(r *http.Request) { r.URL.Scheme = "gopher" }, "unsupported protocol scheme", "", false},
		{"no scheme", func(r *http.Request) { r.URL.Scheme = "" }, "unsupported protocol scheme", "", false},
		{"method with a blank", func(r *http.Request) { r.Method = "GE T" }, "invalid method", "", false},
		{"header value with a newline", header("X-A", "a\r\nX-Injected: "+secret), "invalid header field value", "", false},
		{"header value with a NUL", header("X-A", secret+"\x00"), "invalid header field value", "", false},
		{"header name with a newline", header("X-A\r\nX-B", secret), "invalid header field name", "", false},
		{"empty header name", header("", secret), "invalid header field name", "", false},
		{"trailer with a newline", func(r *http.Request) {
			r.Trailer = http.Header{"X-T": {secret + "\n"}}
		}, "invalid trailer field value", "", false},
		{"trailer name with a blank", func(r *http.Request) { r.Trailer = http.Header{"a b": nil} }, "invalid trailer field name", "", false},
		{"trailer that is none", func(r *http.Request) {
			r.Trailer, r.ContentLength = http.Header{"Content-Length": nil}, -1
		}, "invalid Trailer key", "-", false},
		{"host with a blank", func(r *http.Request) { r.Host = "a b" }, "-", "invalid Host header", false}, // HTTP/1 sends an empty one
		{"path with a control character", func(r *http.Request) {
			r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Opaque: "/a\nb?" + secret}
		}, "can't write control character in Request.URL", "-", false},
		{"length too small", func(r *http.Request) { r.ContentLength = 3 }, "http: ContentLength", "request body larger than specified content length", false},
		{"length too large", func(r *http.Request) { r.ContentLength = 30 }, "http: ContentLength", "-", false}, // HTTP/2 leaves that to the server
		{"HTTP/2 and Upgrade", header("Upgrade", secret), "-", "invalid Upgrade request header", false},
		{"HTTP/2 and Connection", header("Connection", "upgrade, "+secret), "-", "invalid Connection request header", false},
		{"HTTP/2 and Transfer-Encoding", header("Transfer-Encoding", secret), "-", "invalid Transfer-Encoding request header", false},
		{"HTTP/2 and a path without a slash", func(r *http.Request) {
			r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Opaque: "x?" + secret}
		}, "-", "invalid request :path", false},
	}
	for _, tt := range tests {
		for _, h2 := range []bool{false, true} {
			text := tt.text
			if h2 && tt.text2 != "" {
				text = tt.text2
			}
			if text == "-" {
				continue
			}
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", tt.name, h2), func(t *testing.T) {
				const tries = 3
				raced := true
				for try := 0; raced && try < tries; try++ {
					synctest.Test(t, func(t *testing.T) {
						raced = false
						var options []memhttp.Option
						if h2 {
							options = append(options, memhttp.HTTP2())
						}
						s := memhttp.NewServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
							_, _ = io.Copy(io.Discard, r.Body)
							<-r.Context().Done() // a response could arrive before the error
						}), options...)
						base := &countingBase{base: s.Transport()}
						tr := &resilienthttp.Transport{Base: base, Breaker: nervous(time.Hour)}
						req := newRequest(t, "PUT", s.URL, "")
						body := &trackedBody{Reader: bytes.NewReader([]byte("content"))}
						req.Body, req.ContentLength = body, 7
						req.GetBody = func() (io.ReadCloser, error) {
							return &trackedBody{Reader: bytes.NewReader([]byte("content"))}, nil
						}
						tt.spoil(req)
						start := time.Now()
						resp, err := tr.RoundTrip(req)
						require.Nil(t, resp)
						require.Error(t, err)
						require.NotContains(t, err.Error(), secret)
						// net/http closes the connection at a request that it cannot write, and rarely sees that first.
						if raced = strings.Contains(err.Error(), "use of closed network connection"); raced {
							return
						}
						require.ErrorContains(t, err, text)
						require.NotContains(t, err.Error(), "\n")
						synctest.Wait()
						if req.Body != nil {
							require.Positive(t, body.closes.Load(), "the body is closed")
						}
						attempts := asError(t, err).Attempts
						if tt.early {
							require.Empty(t, attempts)
							require.Zero(t, time.Since(start))
							return
						}
						require.Len(t, attempts, 1, "%v", attempts)
						require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
						require.NoError(t, attempts[0].StopReason)
						require.Zero(t, time.Since(start))
						if req.URL.Host != "" {
							require.Equal(t, resilienthttp.StateClosed, tr.Breaker.State(req.URL.Host, resilienthttp.PriorityDefault), "the breaker does not count it")
						}
					})
				}
				require.False(t, raced, "in %d tries", tries)
			})
		}
	}
}

func TestNilRequest(t *testing.T) {
	_, err := (&resilienthttp.Transport{}).RoundTrip(nil)
	require.ErrorContains(t, err, "nil Request")
	require.IsType(t, (*resilienthttp.Error)(nil), err)
}

func TestZeroRequest(t *testing.T) {
	_, err := (&resilienthttp.Transport{}).RoundTrip(&http.Request{})
	require.ErrorContains(t, err, "nil Request.URL")
}

// A nil header counts as an empty one.
func TestNilHeader(t *testing.T) {
	for name, tr := range map[string]*resilienthttp.Transport{
		"nothing added":    {},
		"ownership added":  {OwnsRetries: true},
		"no key, but owns": {OwnsRetries: true, Idempotency: resilienthttp.Idempotency{Disabled: true}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			s := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			tr.Base = s.Transport()
			for _, method := range []string{"GET", "POST", ""} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				req := newRequest(t, method, s.URL, "").WithContext(ctx)
				req.Method, req.Header = method, nil
				readAll(t, roundTrip(t, tr, req))
				require.Nil(t, req.Header)
				cancel()
			}
		})
	}
}
