package resilienthttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// This file has tests of what callers and other clients read in errors: texts, types and methods.

// errorOf returns the error of a GET by an http.Client.
func errorOf(t *testing.T, rt http.RoundTripper, url string) error {
	t.Helper()
	resp, err := (&http.Client{Transport: rt}).Do(newRequest(t, http.MethodGet, url, ""))
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return err
}

// §4.7: an error has the text that a bare client shows, without what it quotes.
func TestErrorTexts_asBare(t *testing.T) {
	answer := func(text string) func(*testing.T) *http.Transport {
		return func(t *testing.T) *http.Transport {
			n := memhttp.NewNetwork(t)
			serveRaw(t, n.Listen("api.test"), func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, text)
			})
			return n.Transport()
		}
	}
	silent := func(t *testing.T) *http.Transport {
		n := memhttp.NewNetwork(t)
		serveRaw(t, n.Listen("api.test"), func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		tr := n.Transport()
		tr.ResponseHeaderTimeout = time.Second
		return tr
	}
	for _, row := range []struct {
		name string
		url  string
		base func(*testing.T) *http.Transport
		text string
	}{
		{"HTTP to HTTPS", "https://api.test:80/", answer("HTTP/1.1 400 Bad Request\r\n\r\n"), "http: server gave HTTP response to HTTPS client"},
		{"no TLS", "https://api.test:80/", answer("hello, is anyone there"), "tls: first record does not look like a TLS handshake"},
		{"status", "http://api.test/", answer("HTTP/1.1 s3cr3t\r\n\r\n"), `net/http: HTTP/1.x transport connection broken: malformed HTTP status code "…"`},
		{"response", "http://api.test/", answer("s3cr3t\r\n\r\n"), `net/http: HTTP/1.x transport connection broken: malformed HTTP response "…"`},
		{"header", "http://api.test/", answer("HTTP/1.1 200 OK\r\ns3cr3t\r\n\r\n"), `net/http: HTTP/1.x transport connection broken: malformed MIME header: missing colon: "…"`},
		{"no header in time", "http://api.test/", silent, "net/http: timeout awaiting response headers"},
		{"scheme", "ftp://api.test/", silent, `unsupported protocol scheme "ftp"`},
		{"end of the connection", "http://api.test/", answer(""), "EOF"},
		{"no server", "http://none.test/", silent, "dial tcp"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := row.base(t)
			tr := bareTransport(base, 2)
			var log bytes.Buffer
			tr.Trace = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, nil)))
			bare, err := errorOf(t, base, row.url), errorOf(t, tr, row.url)
			require.ErrorContains(t, err, row.text)
			before, quoted, _ := strings.Cut(row.text, "…")
			require.ErrorContains(t, bare, before, "a bare client")
			require.NotContains(t, err.Error(), "s3cr3t")
			require.Equal(t, quoted != "", strings.Contains(bare.Error(), "s3cr3t"))
			text := fmt.Sprintf("%s %+v", log.String(), tr.State())
			require.NotContains(t, text, "s3cr3t")
			require.NotContains(t, text, "not shown")
		})
	}
}

// §4.7: a failed call of one attempt has the text of a bare client alone, so that clients that compare texts find it.
func TestErrorTexts_oneAttempt(t *testing.T) {
	own := errors.New("signer: no credentials in the chain")
	for _, row := range []struct {
		name     string
		err      error
		attempts int
		want     string
	}{
		{"permanent", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, 5,
			"tls: failed to verify certificate: x509: certificate signed by unknown authority: certificate is not trusted"},
		{"permanent, as net/http", tls.RecordHeaderError{Msg: "no", RecordHeader: [5]byte([]byte("HTTP/"))}, 5, http.ErrSchemeMismatch.Error()},
		{"permanent, an own error", markedError{own}, 5, own.Error()},
		{"one attempt, and the failure may pass", own, -1, "resilienthttp: no retries left: " + own.Error() + " (attempt 1)"},
		{"two attempts", own, 2, "resilienthttp: no retries left: " + own.Error() + " (attempt 2)"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{Base: script(failing(row.err)), Policy: resilienthttp.Policy{MaxAttempts: row.attempts}}
			_, err := tr.RoundTrip(get(t))
			require.EqualError(t, err, row.want)
			require.NotEmpty(t, asError(t, err).Attempts)
			require.True(t, strings.HasPrefix(asError(t, err).SafeText(), "resilienthttp: "))
		})
	}
}

