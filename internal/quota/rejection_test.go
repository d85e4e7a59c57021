package quota

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Blocks of a quota that is shown double while the first request after each is rejected, up to 30 s. One success takes
// that back.
func TestBlock_doubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Script{
			{Route: "/served", Handler: faulttest.OK("")}, {Handler: exhausted(time.Second)},
		})
		blocked := func() time.Duration {
			return max(time.Until(s.limiter.Set("mem.test").BlockedUntil(Request{}, time.Now())), 0)
		}
		for i, want := range []float64{1, 2, 4, 8, 16, 30, 30} {
			_, refused := s.get(t, "/")
			require.Nil(t, refused)
			require.GreaterOrEqual(t, blocked().Seconds(), want, "block %d", i)
			require.LessOrEqual(t, blocked().Seconds(), want*1.25, "block %d", i)
		}
		_, refused := s.get(t, "/served")
		require.Nil(t, refused)
		for range 2 { // the second is behind the first one, of which nothing is known yet
			go func() { _, _ = s.get(t, "/") }()
		}
		time.Sleep(time.Millisecond)
		require.InDelta(t, 1, blocked().Seconds(), .01)
		time.Sleep(time.Minute)
	})
}

// §4.17: which responses delay other calls than their own, after one and after many of
// them.
func TestLimiter_responses(t *testing.T) {
	const forever = 365 * 24 * time.Hour
	exhausted := func(more ...any) []any {
		return append([]any{"RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 15}, more...)
	}
	tokens := func(remaining int) []any {
		return []any{"X-RateLimit-Limit-Tokens", 1000, "X-RateLimit-Remaining-Tokens", remaining, "X-RateLimit-Reset-Tokens", "20s"}
	}
	retryAfter := func(seconds int64, more ...any) []any { return append([]any{"Retry-After", seconds}, more...) }
	for _, row := range []struct {
		name       string
		status     int
		header     []any
		config     Config
		maxClosed  time.Duration // of the requests; 0: a minute
		once       time.Duration // wait of another request after one response
		often      time.Duration // its wait after eight responses; 0: as after one
		refused    bool          // it is rejected instead, until then
		reason     waitqueue.Reason
		otherRoute bool // the other one goes to another route
	}{
		{name: "429", status: 429, header: retryAfter(20), often: 20 * time.Second},
		{name: "403", status: 403, header: retryAfter(20), often: 20 * time.Second},
		{name: "400", status: 400, header: retryAfter(20)},
		{name: "503", status: 503, header: retryAfter(20)},
		{name: "503, exhausted, without a reset", status: 503, header: retryAfter(20, "RateLimit-Remaining", 0), once: 20 * time.Second},
		{name: "529", status: 529, header: retryAfter(20)},
		{name: "500", status: 500, header: retryAfter(20)},
		{name: "304", status: 304, header: retryAfter(20)},
		{name: "milliseconds", status: 429, header: []any{"Retry-After-Ms", 1500}, often: 1500 * time.Millisecond},
		{name: "bare 429", status: 429},
		{name: "bare 403", status: 403},
		{name: "429 with a date in the past", status: 429, header: []any{"Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"}},
		{name: "429 with an invalid Retry-After", status: 429, header: []any{"Retry-After", "soon"}},
		{name: "exhausted", status: 429, header: exhausted(), once: 15 * time.Second},
		{name: "exhausted, 403", status: 403, header: exhausted(), once: 15 * time.Second},
		{name: "exhausted for a second: a quarter of it", status: 429, header: exhausted("RateLimit-Reset", 1), once: 240 * time.Millisecond},
		{name: "exhausted for two seconds", status: 429, header: exhausted("RateLimit-Reset", 2), once: 1240 * time.Millisecond},
		{name: "exhausted for three seconds: all of them", status: 429, header: exhausted("RateLimit-Reset", 3), once: 3 * time.Second},
		{name: "exhausted for a second by a success", status: 200, header: exhausted("RateLimit-Limit", 1, "RateLimit-Reset", 1), once: time.Second},
		{name: "exhausted by a success", status: 200, header: exhausted(), once: 15 * time.Second},
		{name: "exhausted, and a longer Retry-After of its own", status: 429, header: exhausted("Retry-After", 30), once: 15 * time.Second},
		{name: "exhausted, without a reset", status: 429, header: retryAfter(20, "RateLimit-Remaining", 0), once: 20 * time.Second},
		{name: "503, and an exhausted quota", status: 503, header: exhausted("Retry-After", 20), once: 15 * time.Second},
		{name: "tokens: less than a tenth is left", status: 429, header: tokens(99), once: 20 * time.Second},
		{name: "tokens: a tenth is left, so something else rejects", status: 429, header: tokens(100)},
		{name: "from a cache", status: 200, header: exhausted("Age", 3)},
		{name: "beyond MaxWait", status: 429, header: retryAfter(20), config: Config{MaxWait: 10 * time.Second}, often: 20 * time.Second, refused: true, reason: waitqueue.MaxWaitExceeded},
		{name: "never wait", status: 429, header: retryAfter(2), config: Config{MaxWait: -1}, often: 2 * time.Second, refused: true, reason: waitqueue.MaxWaitExceeded},
		{name: "beyond MaxBlock of the request", status: 429, header: retryAfter(20), maxClosed: 10 * time.Second, often: 20 * time.Second, refused: true, reason: waitqueue.MaxWaitExceeded},
		{name: "MaxBlock of the request, and an exhausted quota", status: 429, header: exhausted(), maxClosed: 10 * time.Second, once: 15 * time.Second},
		{name: "no limit to either", status: 429, header: retryAfter(1800), config: Config{MaxWait: forever}, maxClosed: -1, often: 30 * time.Minute},
		{name: "beyond the deadline", status: 429, header: retryAfter(3000), config: Config{MaxWait: forever}, maxClosed: -1, often: 50 * time.Minute, refused: true, reason: waitqueue.DeadlineExceeded},
		{name: "MaxBlock cuts it", status: 429, header: retryAfter(9223372037), config: Config{MaxBlock: 30 * time.Second}, often: 30 * time.Second},
		{name: "MaxBlock cuts resets too", status: 429, header: exhausted("RateLimit-Reset", 99999999), config: Config{MaxBlock: 30 * time.Second}, once: 30 * time.Second},
		{name: "the year 9999", status: 429, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", "9999-12-31T23:59:59Z"}, config: Config{MaxBlock: 30 * time.Second}, once: 30 * time.Second},
		{name: "the year 9999, with a Date in the year 1", status: 429, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", "9999-12-31T23:59:59Z", "Date", "Mon, 01 Jan 0001 00:00:00 GMT"}, config: Config{MaxBlock: 30 * time.Second}, once: 30 * time.Second},
		{name: "the year 1970", status: 429, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", 1000000001}},
		{name: "a bucket's", status: 429, header: retryAfter(20, "X-RateLimit-Bucket", "b"), often: 20 * time.Second},
		{name: "a bucket's, another route", status: 429, header: retryAfter(20, "X-RateLimit-Bucket", "b"), otherRoute: true},
		{name: "a bucket's global 429", status: 429, header: retryAfter(20, "X-RateLimit-Bucket", "b", "X-RateLimit-Global", "true"), otherRoute: true, often: 20 * time.Second},
	} {
		for answers, wait := range map[int]time.Duration{1: row.once, 8: row.often} {
			if answers > 1 && row.once > 0 {
				continue // there is no second one
			}
			t.Run(fmt.Sprintf("%s, %d", row.name, answers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					in2026(0)
					answer := faulttest.Reply{Status: row.status, Header: http.Header{}}
					setFields(answer.Header, row.header...)
					s := newQuotaScript(t, with(row.config), faulttest.Sequence(append(slices.Repeat([]http.Handler{answer}, answers), faulttest.OK(""))...))
					if row.maxClosed != 0 {
						s.client.Transport.(*paced).maxClosed = row.maxClosed
					}
					ctx, cancel := context.WithTimeout(t.Context(), 45*time.Minute)
					defer cancel()
					for range answers {
						status, refused := get(ctx, s.client, s.URL+"/limited")
						require.Nil(t, refused)
						require.Equal(t, row.status, status)
						time.Sleep(150 * time.Millisecond)
					}
					begun := time.Now()
					path := "/limited"
					if row.otherRoute {
						path = "/other"
					}
					_, refused := get(ctx, s.client, s.URL+path)
					took := time.Since(begun)
					if wait == 0 || !row.refused {
						require.Nil(t, refused)
						assert.GreaterOrEqual(t, took, wait-150*time.Millisecond)
						assert.LessOrEqual(t, took, wait+max(wait/2, maxSpread)+400*time.Millisecond)
						if wait == 0 {
							assert.Zero(t, took)
						}
						begun = time.Now()
						_, refused = get(ctx, s.client, s.URL+path)
						assert.Nil(t, refused)
						assert.Zero(t, time.Since(begun), "open again")
						return
					}
					require.NotNil(t, refused)
					assert.Equal(t, row.reason, refused.Reason)
					assert.InDelta(t, wait.Seconds(), refused.NotBefore.Sub(begun).Seconds(), 0.5)
					assert.LessOrEqual(t, took, 200*time.Millisecond, "rejected at once")
				})
			})
		}
	}
}

// After a block, the queued calls are released one after the other, within half of its time. The
// same is true if a success ends the block.
func TestBlock_releasesEvenly(t *testing.T) {
	for _, opened := range []bool{false, true} {
		t.Run(fmt.Sprintf("opened %v", opened), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				busy := faulttest.Reply{Status: http.StatusTooManyRequests, RetryAfter: 30 * time.Second, Delay: 10 * time.Millisecond}
				s := newQuotaScript(t, with(Config{}), faulttest.Script{
					{Route: "/busy", Handler: busy}, {Route: "/slow", Handler: faulttest.Reply{Delay: 5 * time.Second}}, {Handler: faulttest.OK("")},
				})
				var calls sync.WaitGroup
				for i := range 8 {
					if opened && i == 7 {
						calls.Go(func() { time.Sleep(time.Millisecond); _, _ = s.get(t, "/slow") })
					}
					_, _ = s.get(t, "/busy")
					time.Sleep(150 * time.Millisecond)
				}
				s.bucket(t)
				closed := time.Now()
				for range 400 { // 20 a second
					calls.Go(func() { _, _ = s.get(t, "/") })
					time.Sleep(50 * time.Millisecond)
				}
				calls.Wait()
				var at []time.Time
				for _, r := range s.Requests() {
					if r.Path == "/" {
						at = append(at, r.ReceivedAt)
					}
				}
				require.Len(t, at, 400)
				first := 30 * time.Second
				if opened {
					first = 5 * time.Second
				}
				assert.InDelta(t, first.Seconds(), at[0].Sub(closed).Seconds(), 0.5)
				busiest := 0
				for i := range at {
					for j := i; j < len(at) && at[j].Sub(at[i]) < time.Second; j++ {
						busiest = max(busiest, j-i+1)
					}
				}
				assert.LessOrEqual(t, busiest, 100, "20 a second, and the queued calls over half of 30 s")
			})
		})
	}
}
