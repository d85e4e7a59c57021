package quota

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// blockOf returns the end of a bucket's block, or zero.
func blockOf(b *block, now time.Time) time.Time {
	general := newBucket()
	general.block = *b
	return general.blockedUntil(now)
}

// TestBlock checks, step by step, which rejections block, until when, and what ends it.
func TestBlock(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	type step func(b *block, start time.Time)
	rejected := func(sent, came, wait time.Duration) step {
		return func(b *block, start time.Time) {
			b.reject(rejection{sent: start.Add(sent), now: start.Add(came), wait: wait}, time.Hour, 1)
		}
	}
	shown := func(exact bool, at, wait time.Duration) step {
		return func(b *block, start time.Time) {
			b.reject(rejection{start.Add(at), start.Add(at), wait, true, exact, false}, time.Hour, 1)
		}
	}
	served := func(sent time.Duration) step {
		return func(b *block, start time.Time) { b.succeed(start.Add(sent)) }
	}
	streak := func(n int, from, gap time.Duration, inflight int64) step {
		return func(b *block, start time.Time) {
			for i := range n {
				at := start.Add(from + time.Duration(i)*gap)
				b.reject(rejection{sent: at, now: at.Add(10 * ms), wait: s}, time.Hour, inflight)
			}
		}
	}
	unasked := func(n int, gap time.Duration) step {
		return func(b *block, start time.Time) {
			for i := range n {
				at := start.Add(time.Duration(i) * gap)
				b.reject(rejection{sent: at, now: at}, time.Hour, 1)
			}
		}
	}
	for _, row := range []struct {
		name  string
		steps []step
		until time.Duration // 0: it is not blocked
	}{
		{"one rejection: its own call waits", []step{rejected(0, 0, s)}, 0},
		{"a thousand within a second: not yet", []step{streak(1000, 0, ms, 1)}, 0},
		{"a second of rejections: blocked", []step{streak(1001, 0, ms, 1)}, 1010*ms + s},
		{"seven: too few", []step{streak(7, 0, s, 1)}, 0},
		{"eight over a second: blocked", []step{streak(8, 0, 150*ms, 1)}, 1060*ms + s},
		{"fewer than are in flight: not yet", []step{streak(9, 0, s, 10)}, 0},
		{"as many as are in flight: blocked", []step{streak(10, 0, s, 10)}, 9010*ms + s},
		{"a success between: a new streak", []step{streak(7, 0, 150*ms, 1), served(901 * ms), streak(7, s, 150*ms, 1)}, 0},
		{"a success of an earlier request between: a new streak too", []step{streak(7, 0, 150*ms, 1), served(-s), streak(7, s, 150*ms, 1)}, 0},
		{"a success of a later request: ends it", []step{streak(8, 0, 150*ms, 1), served(1055 * ms)}, 0},
		{"a success of an earlier request: does not", []step{streak(8, 0, 150*ms, 1), served(1045 * ms)}, 1060*ms + s},
		{"no wait is asked for: its own calls wait", []step{unasked(100, 300*ms)}, 0},
		{"one does not say: its own calls wait", []step{rejected(0, 0, 0), streak(8, 0, 150*ms, 1)}, 0},
		{"shown: at once", []step{shown(false, 0, s)}, s},
		{"shown, with a reset that the dimension waits for", []step{shown(true, 0, s)}, 0},
		{"shown, and a success of a later request: ends it", []step{shown(false, 0, s), served(ms)}, 0},
		{"longer than MaxBlock: cut", []step{shown(false, 0, 3*time.Hour)}, time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			var b block
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for _, step := range row.steps {
				step(&b, start)
			}
			until := blockOf(&b, start.Add(max(row.until-10*ms, 50*ms)))
			if row.until == 0 {
				require.Zero(t, until)
				return
			}
			require.Equal(t, row.until, until.Sub(start))
			require.Zero(t, blockOf(&b, until), "it is over")
		})
	}
}

// TestBlock_doubles checks that blocks of a quota that is shown double while no request
// is served between them, up to 30 s, and that one success takes that back.
func TestBlock_doubles(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := func(b *block, wait time.Duration) float64 {
		b.reject(rejection{now, now, wait, true, false, false}, time.Hour, 1)
		until := blockOf(b, now)
		took := until.Sub(now)
		now = until
		return took.Seconds()
	}
	var b block
	for i, want := range []float64{1, 2, 4, 8, 16, 30, 30} {
		got := step(&b, time.Second)
		require.GreaterOrEqual(t, got, want, "block %d", i)
		require.LessOrEqual(t, got, want*1.25, "block %d", i)
	}
	b.succeed(now.Add(1))
	require.InDelta(t, 1, step(&b, time.Second), 0)
	b.test = firstSince(b.test, b.shown, now)
	now = now.Add(time.Millisecond) // a request behind the first one, of which nothing is known yet
	require.InDelta(t, 1, step(&b, time.Second), 0)
	b.test = firstSince(b.test, b.shown, now)
	require.InDelta(t, 2.25, step(&b, time.Second), .25, "the first one is rejected")
	b.succeed(now.Add(1))
	require.InDelta(t, 1, step(&b, time.Second), 0)
	now = now.Add(-time.Second / 2) // a request that was sent before the block ended
	b.reject(rejection{now, now, time.Second, true, false, false}, time.Hour, 1)
	require.Zero(t, b.doubled)
}

