package resilienthttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// TestAttemptTimeout: it bounds each attempt from its sending to the headers,
// and neither the gates, nor the waits, nor the body.
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
		{"always too late", time.Second, 0, []step{hanging}, 7 * time.Second, 4, resilienthttp.ErrAttemptTimeout},
		{"the default is to wait for as long as anybody does, and once more", 0, 0, []step{hanging}, 241 * time.Second, 2, resilienthttp.ErrAttemptTimeout},
		{"negative is none", -1, 0, []step{after(100*time.Hour, status(200))}, 100 * time.Hour, 1, nil},
		{"huge is none", 1<<63 - 1, 0, []step{after(100*time.Hour, status(200))}, 100 * time.Hour, 1, nil},
		{"a nanosecond", 1, 0, []step{hanging}, 3*time.Second + 4, 4, resilienthttp.ErrAttemptTimeout},
		{"a Base that derives its context", time.Second, 0, []step{derived}, 7 * time.Second, 4, resilienthttp.ErrAttemptTimeout},
		{"and wraps what it says", time.Second, 0, []step{wrapped}, 7 * time.Second, 4, resilienthttp.ErrAttemptTimeout},
		{"cut short by the call's deadline", time.Minute, 10 * time.Second, []step{hanging}, 10 * time.Second, 1, resilienthttp.ErrDeadline},
		{"as long as the call's deadline", 10 * time.Second, 10 * time.Second, []step{hanging}, 10 * time.Second, 1, resilienthttp.ErrDeadline},
		{"shorter than the call's deadline", 6 * time.Second, 10 * time.Second, []step{hanging}, 10 * time.Second, 2, resilienthttp.ErrDeadline},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script(tt.steps...)
				policy := every(time.Second)
				policy.AttemptTimeout = tt.timeout
				tr := &resilienthttp.Transport{Base: base, Policy: policy}
				req := newRequest(t, http.MethodPut, "http://api.test/things", "")
				if tt.ctx > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), tt.ctx)
					defer cancel()
					req = req.WithContext(ctx)
				}
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				require.Equal(t, tt.took, time.Since(start))
				require.Len(t, base.calls(), tt.tries)
				if tt.is == nil {
					require.NoError(t, err)
					time.Sleep(time.Hour) // nothing of ours ends the body
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
		})
	}
}

// derived is a Base that derives a context from the request's, as many do, and
// returns that one's error.
func derived(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

// wrapped says it as a dialer does.
func wrapped(r *http.Request) (*http.Response, error) {
	_, err := derived(r)
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

// TestAttemptTimeoutOfRealTransports is §4.7 for net/http: whatever a transport
// makes of the context's end, an attempt that timed out is a timeout, is no
// cancellation, and is retried.
func TestAttemptTimeoutOfRealTransports(t *testing.T) {
	tests := []struct {
		name    string
		options []memhttp.Option
		dial    func(context.Context) error
	}{
		{"HTTP/1", nil, nil},
		{"HTTP/2", []memhttp.Option{memhttp.HTTP2()}, nil},
		{"HTTP/2 over TLS", []memhttp.Option{memhttp.HTTP2(), memhttp.TLS()}, nil},
		{"TLS", []memhttp.Option{memhttp.TLS()}, nil},
		{"the dial hangs", nil, memhttp.Hang},
	}
	for _, tt := range tests {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, own timeout %v", tt.name, own), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log faulttest.Log
					s := memhttp.NewServer(t, log.Record(faulttest.Hang), tt.options...)
					s.Net.SetDialFault("mem.test", tt.dial)
					policy := every(time.Second)
					req := newRequest(t, "PUT", s.URL, "body")
					want, tries := resilienthttp.ErrAttemptTimeout, 4
					if own {
						policy.AttemptTimeout = time.Second
					} else {
						ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
						defer cancel()
						req = req.WithContext(ctx)
						want, tries = resilienthttp.ErrDeadline, 1
					}
					tr := &resilienthttp.Transport{Base: s.Transport(), Policy: policy}
					start := time.Now()
					_, err := tr.RoundTrip(req)
					require.Equal(t, 7*time.Second, time.Since(start))
					require.ErrorIs(t, err, want)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorIs(t, err, context.Canceled)
					require.True(t, asError(t, err).Timeout())
					for _, a := range asError(t, err).Attempts {
						require.NotErrorIs(t, a.Err, context.Canceled)
						require.ErrorIs(t, a.Err, context.DeadlineExceeded)
					}
					require.Len(t, asError(t, err).Attempts, tries)
					if tt.dial == nil {
						log.AssertAttempts(t, tries)
					}
					if own && tt.dial == nil {
						log.AssertSpacing(t, time.Second, time.Second)
					}
				})
			})
		}
	}
}

