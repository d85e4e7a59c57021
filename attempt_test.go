package resilienthttp_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
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

// The attempt timeout counts from sending to the response headers, without the gates, the waits
// and the body.
func TestAttemptTimeout(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration // of the Policy
		ctx     time.Duration // 0: none
		steps   []step
		took    time.Duration
		tries   int
		is      error
	}{
		{"in time", time.Second, 0, []step{after(999*time.Millisecond, status(200))}, 999 * time.Millisecond, 1, nil},
		{"too late once", time.Second, 0, []step{hanging, status(200)}, 2 * time.Second, 2, nil},
		{"always too late", time.Second, 0, []step{hanging}, 3 * time.Second, 2, resilienthttp.ErrAttemptTimeout},
		{"the default without a deadline: 15 minutes", 0, 0, []step{hanging}, 15 * time.Minute, 1, resilienthttp.ErrAttemptTimeout},
		{"negative is none", -1, 0, []step{after(100*time.Hour, status(200))}, 100 * time.Hour, 1, nil},
		{"huge is none", 1<<63 - 1, 0, []step{after(100*time.Hour, status(200))}, 100 * time.Hour, 1, nil},
		{"a nanosecond", 1, 0, []step{hanging}, time.Second + 2, 2, resilienthttp.ErrAttemptTimeout},
		{"a Base that derives its context", time.Second, 0, []step{derived}, 3 * time.Second, 2, resilienthttp.ErrAttemptTimeout},
		{"and wraps what it says", time.Second, 0, []step{wrapped}, 3 * time.Second, 2, resilienthttp.ErrAttemptTimeout},
		{"cut short by the call's deadline", time.Minute, 10 * time.Second, []step{hanging}, 10 * time.Second, 1, resilienthttp.ErrDeadline},
		{"as long as the call's deadline", 10 * time.Second, 10 * time.Second, []step{hanging}, 10 * time.Second, 1, resilienthttp.ErrDeadline},
		{"shorter than the call's deadline", 6 * time.Second, 10 * time.Second, []step{hanging}, 10 * time.Second, 2, resilienthttp.ErrDeadline},
	}
	for _, tt := range tests {
		bubble.Run(t, tt.name, func(t *testing.T) {
			base := script(tt.steps...)
			tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
			tr.Policy.AttemptTimeout = tt.timeout
			req := newRequest(t, http.MethodPut, "http://api.test/things", "").WithContext(withDeadline(t, tt.ctx))
			start := time.Now()
			resp, err := tr.RoundTrip(req)
			require.Equal(t, tt.took, time.Since(start))
			require.Len(t, base.calls(), tt.tries)
			if tt.is == nil {
				require.NoError(t, err)
				time.Sleep(time.Hour) // no timeout ends the body
				readAll(t, resp)
			} else {
				require.ErrorIs(t, err, tt.is)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				require.True(t, asError(t, err).Timeout())
				require.Len(t, asError(t, err).Attempts, tt.tries)
			}
			base.requireBalance(t)
		})
	}
}

