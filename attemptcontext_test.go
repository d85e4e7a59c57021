package resilienthttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// §4.5: a context that Base derives from an attempt's context ends with the attempt, with the
// same cause, and needs no goroutine, whether the call's context can end or not.
func TestContextsDerivedFromAttempts(t *testing.T) {
	type key struct{}
	parents := map[string]func(*testing.T) context.Context{
		"that cannot end":  func(*testing.T) context.Context { return context.Background() },
		"with a value":     func(*testing.T) context.Context { return context.WithValue(context.Background(), key{}, 1) },
		"cut off from one": func(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) },
		"that can end":     func(t *testing.T) context.Context { return t.Context() },
		"with a deadline":  func(t *testing.T) context.Context { return withDeadline(t, time.Hour) },
	}
	for name, parent := range parents {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, "end with the body", func(t *testing.T) {
				var derived, sent context.Context
				var kept, stopped atomic.Int64
				tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					before := runtime.NumGoroutine()
					ctx, cancel := context.WithCancel(r.Context())
					t.Cleanup(cancel)
					derived, sent = ctx, r.Context() //nolint:fatcontext // looked at, not passed on
					context.AfterFunc(r.Context(), func() { kept.Add(1) })
					for range 3 {
						stop := context.AfterFunc(r.Context(), func() { stopped.Add(1) })
						require.True(t, stop())
						require.False(t, stop(), "once")
					}
					require.LessOrEqual(t, runtime.NumGoroutine(), before, "no goroutine watches the context")
					return response(r, 200, "body"), nil
				})}
				resp := roundTrip(t, tr, get(t).WithContext(parent(t)))
				require.NoError(t, derived.Err())
				require.NoError(t, resp.Body.Close())
				<-derived.Done()
				require.Equal(t, context.Canceled, derived.Err())
				synctest.Wait()
				require.EqualValues(t, 1, kept.Load())
				require.Zero(t, stopped.Load())

				context.AfterFunc(sent, func() { kept.Add(1) })
				synctest.Wait()
				require.EqualValues(t, 2, kept.Load(), "at once after the end")
			})
			bubble.Run(t, "end with the attempt timeout", func(t *testing.T) {
				var cause error
				tr := &resilienthttp.Transport{
					Policy: resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: time.Minute},
					Base: roundTripper(func(r *http.Request) (*http.Response, error) {
						ctx, cancel := context.WithCancel(r.Context())
						defer cancel()
						<-ctx.Done()
						require.Equal(t, context.DeadlineExceeded, r.Context().Err())
						cause = context.Cause(ctx)
						return nil, ctx.Err()
					}),
				}
				_, err := tr.RoundTrip(get(t).WithContext(parent(t)))
				require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
				require.NotErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, cause, context.DeadlineExceeded)
			})
		})
	}
}

// The response's request is the caller's, as with net/http, and can be sent again after the body
// is closed.
func TestResponseRequest(t *testing.T) {
	for name, answer := range map[string]step{
		"with a body":    status(200),
		"without one":    withBody(204, http.NoBody),
		"with none, nil": withBody(200, nil),
	} {
		t.Run(name, func(t *testing.T) {
			type key struct{}
			client := &http.Client{Transport: &resilienthttp.Transport{Base: script(status(503), answer), Policy: every(0), OwnsRetries: true}}
			req := newRequest(t, http.MethodPost, "http://api.test/things?q=1", "body")
			req = req.WithContext(context.WithValue(t.Context(), key{}, "value"))
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.Len(t, resilienthttp.Attempts(resp), 2)
			readAll(t, resp)
			require.Len(t, resilienthttp.Attempts(resp), 2, "the request is unchanged after the body is closed")

			back := resp.Request
			require.NoError(t, back.Context().Err())
			require.Equal(t, "value", back.Context().Value(key{}))
			require.Empty(t, back.Header, "added fields are only on the attempts")
			require.Equal(t, req.URL, back.URL)
			require.Equal(t, req.Body, back.Body)

			back.Body, err = back.GetBody()
			require.NoError(t, err)
			again := do(t, client, back)
			readAll(t, again)
			require.Len(t, resilienthttp.Attempts(again), 1)
			require.Len(t, resilienthttp.Attempts(resp), 2)
		})
	}
}