// TestTimeoutInTheSameInstant: an answer that comes together with the timeout is
// either the answer or a timeout, never an answer whose body is dead.
func TestTimeoutInTheSameInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2000 {
			base := script(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				runtime.Gosched()
				return withBody(200, contextBody{r.Context()})(r)
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

// contextBody is a body that says "alive" as long as its context is.
type contextBody struct{ ctx context.Context }

func (b contextBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return copy(p, "alive"), io.EOF
}

func (contextBody) Close() error { return nil }

// TestAttemptContext is §4.5: what Base sees ends with the attempt, has its
// deadline, and hands through the caller's values.
func TestAttemptContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var seen context.Context
		var err error
		base := script(func(r *http.Request) (*http.Response, error) {
			seen, err = r.Context(), r.Context().Err() //nolint:fatcontext // looked at, not passed on
			return response(r, 200, "body"), nil
		})
		tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{AttemptTimeout: time.Minute}}
		start := time.Now()
		resp, rtErr := tr.RoundTrip(get(t).WithContext(context.WithValue(t.Context(), key{}, "value")))
		require.NoError(t, rtErr)
		require.NoError(t, err)
		require.Equal(t, "value", seen.Value(key{}))
		deadline, ok := seen.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Minute, deadline.Sub(start))

		time.Sleep(time.Hour)
		require.NoError(t, seen.Err(), "alive until the body is read to its end")
		_, err = io.ReadFull(resp.Body, make([]byte, 4))
		require.NoError(t, err)
		require.NoError(t, seen.Err())
		_, err = resp.Body.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.ErrorIs(t, seen.Err(), context.Canceled)
		<-seen.Done()
		require.NoError(t, resp.Body.Close())
	})
	ends := map[string]func(*testing.T, *http.Response){
		"read to its end": func(t *testing.T, r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) },
		"closed":          func(t *testing.T, r *http.Response) { require.NoError(t, r.Body.Close()) },
		"closed twice": func(t *testing.T, r *http.Response) {
			require.NoError(t, r.Body.Close())
			require.NoError(t, r.Body.Close())
		},
		"closed and read at once": func(t *testing.T, r *http.Response) {
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = io.Copy(io.Discard, r.Body) })
			wg.Go(func() { _ = r.Body.Close() })
			wg.Wait()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			var seen context.Context
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				seen = r.Context() //nolint:fatcontext // looked at, not passed on
				return response(r, 200, "body"), nil
			})}
			resp, err := tr.RoundTrip(get(t))
			require.NoError(t, err)
			require.NoError(t, seen.Err())
			end(t, resp)
			require.ErrorIs(t, seen.Err(), context.Canceled)
		})
	}
	for name, body := range map[string]io.ReadCloser{"no body": http.NoBody, "a nil body": nil} {
		t.Run(name, func(t *testing.T) {
			var seen context.Context
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				seen = r.Context() //nolint:fatcontext // looked at, not passed on
				return withBody(204, body)(r)
			})}
			resp, err := tr.RoundTrip(get(t))
			require.NoError(t, err)
			require.ErrorIs(t, seen.Err(), context.Canceled, "nothing keeps it alive")
			require.NotNil(t, resp.Body)
			require.Empty(t, readAll(t, resp))
		})
	}
	t.Run("with errors of a timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var err error
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				err = r.Context().Err()
				return nil, err
			})}
			_, rtErr := tr.RoundTrip(get(t))
			require.ErrorIs(t, rtErr, resilienthttp.ErrAttemptTimeout)
			require.Equal(t, context.DeadlineExceeded, err, "as of a context with a deadline")
		})
	})
}

