package resilienthttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// Bad input is met with a clear error or a documented clamp: never with a panic
// of ours, a hang, a leak or a hot loop. The bubbles of synctest see the hangs
// and the leaks.

// TestBadRequests: what no server could be sent is refused, once, and the body
// is closed. Where net/http is the one to refuse, its real texts are asked for:
// they are what policy.go goes by, for HTTP/1 and HTTP/2.
func TestBadRequests(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header = http.Header{name: {value}} }
	}
	tests := []struct {
		name  string
		spoil func(*http.Request)
		text  string // of the error over HTTP/1
		text2 string // over HTTP/2, where it is another; "-": it is taken
		early bool   // refused before any attempt
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
		{"unknown scheme", func(r *http.Request) { r.URL.Scheme = "gopher" }, `unsupported protocol scheme "gopher"`, "", false},
		{"no scheme", func(r *http.Request) { r.URL.Scheme = "" }, `unsupported protocol scheme ""`, "", false},
		{"method with a blank", func(r *http.Request) { r.Method = "GE T" }, "invalid method", "", false},
		{"header value with a newline", header("X-A", "a\r\nX-Injected: "+secret), `invalid header field value for "X-A"`, "", false},
		{"header value with a NUL", header("X-A", secret+"\x00"), `invalid header field value for "X-A"`, "", false},
		{"header name with a newline", header("X-A\r\nX-B", secret), "invalid header field name", "", false},
		{"empty header name", header("", secret), "invalid header field name", "", false},
		{"trailer with a newline", func(r *http.Request) {
			r.Trailer = http.Header{"X-T": {secret + "\n"}}
		}, "invalid trailer field value", "", false},
		{"host with a blank", func(r *http.Request) { r.Host = "a b" }, "-", "invalid Host header", false}, // HTTP/1 sends an empty one
		{"path with a control character", func(r *http.Request) {
			r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Opaque: "/a\nb?" + secret}
		}, "can't write control character in Request.URL", "-", false},
		{"length too small", func(r *http.Request) { r.ContentLength = 3 }, "ContentLength=3 with Body length 7", "request body larger than specified content length", false},
		{"length too large", func(r *http.Request) { r.ContentLength = 30 }, "ContentLength=30 with Body length 7", "-", false}, // HTTP/2 leaves that to the server
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
				synctest.Test(t, func(t *testing.T) {
					var options []memhttp.Option
					if h2 {
						options = append(options, memhttp.HTTP2())
					}
					s := memhttp.NewServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
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
					require.ErrorContains(t, err, text)
					require.NotContains(t, err.Error(), secret)
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
					require.NoError(t, attempts[0].Stop)
					require.Zero(t, time.Since(start))
					if req.URL.Host != "" {
						require.Equal(t, resilienthttp.StateClosed, tr.Breaker.State(req.URL.Host), "it says nothing about the server")
					}
				})
			})
		}
	}
}

// TestNilRequest: there is not even a body to close.
func TestNilRequest(t *testing.T) {
	_, err := (&resilienthttp.Transport{}).RoundTrip(nil)
	require.ErrorContains(t, err, "nil Request")
	require.IsType(t, (*resilienthttp.Error)(nil), err)
}

// TestZeroRequest: a Request that nobody has filled in.
func TestZeroRequest(t *testing.T) {
	_, err := (&resilienthttp.Transport{}).RoundTrip(&http.Request{})
	require.ErrorContains(t, err, "nil Request.URL")
}

// TestNilHeader: http.Transport would refuse it, here it is an empty one, with
// or without something to be added.
func TestNilHeader(t *testing.T) {
	for name, tr := range map[string]*resilienthttp.Transport{
		"nothing added":    {},
		"ownership added":  {OwnsRetries: true},
		"no key, but owns": {OwnsRetries: true, Idempotency: resilienthttp.Idempotency{Off: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				tr.Base = s.Transport()
				for _, method := range []string{"GET", "POST", ""} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					req := newRequest(t, method, s.URL, "").WithContext(ctx)
					req.Method, req.Header = method, nil
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					readAll(t, resp)
					require.Nil(t, req.Header)
					cancel()
				}
			})
		})
	}
}

