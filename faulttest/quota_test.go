package faulttest_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// skewed starts a server with a clock long after 2001, so that epoch seconds can be distinguished
// from seconds.
func skewed(t *testing.T, h http.Handler) *faulttest.Server {
	srv := &faulttest.Server{Script: h, InMemory: true}
	srv.Skew = 30*365*24*time.Hour + 700*time.Millisecond
	srv.Start(t)
	return srv
}

// In every dialect a client that follows the header uses the whole quota without a rejection.
func TestQuota_advertisesTheTruth(t *testing.T) {
	t.Parallel()
	for d := faulttest.IETF; d <= faulttest.NoHeaders; d++ {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				time.Sleep(300 * time.Millisecond) // not a whole second
				const limit, window = 10, 5 * time.Second
				quota := &faulttest.Quota{Limit: limit, Window: window, Dialect: d, RetryAfterFormat: faulttest.Fraction}
				srv := skewed(t, quota)
				begin := time.Now()
				for range 4 {
					for i := range limit {
						resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
						require.Equal(t, 200, resp.StatusCode, "request %d", i)
						require.Empty(t, resp.Header.Get("Retry-After"))
						state, ok := ratelimitheader.Parse(resp.Header, time.Now())
						require.Equal(t, d != faulttest.NoHeaders, ok)
						if !ok {
							continue
						}
						assert.EqualValues(t, limit, state.Dimensions[0].Limit)
						assert.EqualValues(t, limit-1-i, state.Dimensions[0].Remaining)
						assert.Equal(t, i == limit-1, state.Exhausted)
					}
					// One more request is rejected, with the correct wait.
					resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
					require.Equal(t, 429, resp.StatusCode)
					again, ok := retryafter.Parse(resp.Header, time.Now())
					require.True(t, ok)
					reset := window
					if state, ok := ratelimitheader.Parse(resp.Header, time.Now()); ok && d != faulttest.Shopify {
						reset = state.Dimensions[0].Reset
						assert.True(t, state.Exhausted)
						assert.GreaterOrEqual(t, reset, again-time.Millisecond)
						assert.Less(t, reset, again+2*time.Second, "at most 2s too long")
					}
					time.Sleep(again - 2*time.Millisecond)
					assert.Equal(t, 429, status(t, srv, http.MethodGet, "/"))
					time.Sleep(reset - again + 2*time.Millisecond)
					if d == faulttest.Shopify { // the bucket is empty after a window
						time.Sleep(window)
					}
				}
				accepted, rejected := quota.Counts()
				assert.Equal(t, []int{4 * limit, 8}, []int{accepted, rejected})
				assert.Less(t, time.Since(begin), 4*(2*window+2*time.Second))
				assert.Contains(t, srv.Transcript(), "429 over quota")
			})
		})
	}
}

// Windows are fixed and start on a whole second.
func TestQuota_windows(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		time.Sleep(900 * time.Millisecond)
		srv := faulttest.NewInMemory(t, &faulttest.Quota{Limit: 1, Window: 10 * time.Second, RetryAfterFormat: faulttest.Millis})
		begin := time.Now().Truncate(time.Second)
		for _, row := range []struct {
			at    time.Duration
			want  int
			again string
		}{
			{900 * time.Millisecond, 200, ""},
			{9999 * time.Millisecond, 429, "1"},
			{10 * time.Second, 200, ""},
			{10 * time.Second, 429, "10000"},
			{35 * time.Second, 200, ""},
			{39 * time.Second, 429, "1000"},
			{40 * time.Second, 200, ""},
		} {
			time.Sleep(time.Until(begin.Add(row.at)))
			resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
			assert.Equal(t, row.want, resp.StatusCode, row.at)
			assert.Equal(t, row.again, resp.Header.Get("Retry-After-Ms"), row.at)
		}
	})
}

func TestQuota_defaultsAndOptions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		srv := faulttest.NewInMemory(t, new(faulttest.Quota))
		for range 60 {
			assert.Equal(t, 200, status(t, srv, http.MethodGet, "/"))
		}
		assert.Equal(t, 429, status(t, srv, http.MethodGet, "/"))
		time.Sleep(time.Minute)
		assert.Equal(t, 200, status(t, srv, http.MethodGet, "/"))

		for _, d := range []faulttest.Dialect{faulttest.GitHub, faulttest.Shopify} {
			none := faulttest.NewInMemory(t, &faulttest.Quota{Limit: -1, Status: 403, RetryAfterFormat: faulttest.NoRetryAfter, Dialect: d, Name: "x"})
			resp, _ := answered(t, none.Client(), http.MethodGet, none.URL, "")
			assert.Equal(t, 403, resp.StatusCode)
			assert.Empty(t, resp.Header.Get("Retry-After"))
		}

		next := faulttest.NewInMemory(t, &faulttest.Quota{Limit: 1, Dialect: faulttest.GitHub, Name: "search", Next: faulttest.OK("hi")})
		resp, text := answered(t, next.Client(), http.MethodGet, next.URL, "")
		assert.Equal(t, "hi", text)
		assert.Equal(t, "search", resp.Header.Get("X-Ratelimit-Resource"))
		assert.Len(t, resp.Header.Values("Date"), 1)

		short := faulttest.NewInMemory(t, &faulttest.Quota{Limit: 1, Window: time.Millisecond})
		assert.Equal(t, 200, status(t, short, http.MethodGet, "/"))
		assert.Equal(t, 429, status(t, short, http.MethodGet, "/"))
		time.Sleep(time.Millisecond)
		assert.Equal(t, 200, status(t, short, http.MethodGet, "/"))
	})
}

// Each credential has its own quota, and old ones are removed.
func TestQuota_perCredential(t *testing.T) {
	t.Parallel()
	for _, d := range []faulttest.Dialect{faulttest.IETF, faulttest.Shopify} {
		inBubble(t, func(t *testing.T) {
			quota := &faulttest.Quota{Limit: 1, KeyFunc: faulttest.Credential, Dialect: d}
			srv := faulttest.NewInMemory(t, quota)
			for range 2 {
				for i := range 1100 {
					credential := fmt.Sprint(i)
					assert.Equal(t, 200, status(t, srv, http.MethodGet, "/", "Authorization", credential))
					if i%500 == 0 {
						assert.Equal(t, 429, status(t, srv, http.MethodGet, "/", "Authorization", credential))
					}
				}
				time.Sleep(2 * time.Minute)
			}
			for i := range 1100 {
				status(t, srv, http.MethodGet, "/", "Authorization", fmt.Sprint("new", i))
			}
			synctest.Wait()
			assert.LessOrEqual(t, faulttest.QuotaKeys(quota), 1100+1)
		})
	}
}