// blocking is a body whose Read blocks until Close, whatever its context does.
type blocking struct {
	closed chan struct{}
	once   sync.Once
}

func newBlocking() *blocking { return &blocking{closed: make(chan struct{})} }

func (b *blocking) Read([]byte) (int, error) {
	<-b.closed
	return 0, net.ErrClosed
}

func (b *blocking) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// trickle is a body that gives a byte every so often, for ever.
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
func (errorBody) Close() error             { return errReset }

// panickyBody panics at the first Read.
type panickyBody struct{}

func (panickyBody) Read([]byte) (int, error) { panic("a body of somebody's making") }
func (panickyBody) Close() error             { return nil }

// TestDiscardedResponsesAreDrained is §4.5: at most 64 KiB and 100 ms, and
// closed in every case.
func TestDiscardedResponsesAreDrained(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name  string
		body  io.ReadCloser
		took  time.Duration
		reads int64 // at most; negative: exactly
	}{
		{"short", io.NopCloser(strings.NewReader("short")), 0, -5},
		{"64 KiB", io.NopCloser(io.LimitReader(zeros{}, 64<<10)), 0, -64 << 10},
		{"endless and quick", io.NopCloser(zeros{}), 0, 64 << 10},
		{"endless and slow", trickle{10 * ms}, 100 * ms, 11},
		{"blocked until Close", newBlocking(), 100 * ms, 0},
		{"in time", trickle{0}, 0, 64 << 10},
		{"fails", errorBody{}, 0, 0},
		{"panics", panickyBody{}, 0, 0},
		{"none", http.NoBody, 0, 0},
		{"nil", nil, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if b, ok := tt.body.(*blocking); ok {
					*b = blocking{closed: make(chan struct{})} // of this bubble
				}
				base := script(withBody(503, tt.body), status(200))
				tr := &resilienthttp.Transport{Base: base, Policy: every(0)}
				start := time.Now()
				resp, err := tr.RoundTrip(get(t))
				require.NoError(t, err)
				require.Equal(t, tt.took, time.Since(start))
				time.Sleep(time.Second) // a Read that cannot be ended comes to its end
				drained := base.reads.Load()
				if tt.reads < 0 {
					require.Equal(t, -tt.reads, drained)
				} else {
					require.LessOrEqual(t, drained, tt.reads)
				}
				require.Equal(t, 200, resp.StatusCode)
				readAll(t, resp)
				base.requireBalance(t)
			})
		})
	}
}

// TestDrainIsPartOfTheWait is §4.12: reading what is left of a response does not
// put the retry off, and so cannot carry it past the deadline.
func TestDrainIsPartOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(withBody(503, newBlocking()), status(200))
		ctx, cancel := context.WithTimeout(t.Context(), 1050*time.Millisecond)
		defer cancel()
		start := time.Now()
		resp, err := (&resilienthttp.Transport{Base: base, Policy: every(time.Second)}).RoundTrip(get(t).WithContext(ctx))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, time.Second, resilienthttp.Attempts(resp)[0].Wait)
		readAll(t, resp)
		base.requireBalance(t)
	})
}