// §4.17: which responses delay other calls than their own, after one and after many of
// them.
func TestLimiter_responses(t *testing.T) {
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
		{name: "bare 429: new calls test it", status: 429},
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
		{name: "exhausted, and a Retry-After that ends before the reset", status: 429, header: exhausted("Retry-After", 7), once: 7 * time.Second},
		{name: "exhausted, and a Retry-After of 0", status: 429, header: exhausted("Retry-After", 0), once: 15 * time.Second},
		{name: "exhausted, and a longer Retry-After of its own", status: 429, header: exhausted("Retry-After", 30), once: 15 * time.Second},
		{name: "exhausted, without a reset", status: 429, header: retryAfter(20, "RateLimit-Remaining", 0), once: 20 * time.Second},
		{name: "503, and an exhausted quota", status: 503, header: exhausted("Retry-After", 20), once: 15 * time.Second},
		{name: "0 of 0: too many in flight (Okta)", status: 429, header: exhausted("RateLimit-Limit", 0)},
		{name: "exhausted, a reset that is rounded down: within a second", status: 429, header: exhausted("RateLimit-Reset", 0), once: 240 * time.Millisecond},
		{name: "exhausted, without a reset, and a second is asked for", status: 429, header: retryAfter(1, "RateLimit-Remaining", 0), often: time.Second},
		{name: "a global 429 for a second", status: 429, header: retryAfter(1, "RateLimit-Remaining", 0, "X-RateLimit-Global", "true"), otherRoute: true, once: time.Second},
		{name: "many remaining (Azure)", status: 429, header: exhausted("RateLimit-Remaining", 9, "Retry-After", 1), often: time.Second},
		{name: "exhausted by a success, without a reset (Jira)", status: 200, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0}},
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
			bubble.Run(t, fmt.Sprintf("%s, %d", row.name, answers), func(t *testing.T) {
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
		}
	}
}

// After a block, the queued calls are released one after the other, within half of its time. The
// same is true if a success ends the block.
func TestBlock_releasesEvenly(t *testing.T) {
	for _, opened := range []bool{false, true} {
		bubble.Run(t, fmt.Sprintf("opened %v", opened), func(t *testing.T) {
			busy := faulttest.Reply{Status: http.StatusTooManyRequests, RetryAfter: 30 * time.Second, Delay: 10 * time.Millisecond}
			s := newQuotaScript(t, with(Config{}), faulttest.Script{
				{Route: "/busy", Times: 8, Handler: busy}, {Route: "/slow", Handler: faulttest.Reply{Delay: 5 * time.Second}}, {Handler: faulttest.OK("")},
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
				calls.Go(func() { _, _ = s.get(t, "/busy") })
				time.Sleep(50 * time.Millisecond)
			}
			calls.Wait()
			var at []time.Time
			for _, r := range s.Requests() {
				if r.Path == "/busy" {
					at = append(at, r.ReceivedAt)
				}
			}
			at = at[8:]
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
	}
}

// Which responses are rejections by a quota, and which requests were served. Others are neither.
func TestResponse_classification(t *testing.T) {
	used := ratelimitheader.State{Exhausted: true}
	known := ratelimitheader.State{Exhausted: true, Dimensions: []ratelimitheader.Dimension{{Name: "a", Remaining: 1}, {Name: "b", Reset: time.Second}}}
	for _, row := range []struct {
		name             string
		answer           Response
		rejected, served bool
	}{
		{"nothing came", Response{}, false, false},
		{"success", Response{Status: 200}, false, true},
		{"not found", Response{Status: 404}, false, true},
		{"forbidden", Response{Status: 403}, false, true},
		{"forbidden for a while", Response{Status: 403, AsksToWait: true}, true, false},
		{"forbidden, used up", Response{Status: 403, Quota: used}, true, false},
		{"bad request", Response{Status: 400}, false, true},
		{"bad request, wait", Response{Status: 400, AsksToWait: true}, false, true},
		{"bad request, maybe the last of the quota", Response{Status: 400, Quota: used}, false, false},
		{"429", Response{Status: 429}, true, false},
		{"429, used up", Response{Status: 429, Quota: used}, true, false},
		{"429, used up until then", Response{Status: 429, Quota: known}, true, false},
		{"500", Response{Status: 500}, false, false},
		{"503", Response{Status: 503, AsksToWait: true}, false, false},
		{"503, used up", Response{Status: 503, Quota: used}, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.rejected, row.answer.rejected())
			assert.Equal(t, row.served, row.answer.served())
		})
	}
}