// TestBadBodies: a body whose Close fails, one whose Read fails, one that panics.
func TestBadBodies(t *testing.T) {
	t.Run("Close fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := script(status(503), status(200))
			req := newRequest(t, "PUT", "http://api.test/", "")
			bodies := trackBody(req, "content")
			bodies.bodies[0].err = errReset
			resp, err := (&resilienthttp.Transport{Base: base}).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			readAll(t, resp)
			bodies.requireClosedOnce(t, 2)
		})
	})
	t.Run("Close fails of a refused call", func(t *testing.T) {
		req := newRequest(t, "PUT", "http://api.test/", "")
		bodies := trackBody(req, "content")
		bodies.bodies[0].err = errReset
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := (&resilienthttp.Transport{}).RoundTrip(req.WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, errReset)
		bodies.requireClosedOnce(t, 1)
	})
	t.Run("Read fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			tr := &resilienthttp.Transport{Base: s.Transport()}
			req := newRequest(t, "PUT", s.URL, "")
			req.Body, req.ContentLength = errorBody{}, 7
			_, err := tr.RoundTrip(req)
			require.ErrorIs(t, err, errReset)
			require.ErrorIs(t, err, resilienthttp.ErrNotReplayable)
		})
	})
}

// TestBadBases: what breaks the contract of http.RoundTripper.
func TestBadBases(t *testing.T) {
	t.Run("neither", func(t *testing.T) {
		breaker := nervous(time.Hour)
		base := script(func(*http.Request) (*http.Response, error) { return nil, nil })
		_, err := (&resilienthttp.Transport{Base: base, Breaker: breaker}).RoundTrip(get(t))
		require.ErrorContains(t, err, "neither a response nor an error")
		require.Len(t, base.calls(), 1, "no use in asking again")
		require.Equal(t, resilienthttp.StateClosed, breaker.State("api.test"))
	})
	t.Run("a zero response", func(t *testing.T) {
		resp, err := (&resilienthttp.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{}, nil
		})}).RoundTrip(get(t))
		require.NoError(t, err)
		require.Empty(t, readAll(t, resp))
	})
	t.Run("nil bodies, retried", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := script(withBody(503, nil))
			resp, err := (&http.Client{Transport: &resilienthttp.Transport{Base: base}}).Do(get(t))
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode)
			require.Empty(t, readAll(t, resp))
			require.Len(t, base.calls(), 4)
		})
	})
	t.Run("an error that cannot be compared", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, err := (&resilienthttp.Transport{Base: script(failing(listError{"a", "b"}))}).RoundTrip(get(t))
			require.Error(t, err)
			require.ErrorIs(t, err, resilienthttp.ErrMaxAttempts)
			require.Equal(t, "resilienthttp: no attempts left: a, b (attempt 4 ended with a, b)", err.Error())
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(listError{"c"})
			_, err = (&resilienthttp.Transport{Base: script(failing(listError{"a", "b"}))}).RoundTrip(get(t).WithContext(ctx))
			require.ErrorIs(t, err, context.Canceled)
		})
	})
	t.Run("panics", func(t *testing.T) {
		// And everything is given back: see TestPanicsGiveBack.
		base := script(panicking("boom"), status(200))
		tr := &resilienthttp.Transport{Base: base}
		require.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(get(t)) })
		resp, err := tr.RoundTrip(get(t))
		require.NoError(t, err)
		readAll(t, resp)
	})
	t.Run("panics in a retry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := script(status(503), panicking("boom"), status(200))
			tr := &resilienthttp.Transport{Base: base, Budget: tokens(1)}
			require.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(get(t)) })
			base.requireBalance(t)
			resp, err := tr.RoundTrip(get(t))
			require.NoError(t, err)
			readAll(t, resp)
		})
	})
	t.Run("ends its goroutine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := script(func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, status(200))
			tr := &resilienthttp.Transport{Base: base}
			done, req := make(chan bool), get(t)
			go func() {
				defer close(done)
				_, _ = tr.RoundTrip(req)
				done <- true
			}()
			require.False(t, <-done)
			resp, err := tr.RoundTrip(get(t))
			require.NoError(t, err)
			readAll(t, resp)
		})
	})
	t.Run("a hedge panics, and the first copy answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := script(after(2*time.Second, status(200)), panicking("boom"))
			resp, err := (&resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: time.Second}}).RoundTrip(get(t))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			readAll(t, resp)
		})
	})
	t.Run("the hooks of a hedge panic, and the first copy answers", func(t *testing.T) {
		boom := func(a *resilienthttp.Attempt) {
			if a.Hedge {
				panic("boom")
			}
		}
		for name, arrange := range map[string]func(*resilienthttp.Transport, *http.Request){
			"Classify": func(tr *resilienthttp.Transport, _ *http.Request) {
				tr.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict { boom(a); return 0 }
			},
			"AttemptStart": func(tr *resilienthttp.Transport, _ *http.Request) {
				tr.Trace = &resilienthttp.Trace{AttemptStart: boom}
			},
			"OnChange": func(tr *resilienthttp.Transport, _ *http.Request) {
				tr.Breaker = nervous(time.Hour)
				tr.Breaker.OnChange = func(resilienthttp.BreakerChange) { panic("boom") }
			},
			"GetBody": func(_ *resilienthttp.Transport, r *http.Request) {
				r.GetBody = func() (io.ReadCloser, error) { panic("boom") }
			},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := script(after(3*time.Second, status(200)), status(500))
					tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: time.Second}}
					req := newRequest(t, "PUT", "http://api.test/", "content")
					arrange(tr, req)
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
					readAll(t, resp)
					synctest.Wait()
					base.requireBalance(t)
				})
			})
		}
	})
	t.Run("the first copy panics beside a hedge", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := script(func(*http.Request) (*http.Response, error) {
				time.Sleep(2 * time.Second)
				panic("boom")
			}, hanging)
			tr := &resilienthttp.Transport{Base: base, Hedge: &resilienthttp.Hedge{Delay: time.Second}}
			require.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(get(t)) })
		})
	})
}

