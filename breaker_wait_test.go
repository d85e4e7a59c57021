package resilienthttp_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// A server that is away for four seconds fails no call that has time, unless calls are rejected at once.
func TestBreakerWait_outage(t *testing.T) {
	for _, row := range []struct {
		name    string
		fault   step
		maxWait time.Duration
		most    int64
		least   int64
	}{
		{"503", status(503), 0, 0, 0},
		{"connection refused", refused, 0, 0, 0},
		{"503, rejected at once", status(503), -1, 32, 16},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				tr := &resilienthttp.Transport{Breaker: &resilienthttp.Breaker{MaxWait: row.maxWait}}
				tr.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
					time.Sleep(10 * time.Millisecond)
					if at := time.Since(begun); at >= 10*time.Second && at < 14*time.Second {
						return row.fault(r)
					}
					return status(200)(r)
				})
				var lost atomic.Int64
				var calls sync.WaitGroup
				for range 200 {
					time.Sleep(time.Second / 8)
					calls.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						resp, err := tr.RoundTrip(get(t).WithContext(ctx))
						if err != nil || resp.StatusCode != 200 {
							lost.Add(1)
						}
						if err == nil {
							_ = resp.Body.Close()
						}
					})
				}
				calls.Wait()
				require.GreaterOrEqual(t, lost.Load(), row.least)
				require.LessOrEqual(t, lost.Load(), row.most)
				for _, s := range tr.State().Scopes {
					require.Zero(t, s.InFlight+s.Queued+s.RetryWaiting+s.Breaker.Waiting)
				}
			})
		})
	}
}

// A call that was not sent waits as long as it may; its error says so. Without the right to wait it ends at once.
func TestBreakerWait_howLong(t *testing.T) {
	const s = time.Second
	single := resilienthttp.WithSingleAttempt
	for _, row := range []struct {
		name    string
		breaker *resilienthttp.Breaker
		ctx     func(context.Context) context.Context
		want    time.Duration
	}{
		{"no deadline", &resilienthttp.Breaker{}, nil, 10 * s},
		{"MaxWait", &resilienthttp.Breaker{MaxWait: 4 * s}, nil, 4 * s},
		{"negative MaxWait", &resilienthttp.Breaker{MaxWait: -1}, nil, 0},
		{"static", &resilienthttp.Breaker{Static: true}, nil, 0},
		{"static with MaxWait", &resilienthttp.Breaker{Static: true, MaxWait: 4 * s}, nil, 4 * s},
		{"another layer owns the retries", &resilienthttp.Breaker{}, single, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := row.breaker
				b.FailureRatio, b.MinRequests, b.Cooldown, b.MaxCooldown = 0.01, 1, time.Hour, time.Hour
				base := script(status(503))
				tr := &resilienthttp.Transport{Base: base, Breaker: b, Policy: resilienthttp.Policy{MaxAttempts: -1}}
				tripped(t, tr, get(t))
				begun, ctx := time.Now(), t.Context()
				if row.ctx != nil {
					ctx = row.ctx(ctx)
				}
				_, err := tr.RoundTrip(get(t).WithContext(ctx))
				require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
				require.Equal(t, row.want, time.Since(begun))
				require.True(t, asError(t, err).NotBefore.After(time.Now()))
				if row.want > 0 {
					require.ErrorContains(t, err, "the server has failed for "+row.want.String()+", waited "+row.want.String())
				}
				require.Len(t, base.calls(), 1)
			})
		})
	}
}

// A call with a held retry returns the server's last response, with its body unread.
func TestBreakerWait_lastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(status(503))
		tr := &resilienthttp.Transport{Base: base, Breaker: &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Cooldown: time.Hour}}
		resp, err := tr.RoundTrip(get(t))
		require.NoError(t, err)
		require.Equal(t, "status 503", readAll(t, resp))
		require.Equal(t, resilienthttp.ErrBreakerOpen, lastOf(t, resp).StopReason)
		base.requireBalance(t)
	})
}