// derived is a Base that derives a context from the request's, and returns the error of that
// context.
func derived(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

// wrapped returns the error of the context as a dialer wraps it.
func wrapped(r *http.Request) (*http.Response, error) {
	_, err := derived(r)
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

// §4.7: with net/http, an attempt that timed out is a timeout and not a cancellation, and is
// retried.
func TestAttemptTimeoutOfRealTransports(t *testing.T) {
	tests := []struct {
		name    string
		options []memhttp.Option
		hangs   bool // the dial
	}{
		{"HTTP/1", nil, false},
		{"HTTP/2", []memhttp.Option{memhttp.HTTP2()}, false},
		{"HTTP/2 over TLS", []memhttp.Option{memhttp.HTTP2(), memhttp.TLS()}, false},
		{"TLS", []memhttp.Option{memhttp.TLS()}, false},
		{"the dial hangs", nil, true},
	}
	for _, tt := range tests {
		for _, own := range []bool{true, false} {
			bubble.Run(t, fmt.Sprintf("%s, own timeout %v", tt.name, own), func(t *testing.T) {
				var log faulttest.Log
				s := memhttp.NewServer(t, log.Record(faulttest.Hang), tt.options...)
				base := s.Transport()
				if tt.hangs {
					base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
						select { // net/http detaches dials from their requests
						case <-ctx.Done():
						case <-t.Context().Done():
						}
						return nil, context.Canceled
					}
				}
				tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
				req := newRequest(t, "PUT", s.URL, "body")
				want, tries := resilienthttp.ErrAttemptTimeout, 2
				if own {
					tr.Policy.AttemptTimeout = time.Second
				} else {
					req = req.WithContext(withDeadline(t, 3*time.Second))
					want, tries = resilienthttp.ErrDeadline, 1
				}
				start := time.Now()
				_, err := tr.RoundTrip(req)
				require.Equal(t, 3*time.Second, time.Since(start))
				require.ErrorIs(t, err, want)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				require.True(t, asError(t, err).Timeout())
				for _, a := range asError(t, err).Attempts {
					require.NotErrorIs(t, a.Err, context.Canceled)
					require.ErrorIs(t, a.Err, context.DeadlineExceeded)
				}
				require.Len(t, asError(t, err).Attempts, tries)
				if !tt.hangs {
					log.AssertAttempts(t, tries)
				}
				if own && !tt.hangs {
					log.AssertSpacing(t, time.Second, time.Second)
				}
			})
		}
	}
}

// A response that arrives at the time of the timeout is either returned or a timeout. Its body is
// never unreadable.
func TestAttemptTimeout_withResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2000 {
			base := script(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				runtime.Gosched()
				return withBody(200, contextBody{strings.NewReader("alive"), r.Context()})(r)
			})
			tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: -1}}
			resp, err := tr.RoundTrip(get(t))
			if err != nil {
				require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
			} else {
				synctest.Wait()
				require.Equal(t, "alive", readAll(t, resp))
			}
			base.requireBalance(t)
		}
	})
}

// contextBody is a body that fails after its context ends.
type contextBody struct {
	io.Reader
	ctx context.Context
}

func (b contextBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}

func (contextBody) Close() error { return nil }

// newBlocking is a body with a Read that blocks until Close, even after its context ends.
func newBlocking() io.ReadCloser {
	body, _ := io.Pipe()
	return body
}

// trickle is a body that returns a byte per period, without end.
type trickle struct{ every time.Duration }

func (b trickle) Read(p []byte) (int, error) {
	time.Sleep(b.every)
	p[0] = 'x'
	return 1, nil
}

func (trickle) Close() error { return nil }

// errorBody fails at the first Read, and at Close.
type errorBody struct{}

func (errorBody) Read([]byte) (int, error) { return 0, errReset }

func (errorBody) Close() error { return errReset }

// panickyBody panics at the first Read.
type panickyBody struct{}

func (panickyBody) Read([]byte) (int, error) { panic("a body that panics") }

func (panickyBody) Close() error { return nil }

