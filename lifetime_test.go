package resilienthttp_test

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// TestContextsDerivedFromAttempts is §4.5 for what Base makes of an attempt's
// context, as http.Transport does: it ends with the attempt, for the same
// reason, and takes no goroutine. The call's context may be one that can end or
// one that cannot; the attempt's is made differently, and must not differ.
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
			t.Run("end with the body", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var derived context.Context
					var kept, stopped atomic.Int64
					tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
						before := runtime.NumGoroutine()
						ctx, cancel := context.WithCancel(r.Context())
						t.Cleanup(cancel)
						derived = ctx //nolint:fatcontext // looked at, not passed on
						context.AfterFunc(r.Context(), func() { kept.Add(1) })
						for range 3 {
							stop := context.AfterFunc(r.Context(), func() { stopped.Add(1) })
							require.True(t, stop())
							require.False(t, stop(), "once")
						}
						require.LessOrEqual(t, runtime.NumGoroutine(), before, "nobody watches")
						return response(r, 200, "body"), nil
					})}
					resp, err := tr.RoundTrip(get(t).WithContext(parent(t)))
					require.NoError(t, err)
					require.NoError(t, derived.Err())
					require.NoError(t, resp.Body.Close())
					<-derived.Done()
					require.Equal(t, context.Canceled, derived.Err())
					synctest.Wait()
					require.EqualValues(t, 1, kept.Load())
					require.Zero(t, stopped.Load())

					ended := resp.Request.Context()
					context.AfterFunc(ended, func() { kept.Add(1) })
					synctest.Wait()
					require.EqualValues(t, 2, kept.Load(), "at once after the end")
				})
			})
			t.Run("end with the attempt timeout", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var cause error
					tr := &resilienthttp.Transport{
						Policy: resilienthttp.Policy{MaxAttempts: -1},
						Base: roundTripper(func(r *http.Request) (*http.Response, error) {
							ctx, cancel := context.WithCancel(r.Context())
							defer cancel()
							<-ctx.Done()
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
		})
	}
}

func withDeadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