// listError is an error that cannot be compared: to do so panics.
type listError []string

func (l listError) Error() string { return strings.Join(l, ", ") }

// TestBadPolicies: negative and huge durations, everywhere in Policy.
func TestBadPolicies(t *testing.T) {
	const huge = time.Duration(math.MaxInt64)
	const year = 365 * 24 * time.Hour
	tests := []struct {
		name     string
		policy   resilienthttp.Policy
		steps    []step
		deadline time.Duration
		attempts int
		status   int
		took     time.Duration
	}{
		{"all negative", resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: -1, ReadTimeout: -1, MaxRetryAfter: -1}, []step{status(503)}, 0, 1, 503, 0},
		{"all as negative as can be", resilienthttp.Policy{MaxAttempts: math.MinInt, AttemptTimeout: math.MinInt64, ReadTimeout: math.MinInt64, MaxRetryAfter: math.MinInt64}, []step{status(503)}, 0, 1, 503, 0},
		{"all huge", resilienthttp.Policy{MaxAttempts: math.MaxInt, AttemptTimeout: huge, ReadTimeout: huge, MaxRetryAfter: huge, Backoff: resilienthttp.Constant(time.Second)}, []step{status(503), status(200)}, 0, 2, 200, time.Second},
		{"all huge, with a deadline", resilienthttp.Policy{AttemptTimeout: huge, ReadTimeout: huge, MaxRetryAfter: huge, Backoff: resilienthttp.Constant(huge)}, []step{status(503)}, time.Minute, 1, 503, 0},
		{"a million attempts are a hundred", resilienthttp.Policy{MaxAttempts: 1_000_000, Backoff: resilienthttp.Constant(0)}, []step{status(503)}, 0, 100, 503, 0},
		{"a hundred attempts", resilienthttp.Policy{MaxAttempts: 100, Backoff: resilienthttp.Constant(0)}, []step{status(503)}, 0, 100, 503, 0},
		{"one attempt", resilienthttp.Policy{MaxAttempts: 1}, []step{status(503)}, 0, 1, 503, 0},
		{"Backoff says a negative wait", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return math.MinInt64 }}, []step{status(503)}, 0, 4, 503, 0},
		{"Backoff says a huge wait", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503), status(200)}, 0, 2, 200, year},
		{"Backoff and server both say huge waits", resilienthttp.Policy{MaxRetryAfter: -1, Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503, "Retry-After", "99999999999999999999"), status(200)}, 0, 2, 200, 2 * year},
		{"Backoff says a huge wait, with a deadline", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503)}, time.Hour, 1, 503, 0},
		{"a nanosecond for all", resilienthttp.Policy{AttemptTimeout: 1, ReadTimeout: 1, MaxRetryAfter: 1, Backoff: resilienthttp.Constant(1)}, []step{status(503), status(200)}, 0, 2, 200, 1},
		{"Classify says nonsense", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return 99 }, Backoff: resilienthttp.Constant(0)}, []step{status(503)}, 0, 4, 503, 0},
		{"Classify says negative nonsense", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return -1 }}, []step{status(404)}, 0, 1, 404, 0},
		{"Classify calls all of them transient", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }, Backoff: resilienthttp.Constant(0)}, []step{status(200)}, 0, 4, 200, 0},
		{"Classify calls all of them a success", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictSuccess }}, []step{status(500)}, 0, 1, 500, 0},
	}
	for _, tt := range tests {
		for _, perCall := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, per call %v", tt.name, perCall), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := script(tt.steps...)
					tr := &resilienthttp.Transport{Base: base, Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1}, RateLimit: &resilienthttp.RateLimit{IgnoreHeaders: true}}
					ctx := t.Context()
					if tt.deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.deadline)
						defer cancel()
					}
					if perCall {
						ctx = resilienthttp.WithPolicy(ctx, tt.policy)
					} else {
						tr.Policy = tt.policy
					}
					start := time.Now()
					resp, err := tr.RoundTrip(get(t).WithContext(ctx))
					require.NoError(t, err)
					require.Equal(t, tt.took, time.Since(start))
					require.Equal(t, tt.status, resp.StatusCode)
					require.Len(t, base.calls(), tt.attempts)
					require.Len(t, resilienthttp.Attempts(resp), tt.attempts)
					readAll(t, resp)
					base.requireBalance(t)
				})
			})
		}
	}
}