// §4.5, §4.15, §4.17: if Base or a hook panics or ends the goroutine, the caller gets the panic,
// and nothing is held: no probe slot, no request in flight, no response body and no context.
func TestPanic_releasesPermits(t *testing.T) {
	boom := func() { panic("boom") }
	forAttempt := func(how func()) func(*resilienthttp.Attempt) { return func(*resilienthttp.Attempt) { how() } }
	places := map[string]func(how func(), tr *resilienthttp.Transport){
		"Base":         func(func(), *resilienthttp.Transport) {}, // below
		"AttemptStart": func(how func(), tr *resilienthttp.Transport) { tr.Trace.AttemptStart = forAttempt(how) },
		"AttemptDone":  func(how func(), tr *resilienthttp.Transport) { tr.Trace.AttemptDone = forAttempt(how) },
		"RetryWait":    func(how func(), tr *resilienthttp.Transport) { tr.Trace.RetryWait = forAttempt(how) },
		"CallDone":     func(how func(), tr *resilienthttp.Transport) { tr.Trace.CallDone = func(*resilienthttp.Call) { how() } },
		"Classify": func(how func(), tr *resilienthttp.Transport) {
			tr.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { how(); return 0 }
		},
		"ClassifyBody": func(how func(), tr *resilienthttp.Transport) {
			tr.Policy.ClassifyBody = func(*resilienthttp.Attempt, []byte) resilienthttp.Verdict { how(); return 0 }
		},
		"Backoff": func(how func(), tr *resilienthttp.Transport) {
			tr.Policy.Backoff = func(int, time.Duration) time.Duration { how(); return 0 }
		},
	}
	for place, arrange := range places {
		for name, how := range map[string]func(){"panics": boom, "ends the goroutine": runtime.Goexit} {
			bubble.Run(t, place+" "+name, func(t *testing.T) {
				var armed atomic.Bool
				contexts := map[context.Context]bool{}
				base := script(
					status(500, "X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "3000"),
					status(500), status(200),
				)
				breaker := fragile(time.Second)
				tr := &resilienthttp.Transport{
					Base: roundTripper(func(r *http.Request) (*http.Response, error) {
						contexts[r.Context()] = true
						return base.RoundTrip(r)
					}),
					RateLimit: &resilienthttp.RateLimit{MaxInFlight: 1}, Breaker: breaker, Trace: &resilienthttp.Trace{}, Policy: every(0),
				}
				armedHow := func() {
					if armed.Load() {
						how()
					}
				}
				arrange(armedHow, tr)
				if place == "Base" {
					base.steps[1] = func(*http.Request) (*http.Response, error) { armedHow(); return nil, nil }
				}
				single := func() *http.Request { return get(t).WithContext(resilienthttp.WithSingleAttempt(t.Context())) }

				readAll(t, roundTrip(t, tr, single())) // opens the circuit, and leaves one request of the quota
				require.Equal(t, resilienthttp.StateOpen, breaker.State("api.test", resilienthttp.PriorityDefault))
				time.Sleep(2 * time.Second) // now one probe is let through

				armed.Store(true)
				var got any
				returned := false
				plain, last := get(t), single()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { got = recover() }()
					if place == "RetryWait" || place == "Backoff" {
						// These run only before a retry.
						tr := &resilienthttp.Transport{Base: tr.Base, Breaker: never(), Trace: tr.Trace, Policy: tr.Policy}
						_, _ = tr.RoundTrip(plain)
					} else {
						_, _ = tr.RoundTrip(last)
					}
					returned = true
				}()
				<-done
				armed.Store(false)
				require.False(t, returned)
				if name == "panics" {
					require.Equal(t, "boom", got)
				} else {
					require.Nil(t, got)
				}
				synctest.Wait()
				base.requireBalance(t)
				require.EqualValues(t, 1, slots(t, tr).Remaining)
				nothingLeft(t, tr)
				for ctx := range contexts {
					require.Error(t, ctx.Err(), "the context of the attempt has not ended")
				}

				if place == "Base" || place == "AttemptStart" || strings.HasPrefix(place, "Classify") {
					// The attempt has no result, so that both permits are returned.
					base.steps = []step{status(200)}
					start := time.Now()
					resp := roundTrip(t, tr, single())
					require.Zero(t, time.Since(start), "the permit of the request was not returned")
					readAll(t, resp)
				}
			})
		}
	}
}

// A Transport that is its own Base returns an error. A Transport that uses itself to fetch a
// token works.
func TestTransportInsideItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, inside := range map[string]func(context.Context) context.Context{
			"as it came":   func(ctx context.Context) context.Context { return ctx },
			"with a trace": func(ctx context.Context) context.Context { return resilienthttp.WithTrace(ctx, &resilienthttp.Trace{}) },
		} {
			tr := &resilienthttp.Transport{}
			calls := 0
			tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				if calls++; calls > 100 {
					panic("without end: " + name)
				}
				return tr.RoundTrip(r.Clone(inside(r.Context())))
			})
			_, err := tr.RoundTrip(get(t))
			require.Error(t, err)
			require.Len(t, asError(t, err).Attempts, 1)
		}

		base := script(status(200))
		tr := &resilienthttp.Transport{}
		tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/token" {
				token := newRequest(t, "GET", "http://api.test/token", "").WithContext(r.Context())
				resp, err := tr.RoundTrip(token)
				if err != nil {
					return nil, err
				}
				readAll(t, resp)
			}
			return base.RoundTrip(r)
		})
		resp := roundTrip(t, tr, get(t))
		readAll(t, resp)
		require.Len(t, base.calls(), 2)

		for range 20 { // each context leads to the previous call, which does not contain the new one
			resp = roundTrip(t, tr, get(t).WithContext(resilienthttp.WithSingleAttempt(resp.Request.Context())))
			readAll(t, resp)
		}
	})
}

type halfCloser struct {
	closed bool
	errorBody
}

func (h *halfCloser) Write(p []byte) (int, error) { return len(p), nil }

func (h *halfCloser) Close() error { return nil }

func (h *halfCloser) CloseWrite() error {
	h.closed = true
	return nil
}