// TestCancelEndsTheDrain is §4.13: who leaves does not wait for a body that
// heeds nothing but Close.
func TestCancelEndsTheDrain(t *testing.T) {
	for name, leave := range map[string]func(*http.Request) *http.Request{
		"context": func(r *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			return r.WithContext(ctx)
		},
		"Request.Cancel": func(r *http.Request) *http.Request {
			cancel := make(chan struct{})
			time.AfterFunc(10*time.Millisecond, func() { close(cancel) })
			r.Cancel = cancel
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script(withBody(503, newBlocking()), status(200))
				start := time.Now()
				_, err := (&resilienthttp.Transport{Base: base, Policy: every(time.Second)}).RoundTrip(leave(get(t)))
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, 10*time.Millisecond, time.Since(start))
				require.Len(t, asError(t, err).Attempts, 1)
				base.requireBalance(t)
			})
		})
	}
}

// TestReadTimeout is §4.5: only the time for which a Read blocks is counted.
func TestReadTimeout(t *testing.T) {
	steady := faulttest.Reply{Body: "0123456789", Pause: 900 * time.Millisecond}
	silent := faulttest.Reply{Body: "first and last", Fault: faulttest.Stalled, At: 5}
	big := faulttest.OK(strings.Repeat("x", 1<<20))

	tests := []struct {
		name    string
		handler http.Handler
		limit   time.Duration
		pause   time.Duration // of the reader, between reads
		got     int
		took    time.Duration // 0: do not ask
		is      error
	}{
		{"steady server", steady, time.Second, 0, 10, 9 * time.Second, nil},
		{"steady server, short limit", steady, 800 * time.Millisecond, 0, 0, 800 * time.Millisecond, resilienthttp.ErrReadTimeout},
		{"silent server", silent, time.Second, 0, 5, time.Second, resilienthttp.ErrReadTimeout},
		{"slow reader", big, time.Second, time.Minute, 1 << 20, 0, nil},
		{"slow reader of a silent server", silent, time.Second, time.Minute, 5, time.Minute + time.Second, resilienthttp.ErrReadTimeout},
		{"huge", steady, 1<<63 - 1, 0, 10, 9 * time.Second, nil},
		{"negative", steady, -1, 0, 10, 9 * time.Second, nil},
		{"none", steady, 0, 0, 10, 9 * time.Second, nil},
	}
	for _, tt := range tests {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", tt.name, h2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					options := []memhttp.Option{}
					if h2 {
						options = append(options, memhttp.HTTP2())
					}
					s := memhttp.NewServer(t, tt.handler, options...)
					base := &countingBase{base: s.Transport()}
					tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{ReadTimeout: tt.limit}}
					resp, err := tr.RoundTrip(newRequest(t, "GET", s.URL, ""))
					require.NoError(t, err)
					start := time.Now()
					got, buf := 0, make([]byte, 128<<10)
					for err == nil {
						var n int
						n, err = resp.Body.Read(buf)
						got += n
						if n > 0 && err == nil {
							time.Sleep(tt.pause)
						}
					}
					require.Equal(t, tt.got, got)
					if tt.took > 0 {
						require.Equal(t, tt.took, time.Since(start))
					}
					if tt.is == nil {
						require.Equal(t, io.EOF, err)
					} else {
						require.ErrorIs(t, err, tt.is)
						require.True(t, asError(t, err).Timeout())
						require.NotErrorIs(t, err, context.Canceled)
						require.Len(t, asError(t, err).Attempts, 1)
						_, err = resp.Body.Read(buf)
						require.ErrorIs(t, err, tt.is, "and stays so")
					}
					require.NoError(t, resp.Body.Close())
					base.requireBalance(t)
				})
			})
		}
	}
}

// TestReadTimeoutOfStubbornBody is §4.5: a body that does not heed its context
// is closed under its blocked Read.
func TestReadTimeoutOfStubbornBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(withBody(200, newBlocking()))
		tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{ReadTimeout: time.Second}}
		resp, err := tr.RoundTrip(get(t))
		require.NoError(t, err)
		start := time.Now()
		_, err = resp.Body.Read(make([]byte, 1))
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, resilienthttp.ErrReadTimeout)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		base.requireBalance(t)
	})
}