// TestBadGates: NaN and infinities, negative and huge values, in all that gates
// a call. Whatever they are made of, calls go on, and come to their end.
func TestBadGates(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	const huge = time.Duration(math.MaxInt64)
	for name, tr := range map[string]*resilienthttp.Transport{
		"NaN": {
			Budget: &resilienthttp.Budget{Ratio: nan, MinPerSecond: nan}, Breaker: &resilienthttp.Breaker{FailureRatio: nan},
			Hedge: &resilienthttp.Hedge{Quantile: nan, MaxRatio: nan}, RateLimit: &resilienthttp.RateLimit{Limit: rate.Limit(nan)},
		},
		"infinite": {
			Budget: &resilienthttp.Budget{Ratio: inf, MinPerSecond: inf}, Breaker: &resilienthttp.Breaker{FailureRatio: inf},
			Hedge: &resilienthttp.Hedge{Quantile: inf, MaxRatio: inf, Delay: 1}, RateLimit: &resilienthttp.RateLimit{Limit: rate.Limit(inf)},
		},
		"negatively infinite": {
			Budget: &resilienthttp.Budget{Ratio: -inf, MinPerSecond: -inf}, Breaker: &resilienthttp.Breaker{FailureRatio: -inf},
			Hedge: &resilienthttp.Hedge{Quantile: -inf, MaxRatio: -inf}, RateLimit: &resilienthttp.RateLimit{Limit: rate.Limit(-inf)},
		},
		"huge": {
			Budget:    &resilienthttp.Budget{Ratio: math.MaxFloat64, MinPerSecond: math.MaxFloat64, Window: huge},
			Breaker:   &resilienthttp.Breaker{FailureRatio: 1, MinRequests: math.MaxInt, Window: huge, Cooldown: huge, MaxCooldown: huge, Probes: math.MaxInt},
			Hedge:     &resilienthttp.Hedge{Delay: huge, MaxRatio: math.MaxFloat64},
			RateLimit: &resilienthttp.RateLimit{Limit: math.MaxFloat64, Burst: math.MaxInt, MaxWait: huge, MaxClosed: huge},
			Deadline:  resilienthttp.Deadline{Margin: -huge, Max: huge},
		},
		"negative": {
			Budget:    &resilienthttp.Budget{Ratio: -1, MinPerSecond: -1, Window: math.MinInt64},
			Breaker:   &resilienthttp.Breaker{FailureRatio: -1, MinRequests: math.MinInt, Window: math.MinInt64, Cooldown: math.MinInt64, MaxCooldown: math.MinInt64, Probes: math.MinInt},
			Hedge:     &resilienthttp.Hedge{Delay: math.MinInt64},
			RateLimit: &resilienthttp.RateLimit{Limit: -1, Burst: math.MinInt, MaxWait: math.MinInt64, MaxClosed: math.MinInt64},
			Deadline:  resilienthttp.Deadline{Margin: math.MinInt64, Max: math.MinInt64},
		},
		"a breaker of nanoseconds": {
			Breaker: &resilienthttp.Breaker{FailureRatio: 1e-300, MinRequests: -1, Window: 1, Cooldown: 1, MaxCooldown: 1, Probes: -1},
			Budget:  &resilienthttp.Budget{Window: 1}, RateLimit: &resilienthttp.RateLimit{Limit: 1e-300, MaxWait: 1},
		},
		"an immense limit": {RateLimit: &resilienthttp.RateLimit{Limit: 1e300}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := []step{status(200), status(503), failing(errReset), status(429, "Retry-After", "1"), status(200), status(500)}
				base := script(steps...)
				tr.Base = base
				var sent atomic.Int64
				tr.Trace = &resilienthttp.Trace{AttemptStart: func(*resilienthttp.Attempt) { sent.Add(1) }}
				start := time.Now()
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					resp, err := tr.RoundTrip(get(t).WithContext(ctx))
					require.NotEqual(t, resp == nil, err == nil)
					if err == nil {
						readAll(t, resp)
					}
					cancel()
				}
				require.LessOrEqual(t, sent.Load(), int64(8*50))
				require.LessOrEqual(t, time.Since(start), 50*time.Minute)
				synctest.Wait()
				base.requireBalance(t)
			})
		})
	}
}