// §4.1, §4.4: GetBody is called before the failed response is closed. If GetBody fails, the call
// returns that response unread, or its error with that of GetBody.
func TestGetBodyFails(t *testing.T) {
	gone := &url.Error{Op: "Get", URL: "https://files.test/?token=secret", Err: errors.New("the file is gone")}
	for _, row := range []struct {
		name    string
		first   step
		getBody func() (io.ReadCloser, error)
		is      []error // nil: a response
		text    string
	}{
		{"after a status", status(500), func() (io.ReadCloser, error) { return nil, gone }, nil, ""},
		{"after a status that asks to wait", status(503, "Retry-After", "5"), func() (io.ReadCloser, error) { return nil, gone }, nil, ""},
		{"with nothing, after a status", status(500), func() (io.ReadCloser, error) { return http.NoBody, nil }, nil, ""},
		{"after an error", failing(errReset), func() (io.ReadCloser, error) { return nil, gone },
			[]error{resilienthttp.ErrNotReplayable, errReset, gone},
			"resilienthttp: request body cannot be replayed: GetBody: Get \"https://files.test…\": the file is gone: connection broke (attempt 1)"},
		{"with nothing, after an error", failing(errReset), func() (io.ReadCloser, error) { return nil, nil },
			[]error{resilienthttp.ErrNotReplayable, errReset},
			"resilienthttp: request body cannot be replayed: GetBody: returned no body: connection broke (attempt 1)"},
		{"after a timeout", hanging, func() (io.ReadCloser, error) { return nil, gone },
			[]error{resilienthttp.ErrAttemptTimeout, resilienthttp.ErrNotReplayable, context.DeadlineExceeded, gone},
			"resilienthttp: attempt timed out: GetBody: Get \"https://files.test…\": the file is gone: attempt timed out: context deadline exceeded (attempt 1)"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(row.first, status(200))
			req := newRequest(t, http.MethodPost, "http://api.test/", "body")
			req.GetBody = row.getBody
			tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
			tr.Policy.AttemptTimeout = time.Minute
			resp, err := tr.RoundTrip(req)
			require.Len(t, base.calls(), 1)
			if row.is == nil {
				require.NoError(t, err)
				require.Equal(t, resilienthttp.ErrNotReplayable, lastOf(t, resp).StopReason)
				require.Equal(t, "status "+strconv.Itoa(resp.StatusCode), readAll(t, resp))
			}
			for _, is := range row.is {
				require.ErrorIs(t, err, is)
			}
			if row.is != nil {
				require.EqualError(t, err, row.text)
			}
			base.requireBalance(t)
		})
	}
}

// The time of a user's Scope or NewKey is not part of the attempt. The deadline header is still
// correct.
func TestAttempt_startsAfterUserFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(200))
		tr := &resilienthttp.Transport{
			Base: base, Policy: resilienthttp.Policy{AttemptTimeout: 100 * time.Millisecond},
			Idempotency: resilienthttp.Idempotency{NewKey: func(*http.Request) string {
				time.Sleep(time.Second)
				return "key"
			}},
		}
		resp := roundTrip(t, tr, newRequest(t, http.MethodPost, "http://api.test/", "body").WithContext(withDeadline(t, time.Minute)))
		require.Zero(t, lastOf(t, resp).Latency)
		deadline, _ := base.sent[0].Request.Context().Deadline()
		require.Equal(t, base.sent[0].At.Add(100*time.Millisecond), deadline)
		require.Equal(t, []string{"100"}, base.keys(timeoutField))
		require.Equal(t, []string{"2000-01-01T00:00:01.100Z"}, base.keys(deadlineField))
	})
}

// §4.15, §4.17: an attempt that passes the breaker and is then rejected returns the probe slot
// and the permit.
func TestRejectedAttempt_returnsPermits(t *testing.T) {
	for _, row := range []struct {
		name   string
		limit  *resilienthttp.RateLimit
		margin time.Duration
		want   error
	}{
		{"by the rate limit", &resilienthttp.RateLimit{Limit: 0.001, Burst: 1, MaxWait: -1}, 0, resilienthttp.ErrRateLimited},
		{"by the deadline", nil, time.Hour, resilienthttp.ErrDeadline},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{
				Base: script(status(500)), Breaker: &resilienthttp.Breaker{MinRequests: 1, Probes: 1, Cooldown: time.Minute},
				RateLimit: row.limit, DeadlineHeader: resilienthttp.DeadlineHeader{Margin: row.margin}, Policy: resilienthttp.Policy{MaxAttempts: -1},
			}
			readAll(t, roundTrip(t, tr, get(t)))
			time.Sleep(2 * time.Minute)
			require.Equal(t, resilienthttp.StateHalfOpen, tr.Breaker.State("api.test", resilienthttp.PriorityDefault))
			for range 3 {
				require.ErrorIs(t, discard(tr, get(t).WithContext(withDeadline(t, row.margin/2))), row.want, "the reason is not the breaker")
			}
		})
	}
}