// §4.7: SDKs compare the text of a canceled call, which is that of a bare client until a second attempt tells more.
func TestErrorTexts_canceled(t *testing.T) {
	for _, row := range []struct {
		name   string
		cancel time.Duration // after the begin of the call; the response comes after a second
		want   string
		sent   int
	}{
		{"before the call", 0, "context canceled", 0},
		{"in the first attempt", 500 * time.Millisecond, "context canceled", 1},
		{"in the wait for a retry", 1001 * time.Millisecond, "resilienthttp: context canceled (attempt 1 ended with status 503)", 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			srv := faulttest.NewInMemory(t, faulttest.Reply{Status: 503, Delay: time.Second})
			constant := resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Minute)}
			client := &http.Client{Transport: &resilienthttp.Transport{Base: srv.Transport(), Policy: constant}}
			ctx, cancel := context.WithCancel(t.Context())
			if row.cancel == 0 {
				cancel()
			}
			time.AfterFunc(row.cancel, cancel)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
			require.NoError(t, err)
			resp, err := client.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			require.EqualError(t, err, fmt.Sprintf("Get %q: %s", srv.URL, row.want))
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, asError(t, err).Attempts, row.sent)
			require.True(t, strings.HasPrefix(asError(t, err).SafeText(), "resilienthttp: context canceled"))
		})
	}
}

// §4.7: a call that ends at its deadline has the text of a bare client behind the reason.
func TestErrorTexts_deadline(t *testing.T) {
	bubble.Run(t, "text", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := bareTransport(roundTripper(hanging), 1).RoundTrip(get(t).WithContext(ctx))
		require.ErrorContains(t, err, context.DeadlineExceeded.Error())
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// §4.13: if the caller leaves during a wait, the text has the result of the attempt before.
func TestErrorTexts_canceledInWait(t *testing.T) {
	bubble.Run(t, "one attempt", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(failing(errReset)), Policy: every(time.Hour)}
		_, err := tr.RoundTrip(get(t).WithContext(canceledAfter(t.Context(), time.Second)))
		require.EqualError(t, err, "resilienthttp: context canceled (attempt 1 ended with connection broke)")
	})
}

// markedError is an error that is marked as permanent.
type markedError struct{ error }

func (markedError) Permanent() bool { return true }

// T15: the caller reads the text of an error that a Base has made, and not what it quotes of the request. State, logs, Explain and
// the error of another Transport in a log have its type alone.
func TestErrorTexts_ofBase(t *testing.T) {
	const own = "signer: the token 7b2d-44e1 is expired"
	bubble.Run(t, "in Error only", func(t *testing.T) {
		var log bytes.Buffer
		tr := bareTransport(script(failing(errors.New(own))), 2)
		outer := bareTransport(tr, 1)
		outer.Trace = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		_, err := outer.RoundTrip(get(t))
		require.ErrorContains(t, err, own)
		for name, text := range map[string]string{
			"SafeText": asError(t, err).SafeText(), "State": fmt.Sprintf("%+v %+v", tr.State(), outer.State()), "log": log.String(),
			"Explain": resilienthttp.Explain(nil, err),
		} {
			require.NotContains(t, text, "token", name)
			require.Contains(t, text, "*errors.errorString (not shown)", name)
		}
	})
	bubble.Run(t, "cut of what a later attempt has added", func(t *testing.T) {
		base := puppet(func(req *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("cannot sign %s with %s", req.URL, req.Header.Get("Idempotency-Key"))
		})
		_, err := bareTransport(base, 2).RoundTrip(newRequest(t, http.MethodPost, "http://api.test/v1/charges?customer=cus_9", "body"))
		key := asError(t, err).Attempts[0].Request.Header.Get("Idempotency-Key")
		require.NotEmpty(t, key)
		require.ErrorContains(t, err, "cannot sign http://api.test… with …")
		require.NotContains(t, err.Error(), key)
	})
	bubble.Run(t, "the caller changes its request afterwards", func(t *testing.T) {
		req := get(t)
		req.Header.Set("Authorization", "Bearer old-token-1")
		_, err := bareTransport(script(failing(errors.New("rejected old-token-1"))), 2).RoundTrip(req)
		req.Header.Set("Authorization", "Bearer new-token-2")
		req.URL.RawQuery = ""
		require.ErrorContains(t, err, "rejected …")
	})
	bubble.Run(t, "an Error that a program makes", func(t *testing.T) {
		err := &resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: errors.New(own)}
		require.EqualError(t, err, "resilienthttp: no retries left: *errors.errorString (not shown)")
	})
}