// TestBadRetryAfter is §4.11 for values that overflow or mean nothing: the call
// ends, or waits its own backoff; the next call is not kept longer than an hour.
func TestBadRetryAfter(t *testing.T) {
	const (
		ignored = iota // as if it were not there
		tooLong        // the call stops, and the scope is closed
		now            // no wait
	)
	values := []struct {
		value string
		how   int
	}{
		{"9223372037", tooLong},           // seconds whose nanoseconds overflow
		{"9223372036854775807", tooLong},  // the largest int64
		{"18446744073709551616", tooLong}, // more than a uint64
		{strings.Repeat("9", 400), tooLong},
		{"-1", ignored},
		{"1e308", ignored},
		{"1e1", ignored},
		{"NaN", ignored},
		{"Inf", ignored},
		{"0x10", ignored},
		{"", ignored},
		{"soon", ignored},
		{"1; 2", ignored},
		{"\x00", ignored},
		{"Fri, 31 Dec 9999 23:59:59 GMT", tooLong},
		{"Thu, 01 Jan 1970 00:00:00 GMT", now},
		{"Thu, 01 Jan 0000 00:00:00 GMT", now},
		{"0", now},
		{"0.0000000001", now},
	}
	for _, field := range []string{"Retry-After", "Retry-After-Ms"} {
		for _, v := range values {
			if field != "Retry-After" && strings.Contains(v.value, "GMT") {
				continue
			}
			t.Run(field+" "+v.value[:min(len(v.value), 40)], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := script(status(429, field, v.value, "RateLimit-Remaining", "0"), status(200))
					tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
					start := time.Now()
					resp, err := tr.RoundTrip(get(t))
					require.NoError(t, err)
					if v.how == tooLong {
						require.Equal(t, 429, resp.StatusCode)
						require.Zero(t, time.Since(start))
						require.Equal(t, resilienthttp.ErrRetryAfter, lastOf(t, resp).Stop)
						require.GreaterOrEqual(t, lastOf(t, resp).Wait, 2562*time.Hour) // the least of them, in milliseconds
						require.LessOrEqual(t, lastOf(t, resp).Wait, 365*24*time.Hour)
					} else {
						require.Equal(t, 200, resp.StatusCode)
						require.Equal(t, time.Second, time.Since(start))
					}
					readAll(t, resp)
					again, err := tr.RoundTrip(get(t))
					if v.how == tooLong {
						require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
						require.LessOrEqual(t, time.Until(asError(t, err).NotBefore), time.Hour)
						require.Positive(t, time.Until(asError(t, err).NotBefore))
						time.Sleep(time.Hour)
						again, err = tr.RoundTrip(get(t))
					}
					require.NoError(t, err)
					readAll(t, again)
					base.requireBalance(t)
				})
			})
		}
	}
}