// §4.8, §4.9: over sockets, a failure before the response is retried if the request may be
// repeated. A failure after it is an error of the body.
func TestBrokenConnections(t *testing.T) {
	closeConn := func(conn net.Conn) { _ = conn.Close() }
	readRequest := func(conn net.Conn) *http.Request {
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return nil
		}
		_, _ = io.Copy(io.Discard, req.Body)
		return req
	}
	tests := []struct {
		name  string
		reads bool   // the request
		says  string // before the end
		end   func(net.Conn)
	}{
		{"reset before the request is read", false, "", resetConn},
		{"reset after the request was read", true, "", resetConn},
		{"closed before the request is read", false, "", closeConn},
		{"closed after the request was read", true, "", closeConn},
		{"reset within the status line", true, "HTTP/1.1 20", resetConn},
		{"closed within the headers", true, "HTTP/1.1 200 OK\r\nContent-Le", closeConn},
		{"closed after 100 Continue", true, "HTTP/1.1 100 Continue\r\n\r\n", closeConn},
	}
	for _, tt := range tests {
		serve := func(t *testing.T, broken int64) (url string, conns *atomic.Int64) {
			conns = new(atomic.Int64)
			address, _ := rawServer(t, func(conn net.Conn) {
				good := conns.Add(1) > broken
				switch {
				case (good || tt.reads) && readRequest(conn) == nil:
				case good:
					_, _ = io.WriteString(conn, okAnswer)
				default:
					_, _ = io.WriteString(conn, tt.says)
					tt.end(conn)
				}
			})
			return "http://" + address, conns
		}
		for _, method := range []string{"GET", "PUT", "POST"} {
			t.Run(tt.name+", repeatable "+method, func(t *testing.T) {
				url, conns := serve(t, 2)
				req := newRequest(t, method, url, "")
				var bodies *trackedBodies
				if method != "GET" {
					bodies = trackBody(req, "content")
				}
				resp := roundTrip(t, overSockets(t), req)
				require.Equal(t, "fine", readAll(t, resp))
				require.Len(t, resilienthttp.Attempts(resp), 3)
				require.Equal(t, int64(3), conns.Load())
				require.Equal(t, method == "POST", lastOf(t, resp).Request.Header.Get("Idempotency-Key") != "")
				for _, a := range resilienthttp.Attempts(resp)[:2] {
					require.Error(t, a.Err)
					require.Equal(t, resilienthttp.VerdictTransient, a.Verdict)
					require.Equal(t, resilienthttp.Attempts(resp)[2].Request.Header["Idempotency-Key"], a.Request.Header["Idempotency-Key"])
				}
				if bodies != nil {
					require.Len(t, bodies.bodies, 3)
				}
			})
		}
		t.Run(tt.name+", unkeyed POST", func(t *testing.T) {
			url, conns := serve(t, 1)
			resp, err := withoutKeys(overSockets(t)).RoundTrip(newRequest(t, "POST", url, "content"))
			if err == nil && strings.Contains(tt.name, "before") {
				// The reset can break the TCP handshake: nothing was sent then.
				readAll(t, resp)
				var dial *net.OpError
				require.ErrorAs(t, resilienthttp.Attempts(resp)[0].Err, &dial)
				require.Equal(t, "dial", dial.Op)
				return
			}
			require.ErrorIs(t, err, resilienthttp.ErrNotIdempotent)
			require.Len(t, asError(t, err).Attempts, 1)
			require.Equal(t, int64(1), conns.Load())
			require.False(t, asError(t, err).Timeout())
		})
	}
}

// angryError panics in Is.
type angryError struct{}

func (angryError) Error() string { return "angry" }
func (angryError) Is(error) bool { panic("boom") }