// TestReadErrorsPass: what the body itself says comes through, and ends the
// attempt.
func TestReadErrorsPass(t *testing.T) {
	var seen context.Context
	base := script(func(r *http.Request) (*http.Response, error) {
		seen = r.Context() //nolint:fatcontext // looked at, not passed on
		return withBody(200, errorBody{})(r)
	})
	tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{ReadTimeout: time.Minute}}
	resp, err := tr.RoundTrip(get(t))
	require.NoError(t, err)
	_, err = resp.Body.Read(make([]byte, 1))
	require.Equal(t, errReset, err)
	require.Error(t, seen.Err())
	require.Equal(t, errReset, resp.Body.Close())
	require.NoError(t, resp.Body.Close())
	base.requireBalance(t)
}

// TestCancelWhileReading is §4.7: the caller's cancellation reaches the body's
// reader as the context's error.
func TestCancelWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulttest.NewInMemory(t, faulttest.Reply{Fault: faulttest.Stalled, At: -1})
		for _, limit := range []time.Duration{0, time.Hour} {
			tr := &resilienthttp.Transport{Base: s.Transport(), Policy: resilienthttp.Policy{ReadTimeout: limit}}
			ctx, cancel := context.WithCancel(t.Context())
			resp, err := tr.RoundTrip(newRequest(t, "GET", s.URL, "").WithContext(ctx))
			require.NoError(t, err)
			time.AfterFunc(time.Second, cancel)
			_, err = io.ReadAll(resp.Body)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, resilienthttp.ErrReadTimeout)
			require.NoError(t, resp.Body.Close())
		}
		synctest.Wait()
		for _, q := range s.Requests() {
			require.Equal(t, time.Second, q.Left.Sub(q.Arrived), "and the server")
		}
	})
}

// TestPanicsGiveBack: when Base, or a hook, panics or ends the goroutine, the
// caller gets to see that, and nothing stays behind: not the probe's place, nor
// the request in flight, nor a response body, nor the attempt's context (§4.5,
// §4.15, §4.17).
func TestPanicsGiveBack(t *testing.T) {
	boom := func() { panic("boom") }
	places := map[string]func(how func(), tr *resilienthttp.Transport, base *scriptedBase){
		"Base": func(how func(), _ *resilienthttp.Transport, base *scriptedBase) {
			base.steps[1] = func(r *http.Request) (*http.Response, error) { how(); return nil, nil }
		},
		"AttemptStart": func(how func(), tr *resilienthttp.Transport, _ *scriptedBase) {
			tr.Trace.AttemptStart = func(*resilienthttp.Attempt) { how() }
		},
		"AttemptDone": func(how func(), tr *resilienthttp.Transport, _ *scriptedBase) {
			tr.Trace.AttemptDone = func(*resilienthttp.Attempt) { how() }
		},
		"Classify": func(how func(), tr *resilienthttp.Transport, _ *scriptedBase) {
			tr.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { how(); return 0 }
		},
		"RetryWait": func(how func(), tr *resilienthttp.Transport, _ *scriptedBase) {
			tr.Trace.RetryWait = func(*resilienthttp.Attempt) { how() }
		},
		"Backoff": func(how func(), tr *resilienthttp.Transport, _ *scriptedBase) {
			tr.Policy.Backoff = func(int, time.Duration) time.Duration { how(); return 0 }
		},
		"CallDone": func(how func(), tr *resilienthttp.Transport, _ *scriptedBase) {
			tr.Trace.CallDone = func(*resilienthttp.Call) { how() }
		},
	}
	for place, arrange := range places {
		for name, how := range map[string]func(){"panics": boom, "ends the goroutine": runtime.Goexit} {
			t.Run(place+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var armed atomic.Bool
					contexts := map[context.Context]bool{}
					base := script(
						status(500, "X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "3000"),
						status(500), status(200),
					)
					limits := &resilienthttp.RateLimit{}
					breaker := &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Probes: 1, Cooldown: time.Second, MaxCooldown: time.Second}
					tr := &resilienthttp.Transport{
						Base: roundTripper(func(r *http.Request) (*http.Response, error) {
							contexts[r.Context()] = true
							return base.RoundTrip(r)
						}),
						RateLimit: limits, Breaker: breaker, Trace: &resilienthttp.Trace{}, Policy: every(0),
					}
					arrange(func() {
						if armed.Load() {
							how()
						}
					}, tr, base)
					single := func() *http.Request { return get(t).WithContext(resilienthttp.SingleAttempt(t.Context())) }

					resp, err := tr.RoundTrip(single()) // opens the circuit, and leaves one request of the quota
					require.NoError(t, err)
					readAll(t, resp)
					require.Equal(t, resilienthttp.StateOpen, breaker.State("api.test"))
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
							// They come into play when a retry is thought of.
							tr := &resilienthttp.Transport{Base: tr.Base, Breaker: never(), Trace: tr.Trace, Policy: tr.Policy}
							resp, _ = tr.RoundTrip(plain)
						} else {
							resp, _ = tr.RoundTrip(last)
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
					for ctx := range contexts {
						require.Error(t, ctx.Err(), "the context of an attempt is left alive")
					}

					if place == "Base" || place == "AttemptStart" {
						// Nothing is known of that attempt: both places are free.
						base.steps = []step{status(200)}
						start := time.Now()
						resp, err = tr.RoundTrip(single())
						require.NoError(t, err, "the probe's place was not given back")
						require.Zero(t, time.Since(start), "the request in flight was not given back")
						readAll(t, resp)
					}
				})
			})
		}
	}
}