// Sending a response's request again and again keeps no previous call in memory.
func TestResponseRequestKeepsNothing(t *testing.T) {
	client := &http.Client{Transport: &resilienthttp.Transport{Base: roundTripper(status(200))}}
	again := func(req *http.Request) (weak.Pointer[http.Response], *http.Request) {
		resp := do(t, client, req)
		readAll(t, resp)
		return weak.Make(resilienthttp.Attempts(resp)[0].Response), resp.Request
	}
	first, req := again(get(t))
	require.NotNil(t, first.Value())
	_, req = again(req)
	runtime.GC()
	require.Nil(t, first.Value())
	runtime.KeepAlive(req)
}

// §4.13: Request.Cancel ends a call before its start, in an attempt, in a wait, in a queue, and while
// the body is read. No goroutine remains.
func TestRequestCancel(t *testing.T) {
	for _, row := range []struct {
		name string
		base *scriptedBase
		at   time.Duration
	}{
		{"before the call", script(status(200)), -1},
		{"in an attempt", script(hanging), time.Second},
		{"in a wait", script(status(503)), time.Second},
		{"while a body that only Close unblocks is drained", script(func(r *http.Request) (*http.Response, error) {
			return withBody(503, newBlocking())(r)
		}), 10 * time.Millisecond},
		{"in a queue", script(status(503)), time.Hour + time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			cancel := make(chan struct{})
			if row.at < 0 {
				close(cancel)
			} else {
				time.AfterFunc(row.at, func() { close(cancel) })
			}
			req := get(t)
			req.Cancel = cancel
			start := time.Now()
			limit := &resilienthttp.RateLimit{Limit: 1e-4, Burst: 1, MaxWait: 24 * time.Hour} // the retry is queued
			require.ErrorIs(t, discard(&resilienthttp.Transport{Base: row.base, Policy: every(time.Hour), RateLimit: limit}, req), context.Canceled)
			require.Equal(t, max(row.at, 0), time.Since(start))
			synctest.Wait() // another goroutine closes a body that is drained
			row.base.requireBalance(t)
		})
	}
	bubble.Run(t, "a context that never ends says that its deadline has passed", func(t *testing.T) {
		req := newCall(oddContext{t.Context(), time.Now().Add(time.Second)}, t, http.MethodGet, "")
		cancel := make(chan struct{})
		req.Cancel = cancel
		time.AfterFunc(2*time.Second, func() { close(cancel) })
		start := time.Now()
		require.ErrorIs(t, discard(&resilienthttp.Transport{Base: script(hanging)}, req), context.Canceled)
		require.Less(t, time.Since(start), 2*time.Second+50*time.Millisecond, "§4.13: within milliseconds")
	})
	bubble.Run(t, "while the body is read", func(t *testing.T) {
		cancel := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(cancel) })
		req := get(t)
		req.Cancel = cancel
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			return withBody(200, untilDone{r.Context()})(r)
		})
		resp := roundTrip(t, &resilienthttp.Transport{Base: base}, req)
		_, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, resp.Body.Close())
	})
	bubble.Run(t, "not at all, and a hook panics", func(t *testing.T) { // which reports goroutines that are left
		req := get(t)
		req.Cancel = make(chan struct{})
		require.Panics(t, func() {
			_, _ = (&resilienthttp.Transport{Base: script(panicking("odd"))}).RoundTrip(req)
		})
	})
	t.Run("not at all", func(t *testing.T) {
		for _, answer := range []step{status(200), withBody(204, http.NoBody), failing(errReset)} {
			synctest.Test(t, func(t *testing.T) { // which reports goroutines that are left
				req := get(t)
				req.Cancel = make(chan struct{})
				_ = discard(&resilienthttp.Transport{Base: script(status(503), answer)}, req)
			})
		}
	})
}

// untilDone is a body that blocks until its request's context ends.
type untilDone struct{ ctx context.Context }

func (b untilDone) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }
func (b untilDone) Close() error             { return nil }