// TestBadResets is §4.17 for resets that lie in 1970, in 9999 or nowhere: no
// call is kept for longer than MaxClosed allows, in the real present and in the
// bubble's.
func TestBadResets(t *testing.T) {
	values := []string{
		"0", "-1", "1", "1e308", "NaN", "9223372037", "9223372036854775807", "99999999999999999999", "253402300799", "253402300799000",
		"1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
		"292277026596y", "9999999h", "-5s", "soon", "",
	}
	names := []string{"X-RateLimit-Reset", "RateLimit-Reset", "X-RateLimit-Reset-After", "Anthropic-Ratelimit-Requests-Reset", "X-Ratelimit-Reset-Requests"}
	prefix := map[string]string{
		"X-RateLimit-Reset": "X-RateLimit-%s", "RateLimit-Reset": "RateLimit-%s", "X-RateLimit-Reset-After": "X-RateLimit-%s",
		"Anthropic-Ratelimit-Requests-Reset": "Anthropic-Ratelimit-Requests-%s", "X-Ratelimit-Reset-Requests": "X-Ratelimit-%s-Requests",
	}
	for _, name := range names {
		for _, value := range values {
			for _, code := range []int{200, 429} {
				t.Run(fmt.Sprintf("%s %s %d", name, value, code), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) // past 1e9 s
						base := script(status(code, fmt.Sprintf(prefix[name], "Limit"), "10", fmt.Sprintf(prefix[name], "Remaining"), "0", name, value), status(200))
						tr := &resilienthttp.Transport{Base: base, Policy: every(time.Second)}
						start := time.Now()
						resp, err := tr.RoundTrip(get(t))
						require.NoError(t, err)
						readAll(t, resp)
						require.LessOrEqual(t, time.Since(start), 2*time.Minute)
						resp, err = tr.RoundTrip(get(t))
						if err != nil {
							require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
							require.LessOrEqual(t, time.Until(asError(t, err).NotBefore), time.Hour+time.Second, "MaxClosed, and the spread")
							time.Sleep(time.Hour + time.Second)
							resp, err = tr.RoundTrip(get(t))
						}
						require.NoError(t, err)
						readAll(t, resp)
						require.LessOrEqual(t, len(base.calls()), 3)
						base.requireBalance(t)
					})
				})
			}
		}
	}
}