// TestBrokenAnswersAreClosed: Base's response is closed when Base breaks its
// contract by returning an error beside it.
func TestBrokenAnswersAreClosed(t *testing.T) {
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

// TestNestedTransports is §4.20 in one process: only the outer one retries, the
// keys and headers are the outer one's, and each tells of its own attempts.
func TestNestedTransports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(503, "Retry-After", "1"))
		inner := &resilienthttp.Transport{Base: base}
		outer := &resilienthttp.Transport{Base: inner}
		resp, err := outer.RoundTrip(newRequest(t, "POST", "http://api.test/", "body"))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Len(t, resilienthttp.Attempts(resp), 4)
		require.Equal(t, "status 503", readAll(t, resp))
		calls := base.calls()
		require.Len(t, calls, 4)
		for _, s := range calls {
			require.Equal(t, calls[0].Header["Idempotency-Key"], s.Header["Idempotency-Key"])
			require.Len(t, s.Header["Idempotency-Key"], 1)
		}
		base.requireBalance(t)
	})
}

// TestTransportInsideItself: a Transport that is its own Base, by way of
// http.DefaultTransport perhaps, says so instead of exhausting the stack; one
// that only uses itself on the way, to fetch a token for instance, works.
func TestTransportInsideItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &resilienthttp.Transport{}
		tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) { return tr.RoundTrip(r.Clone(r.Context())) })
		_, err := tr.RoundTrip(get(t))
		require.Error(t, err)
		require.Len(t, asError(t, err).Attempts, 1)

		base := script(status(200))
		tr = &resilienthttp.Transport{}
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
		resp, err := tr.RoundTrip(get(t))
		require.NoError(t, err)
		readAll(t, resp)
		require.Len(t, base.calls(), 2)
	})
}