// §4.15, §4.17: if a method of Base's response or error panics, the permits are returned.
// Otherwise a circuit would count these requests as in flight and never open.
func TestPanickingResult_releasesPermits(t *testing.T) {
	for name, answer := range map[string]step{
		"Is of an error panics": failing(angryError{}),
		"an error, and Close of a body panics": func(r *http.Request) (*http.Response, error) {
			resp := response(r, http.StatusOK, "")
			resp.Body = brokenClose{}
			return resp, errReset
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			base := script(status(http.StatusOK, "X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "40", "X-RateLimit-Reset", "3000"), answer)
			tr := &resilienthttp.Transport{Base: base, Breaker: &resilienthttp.Breaker{Static: true, FailureRatio: 0.9}}
			send := func() error {
				return discard(tr, get(t).WithContext(resilienthttp.WithSingleAttempt(t.Context())))
			}
			require.NoError(t, send())
			for range 30 {
				require.Panics(t, func() { _ = send() })
			}
			base.steps = []step{status(http.StatusInternalServerError)}
			start := time.Now()
			for range 19 { // 20 results, with the previous one
				require.NoError(t, send())
			}
			require.Zero(t, time.Since(start), "permits were not returned to the limiter")
			require.ErrorIs(t, send(), resilienthttp.ErrBreakerOpen, "permits were not returned to the circuit")
		})
	}
}

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
			require.ErrorIs(t, discard(outer, newCall(t.Context(), t, http.MethodGet, "")), row.want)
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
		require.ErrorContains(t, discard(&resilienthttp.Transport{Base: base, Breaker: breaker}, get(t)), "neither a response nor an error")
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
		resp := do(t, &http.Client{Transport: &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: 4}}}, get(t))
		require.Equal(t, 503, resp.StatusCode)
		require.Empty(t, readAll(t, resp))
		require.Len(t, base.calls(), 4)
	})
	bubble.Run(t, "an error that cannot be compared", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(failing(listError{"a", "b"})), Policy: resilienthttp.Policy{MaxAttempts: 2}}
		_, err := tr.RoundTrip(get(t))
		require.Error(t, err)
		require.ErrorIs(t, err, resilienthttp.ErrMaxAttempts)
		require.Equal(t, "resilienthttp: no retries left: a, b (attempt 2 ended with a, b)", err.Error())
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(listError{"c"})
		require.ErrorIs(t, discard(&resilienthttp.Transport{Base: script(failing(listError{"a", "b"}))}, get(t).WithContext(ctx)), context.Canceled)
	})
	bubble.Run(t, "OnChange panics for a hedge, and the first copy answers", func(t *testing.T) {
		base := script(after(3*time.Second, status(200)), status(500))
		tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: time.Second}, Breaker: nervous(time.Hour)}
		tr.Breaker.OnChange = func(resilienthttp.BreakerChange) { panic("boom") }
		resp := roundTrip(t, tr, newRequest(t, "PUT", "http://api.test/", "content"))
		require.Equal(t, 200, resp.StatusCode)
		readAll(t, resp)
		synctest.Wait()
		base.requireBalance(t)
	})
}

// listError is an error that cannot be compared: to do so panics.
type listError []string

func (l listError) Error() string { return strings.Join(l, ", ") }

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
			ctx := oddContext{t.Context(), time.Now().Add(time.Second)}
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
			attempts := realPOST(t, &http.Transport{DialContext: dnsThatSays(rcode)}, "http://api.test./")
			require.ErrorAs(t, attempts[0].Err, new(*net.DNSError))
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
	t.Run("§4.8 proxy refused", func(t *testing.T) {
		address := closedPort(t)
		for _, scheme := range []string{"http", "socks5"} {
			proxy := &url.URL{Scheme: scheme, Host: address}
			attempts := realPOST(t, &http.Transport{Proxy: http.ProxyURL(proxy)}, "https://api.test/")
			require.Len(t, attempts, 2, scheme)
		}
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

// dnsThatSays dials with a resolver that always returns rcode.
func dnsThatSays(rcode byte) func(context.Context, string, string) (net.Conn, error) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			buf := make([]byte, 512)
			n, _ := server.Read(buf)
			// A response is the query, which comes after its length, with QR and the rcode set.
			buf[4] |= 0x80
			buf[5] = buf[5]&0x70 | rcode
			_, _ = server.Write(buf[:n])
		}()
		return client, nil
	}
	return (&net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: dial}}).DialContext
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
				require.Len(t, tripped(t, withoutKeys(bareTransport(row.wrap(base), 2)), req), row.attempts)
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
		require.ErrorAs(t, attempts[0].Err, new(tls.RecordHeaderError))
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
