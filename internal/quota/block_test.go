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
)

// TestAnswers: which answers hold others than their own call, once and when they are
// the rule (DESIGN §4.17).
func TestAnswers(t *testing.T) {
	const forever = 365 * 24 * time.Hour
	exhausted := func(more ...any) []any {
		return append([]any{"RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 15}, more...)
	}
	retryAfter := func(seconds int64, more ...any) []any { return append([]any{"Retry-After", seconds}, more...) }
	for _, row := range []struct {
		name       string
		status     int
		header     []any
		config     Config
		maxClosed  time.Duration // of the requests; 0: a minute
		once       time.Duration // that another request waits after one such answer
		often      time.Duration // and after eight; 0: as after one
		refused    bool          // or else is refused, until then
		reason     Reason
		otherRoute bool // the other one goes to another route
	}{
		{name: "429", status: 429, header: retryAfter(20), often: 20 * time.Second},
		{name: "403", status: 403, header: retryAfter(20), often: 20 * time.Second},
		{name: "503", status: 503, header: retryAfter(20)},
		{name: "529", status: 529, header: retryAfter(20)},
		{name: "500", status: 500, header: retryAfter(20)},
		{name: "304", status: 304, header: retryAfter(20)},
		{name: "milliseconds", status: 429, header: []any{"Retry-After-Ms", 1500}, often: 1500 * time.Millisecond},
		{name: "bare 429", status: 429},
		{name: "bare 403", status: 403},
		{name: "429 with a date in the past", status: 429, header: []any{"Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"}},
		{name: "429 without sense", status: 429, header: []any{"Retry-After", "soon"}},
		{name: "exhausted", status: 429, header: exhausted(), once: 15 * time.Second},
		{name: "exhausted, 403", status: 403, header: exhausted(), once: 15 * time.Second},
		{name: "exhausted by a success", status: 200, header: exhausted(), once: 15 * time.Second},
		{name: "exhausted, and a longer Retry-After of its own", status: 429, header: exhausted("Retry-After", 30), once: 15 * time.Second},
		{name: "exhausted, without a reset", status: 429, header: retryAfter(20, "RateLimit-Remaining", 0), once: 20 * time.Second},
		{name: "503 that happens to be exhausted", status: 503, header: exhausted("Retry-After", 20), once: 15 * time.Second},
		{name: "from a cache", status: 200, header: exhausted("Age", 3)},
		{name: "beyond MaxWait", status: 429, header: retryAfter(20), config: Config{MaxWait: 10 * time.Second}, often: 20 * time.Second, refused: true, reason: TooLong},
		{name: "never wait", status: 429, header: retryAfter(2), config: Config{MaxWait: -1}, often: 2 * time.Second, refused: true, reason: TooLong},
		{name: "beyond MaxClosed of the request", status: 429, header: retryAfter(20), maxClosed: 10 * time.Second, often: 20 * time.Second, refused: true, reason: TooLong},
		{name: "which is not for quotas", status: 429, header: exhausted(), maxClosed: 10 * time.Second, once: 15 * time.Second},
		{name: "no limit to either", status: 429, header: retryAfter(1800), config: Config{MaxWait: forever}, maxClosed: -1, often: 30 * time.Minute},
		{name: "beyond the deadline", status: 429, header: retryAfter(3000), config: Config{MaxWait: forever}, maxClosed: -1, often: 50 * time.Minute, refused: true, reason: PastDeadline},
		{name: "MaxClosed cuts it", status: 429, header: retryAfter(9223372037), config: Config{MaxClosed: 30 * time.Second}, often: 30 * time.Second},
		{name: "MaxClosed cuts resets too", status: 429, header: exhausted("RateLimit-Reset", 99999999), config: Config{MaxClosed: 30 * time.Second}, once: 30 * time.Second},
		{name: "the year 9999", status: 429, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", "9999-12-31T23:59:59Z"}, config: Config{MaxClosed: 30 * time.Second}, once: 30 * time.Second},
		{name: "the year 9999, said in the year 1", status: 429, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", "9999-12-31T23:59:59Z", "Date", "Mon, 01 Jan 0001 00:00:00 GMT"}, config: Config{MaxClosed: 30 * time.Second}, once: 30 * time.Second},
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
					quotaSet(answer.Header, row.header...)
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
					assert.LessOrEqual(t, took, 200*time.Millisecond, "told at once")
				})
			})
		}
	}
}

// TestClosingSpread: after a closing those who waited leave one after the other,
// within half of the time that it lasted; and so after it was opened by a success.
func TestClosingSpread(t *testing.T) {
	for _, opened := range []bool{false, true} {
		t.Run(fmt.Sprintf("opened %v", opened), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				busy := faulttest.Reply{Status: http.StatusTooManyRequests, RetryAfter: 30 * time.Second, Delay: 10 * time.Millisecond}
				s := newQuotaScript(t, with(Config{}), faulttest.Script{
					{Route: "/busy", Do: busy}, {Route: "/slow", Do: faulttest.Reply{Delay: 5 * time.Second}}, {Do: faulttest.OK("")},
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
						at = append(at, r.Arrived)
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
				assert.LessOrEqual(t, busiest, 75, "of 20 a second, and as many again who waited, over the half of 30 s")
			})
		})
	}
}

// TestRetryAfterOver: when a Retry-After is over and nothing else is known, calls
// pass without a lock again.
func TestRetryAfterOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Sequence(exhausted(time.Second), faulttest.OK("")))
		for range 3 {
			_, _ = s.get(t, "/")
		}
		assert.False(t, s.bucket(t).armed.Load())
	})
}