// TestUpgradedBodyHalfCloses: an upgraded connection that can be half-closed
// still can, as httputil.ReverseProxy wants it.
func TestUpgradedBodyHalfCloses(t *testing.T) {
	for _, can := range []bool{true, false} {
		t.Run(fmt.Sprint(can), func(t *testing.T) {
			half := &halfCloser{}
			var body io.ReadWriteCloser = half
			if !can {
				body = struct{ io.ReadWriteCloser }{half}
			}
			base := roundTripper(func(r *http.Request) (*http.Response, error) { return withBody(101, body)(r) })
			resp, err := (&resilienthttp.Transport{Base: base}).RoundTrip(get(t))
			require.NoError(t, err)
			err = resp.Body.(interface{ CloseWrite() error }).CloseWrite()
			require.Equal(t, can, err == nil)
			require.Equal(t, can, half.closed)
			require.NoError(t, resp.Body.Close())
		})
	}
}

type halfCloser struct {
	closed bool
	errorBody
}

func (h *halfCloser) Write(p []byte) (int, error) { return len(p), nil }
func (h *halfCloser) Close() error                { return nil }

func (h *halfCloser) CloseWrite() error {
	h.closed = true
	return nil
}

// TestOnlyUpgradesAreWritable: a body that happens to have a Write method is no
// connection unless the status says so.
func TestOnlyUpgradesAreWritable(t *testing.T) {
	base := roundTripper(func(r *http.Request) (*http.Response, error) { return withBody(200, &halfCloser{})(r) })
	resp, err := (&resilienthttp.Transport{Base: base}).RoundTrip(get(t))
	require.NoError(t, err)
	_, writable := resp.Body.(io.Writer)
	require.False(t, writable)
	require.NoError(t, resp.Body.Close())
}

// TestBreakerOpensInLine is §4.15: who has stood in line asks the breaker again,
// with the turn in hand, and gives the turn back when it says no.
func TestBreakerOpensInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(200, "X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10"), status(200))
		tr := &resilienthttp.Transport{Base: base, Breaker: nervous(2 * time.Second)}
		resp, err := tr.RoundTrip(get(t))
		require.NoError(t, err)
		readAll(t, resp)
		time.AfterFunc(9500*time.Millisecond, func() { openBreaker(t, tr) })
		start := time.Now()
		req := newRequest(t, "PUT", "http://api.test/", "")
		bodies := trackBody(req, "content")
		_, err = tr.RoundTrip(req)
		require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
		require.GreaterOrEqual(t, time.Since(start), 10*time.Second)
		require.Less(t, time.Since(start), 12*time.Second)
		require.Len(t, base.calls(), 1)
		require.Empty(t, asError(t, err).Attempts)
		bodies.requireClosedOnce(t, 1)

		time.Sleep(3 * time.Second) // the cooldown; the quota's window is longer
		start = time.Now()
		resp, err = tr.RoundTrip(get(t))
		require.NoError(t, err)
		require.Zero(t, time.Since(start), "the turn was not given back")
		readAll(t, resp)
	})
}

// TestDeadlineSeenEarly: a Base that sees a deadline pass before its timer has
// fired has met that deadline, not an error of its own.
func TestDeadlineSeenEarly(t *testing.T) {
	tests := []struct {
		name string
		err  error
		is   error
	}{
		{"as the net package says it", os.ErrDeadlineExceeded, resilienthttp.ErrDeadline},
		{"as the context package says it", context.DeadlineExceeded, resilienthttp.ErrDeadline},
		{"as others say it", &net.DNSError{Err: "slow", IsTimeout: true}, resilienthttp.ErrDeadline},
		{"something else", errReset, errReset},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				// The same with the attempt's own timeout, in the instant at which its
				// timer fires.
				base := script(after(time.Second, failing(tt.err)))
				_, err = (&resilienthttp.Transport{
					Base: base, Policy: resilienthttp.Policy{AttemptTimeout: time.Second, MaxAttempts: -1},
				}).RoundTrip(get(t))
				require.Len(t, base.calls(), 1)
				require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
			})
		})
	}
}

// earlyContext has a deadline that its Done does not know of.
type earlyContext struct {
	context.Context

	deadline time.Time
}

func (c earlyContext) Deadline() (time.Time, bool) { return c.deadline, true }