// TestHostileHeaders: a server that sends a great deal of what we read.
func TestHostileHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			n++
			resp := response(r, 429, "x")
			for i := range 2000 {
				resp.Header.Add("Retry-After", "x")
				resp.Header.Add("RateLimit", fmt.Sprintf("%q;r=0;t=1", fmt.Sprint("p", n, i)))
				resp.Header.Add("RateLimit-Policy", fmt.Sprintf("%q;q=1;w=1", fmt.Sprint("p", n, i)))
				resp.Header.Add("X-RateLimit-Bucket", fmt.Sprint("b", n, i))
			}
			return resp, nil
		})
		tr := &resilienthttp.Transport{Base: base, Policy: every(time.Millisecond)}
		for range 20 {
			resp, err := tr.RoundTrip(get(t))
			if err == nil {
				readAll(t, resp)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestBadConfigurations: what is wrong with the fields is told at each call.
func TestBadConfigurations(t *testing.T) {
	for name, tr := range map[string]*resilienthttp.Transport{
		"key header with a blank":     {Idempotency: resilienthttp.Idempotency{Header: "a b"}},
		"key header with a newline":   {Idempotency: resilienthttp.Idempotency{Header: "a\r\nb"}},
		"deadline header with a NUL":  {Deadline: resilienthttp.Deadline{Header: "a\x00"}},
		"deadline header of no ASCII": {Deadline: resilienthttp.Deadline{Header: "ä"}},
	} {
		t.Run(name, func(t *testing.T) {
			base := script(status(200))
			tr.Base = base
			for range 2 {
				_, err := tr.RoundTrip(get(t))
				require.Error(t, err)
				require.Empty(t, asError(t, err).Attempts)
			}
			require.Empty(t, base.calls())
		})
	}
}

// TestBadHooks: hooks that are nil, and traces that are.
func TestBadHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := resilienthttp.WithTrace(resilienthttp.WithTrace(t.Context(), nil), &resilienthttp.Trace{})
		tr := &resilienthttp.Transport{Base: script(status(503), failing(errReset), status(200)), Trace: &resilienthttp.Trace{}}
		resp, err := tr.RoundTrip(get(t).WithContext(ctx))
		require.NoError(t, err)
		readAll(t, resp)
		require.Nil(t, resilienthttp.Attempts(nil))
		require.Nil(t, resilienthttp.Attempts(&http.Response{}))
		require.Nil(t, resilienthttp.Attempts(&http.Response{Request: get(t)}))
	})
}

// TestUntrustedServer is §4.9: a certificate that is not trusted is one attempt.
func TestUntrustedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), memhttp.TLS())
		base := s.Net.Transport()
		base.TLSClientConfig = &tls.Config{}
		breaker := nervous(time.Hour)
		_, err := (&resilienthttp.Transport{Base: base, Breaker: breaker}).RoundTrip(newRequest(t, "GET", s.URL, ""))
		var untrusted *tls.CertificateVerificationError
		require.ErrorAs(t, err, &untrusted)
		require.Len(t, asError(t, err).Attempts, 1)
		require.Equal(t, resilienthttp.VerdictPermanent, asError(t, err).Attempts[0].Verdict)
	})
}