// isProbableEOF has the rules of IsProbableEOF in k8s.io/apimachinery/pkg/util/net: whether a watch has ended.
func isProbableEOF(err error) bool {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	text := err.Error()
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return true
	case text == "http: can't write HTTP request on broken connection":
		return true
	case strings.Contains(text, "http2: server sent GOAWAY and closed the connection"):
		return true
	case strings.Contains(text, "connection reset by peer"):
		return true
	}
	return strings.Contains(strings.ToLower(text), "use of closed network connection")
}

// isRequestErrorRetryable has the rules of minio-go for the error of a request.
func isRequestErrorRetryable(err error) bool {
	outer, ok := errors.AsType[*url.Error](err)
	return !ok || outer.Unwrap().Error() != "http: server gave HTTP response to HTTPS client"
}

// §4.7: what other clients ask of an error has the answer that it has with a bare client.
func TestErrors_askedByClients(t *testing.T) {
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for _, row := range []struct {
		name string
		err  error
		eof  bool // see isProbableEOF
	}{
		{"EOF", io.EOF, true},
		{"half a response", io.ErrUnexpectedEOF, true},
		{"broken connection", errors.New("http: can't write HTTP request on broken connection"), true},
		{"GOAWAY", errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""`), true},
		{"reset", read(os.NewSyscallError("read", syscall.ECONNRESET)), true},
		{"closed", read(net.ErrClosed), true},
		{"refused", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, false},
		{"an EOF inside", fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", io.EOF), false},
		{"timeout", read(os.ErrDeadlineExceeded), false},
		{"temporary DNS failure", &net.DNSError{Err: "server misbehaving", IsTemporary: true}, false},
		{"unknown host", &net.DNSError{Err: "no such host", IsNotFound: true}, false},
		{"too many open files", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}, false},
		{"an own error", errors.New("bulkhead is full"), false},
		{"HTTP to HTTPS", tls.RecordHeaderError{Msg: "no", RecordHeader: [5]byte([]byte("HTTP/"))}, false},
	} {
		for name, attempts := range map[string]int{"one attempt": -1, "two attempts": 2} {
			bubble.Run(t, row.name+", "+name, func(t *testing.T) {
				base := script(failing(row.err))
				bare, err := errorOf(t, base, "http://api.test/"), errorOf(t, bareTransport(base, attempts), "http://api.test/")
				require.Equal(t, row.eof, isProbableEOF(bare), "a bare client")
				require.Equal(t, row.eof, isProbableEOF(err), "IsProbableEOF: %v", err)
				require.Equal(t, isRequestErrorRetryable(bare), isRequestErrorRetryable(err), "minio: %v", err)
				var was, is *url.Error
				require.ErrorAs(t, bare, &was)
				require.ErrorAs(t, err, &is)
				require.Equal(t, was.Timeout(), is.Timeout(), "Timeout")
				require.Equal(t, was.Temporary(), is.Temporary(), "Temporary")
				require.IsType(t, &resilienthttp.Error{}, errors.Unwrap(err))
				require.NoError(t, errors.Unwrap(is.Err), "an Error wraps several errors")
			})
		}
	}
}

// §4.7: Temporary is that of a bare client also for deadlines, and false for a rejection.
func TestErrors_temporary(t *testing.T) {
	for _, row := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		edit func(*resilienthttp.Transport)
		want bool
	}{
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, nil, true},
		{"attempt timeout", nil, func(tr *resilienthttp.Transport) { tr.Policy.AttemptTimeout = time.Second }, true},
		{"canceled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, nil, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := bareTransport(roundTripper(hanging), 1)
			if row.edit != nil {
				row.edit(tr)
			}
			req := get(t)
			if row.ctx != nil {
				ctx, cancel := row.ctx(t.Context())
				defer cancel()
				req = req.WithContext(ctx)
			}
			_, err := tr.RoundTrip(req)
			require.Equal(t, row.want, (&url.Error{Err: err}).Temporary(), "%v", err)
		})
	}
	require.False(t, (&resilienthttp.Error{Reason: resilienthttp.ErrRateLimited}).Temporary())
}
