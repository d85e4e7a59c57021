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

// TestClosing is the law of DESIGN §4.17, step by step: what closes, until when, and
// what opens.
func TestClosing(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	refused := func(sent, came, wait time.Duration) func(*closing, time.Time) {
		return func(c *closing, start time.Time) {
			c.refuse(start.Add(sent), start.Add(came), wait, time.Hour, 1, noProof)
		}
	}
	proof := func(p proof) func(*closing, time.Time) {
		return func(c *closing, start time.Time) { c.refuse(start, start, s, time.Hour, 1, p) }
	}
	served := func(sent time.Duration) func(*closing, time.Time) {
		return func(c *closing, start time.Time) { c.serve(start.Add(sent)) }
	}
	run := func(n int, from, gap time.Duration) func(*closing, time.Time) {
		return func(c *closing, start time.Time) {
			for i := range n {
				sent := from + time.Duration(i)*gap
				refused(sent, sent+10*ms, s)(c, start)
			}
		}
	}
	busy := func(inflight int64, n int) func(*closing, time.Time) {
		return func(c *closing, start time.Time) {
			for i := range n {
				at := start.Add(time.Duration(i) * s)
				c.refuse(at, at, s, time.Hour, inflight, noProof)
			}
		}
	}
	for _, row := range []struct {
		name   string
		steps  []func(*closing, time.Time)
		closed time.Duration // 0: it is open
	}{
		{"one", []func(*closing, time.Time){refused(0, 0, s)}, 0},
		{"a thousand in a moment", []func(*closing, time.Time){run(1000, 0, ms)}, 0},
		{"and one more", []func(*closing, time.Time){run(1001, 0, ms)}, 1010*ms + s},
		{"seven", []func(*closing, time.Time){run(7, 0, s)}, 0},
		{"eight, over the time that they ask for", []func(*closing, time.Time){run(8, 0, 150*ms)}, 1060*ms + s},
		{"for as little as that is", []func(*closing, time.Time){func(c *closing, start time.Time) {
			for i := range 8 {
				refused(time.Duration(i)*10*ms, time.Duration(i)*10*ms, 60*ms)(c, start)
			}
		}}, 130 * ms},
		{"more are in flight", []func(*closing, time.Time){busy(10, 9)}, 0},
		{"as many are in flight", []func(*closing, time.Time){busy(10, 10)}, 9*s + s},
		{"ended by a success in between", []func(*closing, time.Time){run(7, 0, 150*ms), served(901 * ms), run(7, s, 150*ms)}, 0},
		{"not by one that was sent before", []func(*closing, time.Time){run(4, 10*ms, 150*ms), served(0), run(4, 610*ms, 150*ms)}, 1070*ms + s},
		{"opened by a success of one sent later", []func(*closing, time.Time){run(8, 0, 150*ms), served(1055 * ms)}, 0},
		{"not by one sent before", []func(*closing, time.Time){run(8, 0, 150*ms), served(1045 * ms)}, 1060*ms + s},
		{"asks for nothing", []func(*closing, time.Time){func(c *closing, start time.Time) {
			for i := range 20 {
				refused(time.Duration(i)*ms, time.Duration(i)*ms, 0)(c, start)
			}
		}}, 0},
		{"proven", []func(*closing, time.Time){proof(proven)}, s},
		{"proven, with a reset for the axis to wait for", []func(*closing, time.Time){proof(knownReset)}, 0},
		{"proven, and a success", []func(*closing, time.Time){proof(proven), served(ms)}, s},
	} {
		t.Run(row.name, func(t *testing.T) {
			var c closing
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for _, step := range row.steps {
				step(&c, start)
			}
			until := c.closedUntil(start.Add(max(row.closed-10*ms, 50*ms)))
			if row.closed == 0 {
				require.Zero(t, until)
				return
			}
			require.Equal(t, row.closed, until.Sub(start))
			require.True(t, c.busy())
			require.Zero(t, c.closedUntil(until))
		})
	}
}

// TestClosingDoubles: where refusals go on although the waits were kept, the third
// closing in a row and each after it doubles the time, to 10 s and no more, or 30, and
// successes take it back. Refusals that are scattered among successes never do.
func TestClosingDoubles(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := func(c *closing, wait time.Duration, proof proof) time.Duration {
		c.refuse(now, now, wait, time.Hour, 1, proof)
		until := c.closedUntil(now)
		if until.IsZero() {
			now = now.Add(wait)
			return 0
		}
		took := until.Sub(now)
		now = until
		return took
	}
	for _, row := range []struct {
		proof proof
		want  []float64
	}{
		{noProof, []float64{0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 4, 8, 10, 10}},
		{proven, []float64{1, 1, 2, 4, 8, 16, 30, 30}},
	} {
		var c closing
		for i, want := range row.want {
			got := step(&c, time.Second, row.proof).Seconds()
			require.GreaterOrEqual(t, got, want, "refusal %d", i)
			require.LessOrEqual(t, got, want*1.25, "refusal %d", i)
		}
		require.Equal(t, time.Minute, step(&c, time.Minute, row.proof), "the server asks for more")
		for range 24 {
			c.serve(now.Add(1))
		}
		require.False(t, c.busy(), "all is forgotten")
	}

	var c closing
	for i := range 10_000 {
		now = now.Add(10 * time.Millisecond)
		if i%3 != 0 {
			require.False(t, c.refuse(now, now, time.Second, time.Hour, 1, noProof))
		} else {
			c.serve(now)
		}
		require.Zero(t, c.level)
	}
}

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
						assert.LessOrEqual(t, took, wait+max(wait/2, spreadTime)+400*time.Millisecond)
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