// §4.7: after http.Client.Timeout, the error says so, and hooks see a deadline, whichever of its two timers fires first.
func TestClientTimeout_errorText(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var ended error // as hooks see it
			client := &http.Client{Timeout: time.Second, Transport: &resilienthttp.Transport{
				Base:  script(hanging),
				Trace: &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { ended = c.Err }},
			}}
			start := time.Now()
			_, err := client.Get("http://api.test/")
			require.ErrorContains(t, err, "Client.Timeout exceeded while awaiting headers")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			requireTimeout(t, err)
			require.ErrorIs(t, ended, resilienthttp.ErrDeadline)
			require.NotErrorIs(t, ended, context.Canceled)
			require.Equal(t, time.Second, time.Since(start))
		})
	}
	t.Run("in the body", func(t *testing.T) {
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				client := &http.Client{Timeout: time.Second, Transport: &resilienthttp.Transport{Base: script(func(r *http.Request) (*http.Response, error) {
					return withBody(200, untilDone{r.Context()})(r)
				})}}
				resp, err := client.Get("http://api.test/")
				require.NoError(t, err)
				start := time.Now()
				_, err = io.ReadAll(resp.Body)
				require.Equal(t, time.Second, time.Since(start))
				requireTimeout(t, err)
				require.ErrorContains(t, err, "Client.Timeout or context cancellation while reading body")
				require.NoError(t, resp.Body.Close())
			})
		}
	})
	bubble.Run(t, "a Base that knows Request.Cancel alone", func(t *testing.T) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Cancel // as bases of ten years ago do
			return nil, io.ErrClosedPipe
		})
		start := time.Now()
		_, err := (&http.Client{Timeout: time.Second, Transport: &resilienthttp.Transport{Base: base}}).Get("http://api.test/")
		require.ErrorContains(t, err, "Client.Timeout exceeded while awaiting headers")
		require.Equal(t, time.Second, time.Since(start))
	})
	bubble.Run(t, "the context's deadline came first", func(t *testing.T) {
		client := &http.Client{Timeout: time.Hour, Transport: &resilienthttp.Transport{Base: script(hanging)}}
		_, err := client.Do(newRequest(t, http.MethodPut, "http://api.test/", "").WithContext(withDeadline(t, time.Second)))
		require.ErrorIs(t, err, resilienthttp.ErrDeadline)
		require.Len(t, asError(t, err).Attempts, 1, "errors.As finds the *Error")
	})
}

// §4.18a: InDoubt knows http.Client.Timeout, which hides the *Error.
func TestClientTimeout_inDoubt(t *testing.T) {
	for method, want := range map[string]bool{http.MethodPost: true, http.MethodGet: false} {
		synctest.Test(t, func(t *testing.T) {
			client := &http.Client{Timeout: time.Second, Transport: &resilienthttp.Transport{Base: script(hanging)}}
			req := newRequest(t, method, "http://api.test/", "")
			resp, err := client.Do(req)
			require.ErrorContains(t, err, "Client.Timeout")
			require.Equal(t, want, resilienthttp.InDoubt(resp, err), method)
		})
	}
}

// §4.5: the context that Base gets ends with the attempt, has its deadline, and has the caller's
// values.
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
		resp := roundTrip(t, tr, get(t).WithContext(context.WithValue(t.Context(), key{}, "value")))
		require.NoError(t, err)
		require.Equal(t, "value", seen.Value(key{}))
		deadline, ok := seen.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Minute, deadline.Sub(start))

		time.Sleep(time.Hour)
		require.NoError(t, seen.Err(), "the context lasts until the end of the body")
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
			resp := roundTrip(t, tr, get(t))
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
			resp := roundTrip(t, tr, get(t))
			require.ErrorIs(t, seen.Err(), context.Canceled, "the context ends without a body")
			require.NotNil(t, resp.Body)
			require.Empty(t, readAll(t, resp))
		})
	}
}

// The caller's hooks see what Base does, beside those of the attempt.
func TestAttemptContext_callersHooks(t *testing.T) {
	asked := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GetConn: func(string) { asked++ }})
	client := &http.Client{Transport: &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(r.Context()).GetConn("api.example:80")
		return instant{}.RoundTrip(r)
	})}}
	req := newRequest(t, http.MethodGet, "http://api.example/", "").WithContext(ctx)
	resp := do(t, client, req)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 1, asked)
}
