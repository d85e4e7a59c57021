package quota

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// §4.17: calls are released so that the quota could be used up in half of the wait, and within 10 s. If responses do
// not show what remains, they are released at 2.5 times the rate of the quota.
func TestRelease_spacing(t *testing.T) {
	for _, row := range []struct {
		name          string
		limit         int64
		window, waits time.Duration
		standing      standing
		want          time.Duration
	}{
		{"half of the wait", 100, time.Minute, 8 * time.Second, followed, 40 * time.Millisecond},
		{"a long wait: 10 s", 100, time.Minute, time.Minute, followed, 100 * time.Millisecond},
		{"a short window: half of it", 100, time.Second, time.Minute, followed, 5 * time.Millisecond},
		{"a small quota: a second", 3, time.Minute, time.Minute, followed, time.Second},
		{"no wait: not zero", 100, time.Minute, 0, followed, 1},
		{"not shown: 2.5 times the rate", 100, time.Minute, 8 * time.Second, silent, 240 * time.Millisecond},
		{"not shown, a small quota: a second", 3, time.Minute, 8 * time.Second, silent, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := dimension{limit: row.limit, window: row.window, standing: row.standing}
			require.Equal(t, row.want, d.spacing(row.waits))
		})
	}
}

// If no quota is known, several processes do not begin in the same moment.
func TestRelease_beginsAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, begins := time.Now(), map[time.Time]bool{}
		for range 100 {
			b := newBucket()
			b.block.until = now.Add(time.Second)
			_, rejected := b.Join(now, waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Minute})
			require.Nil(t, rejected)
			b.heldSince = now.Add(-10 * time.Second)
			b.release(now)
			require.WithinRange(t, b.after.next, now, now.Add(5*time.Second))
			begins[b.after.next] = true
		}
		require.Greater(t, len(begins), 90)
	})
}

// The response of a request that was sent before the wait is not the response of the first one after it.
func TestRelease_earlierResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		earlier := permitOf(b)
		time.Sleep(time.Second)
		b.after = release{alone: time.Now().Add(time.Second), since: time.Now()}
		first := permitOf(b)
		b.finish(&earlier.flight, true)
		require.NotZero(t, b.opening(time.Now(), 0, true).recheck, "others still wait for the first")
		b.finish(&first.flight, true)
		require.Zero(t, b.opening(time.Now(), 0, true).recheck)
	})
}

// When the queue is empty, the release is over: a later queue is not slowed down by it.
func TestRelease_endsWithTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.after = release{next: time.Now().Add(time.Minute), end: time.Now().Add(time.Hour), spacing: time.Minute}
		b.Dispatch(time.Now())
		require.Zero(t, b.after.interval(time.Now(), 1))
	})
}

// A new call does not wait because others have waited, as long as much of the quota is left.
func TestRelease_newCalls(t *testing.T) {
	for _, row := range []struct {
		name    string
		limit   int
		window  time.Duration
		waiting int
		gap     time.Duration // between two new calls
	}{
		{"5,000 an hour, ten waited", 5000, time.Hour, 10, 50 * time.Millisecond},
		{"5,000 an hour, one waited", 5000, time.Hour, 1, 50 * time.Millisecond},
		{"100 a minute, ten waited", 100, time.Minute, 10, 700 * time.Millisecond},
		{"100 a minute, one waited", 100, time.Minute, 1, 700 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, left, reset := with(Config{}), 0, time.Now().Add(30*time.Second)
				call := func() {
					e := newExchange(t.Context(), l)
					if assert.Nil(t, e.enter()) {
						if time.Now().After(reset) {
							left, reset = row.limit, reset.Add(row.window)
						}
						left = max(left-1, 0)
						setFields(e.header, "RateLimit-Policy", fmt.Sprintf(`"p";q=%d;w=%d`, row.limit, int(row.window.Seconds())),
							"RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, left, int(time.Until(reset).Seconds())))
						e.done()
					}
				}
				call()
				var calls sync.WaitGroup
				for range row.waiting {
					calls.Go(call)
				}
				time.Sleep(31 * time.Second)
				for range 60 {
					calls.Go(func() {
						begun := time.Now()
						call()
						assert.Less(t, time.Since(begun), time.Second)
					})
					time.Sleep(row.gap)
				}
				calls.Wait()
			})
		})
	}
}

// A call that comes shortly before the reset is behind those that have waited for long, so their release counts.
func TestRelease_estimateBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, now := newBucket(), time.Now()
		reset := now.Add(500 * time.Millisecond)
		b.dims = []dimension{{limit: 100, window: time.Minute, end: end{early: reset, reset: reset}}}
		b.heldSince = now.Add(-50 * time.Second)
		at, _ := b.Estimate(now, waitqueue.Load{Calls: 14}, 0)
		require.Equal(t, reset.Add(1500*time.Millisecond), at, "15 calls, 10 s for 100")
	})
}

// A call that comes during a release is behind those that have waited.
func TestRelease_estimateDuringIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, now := newBucket(), time.Now()
		b.block.until = now.Add(time.Second)
		for range 3 {
			_, rejected := b.Join(now, waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Minute})
			require.Nil(t, rejected)
		}
		b.block, b.heldSince = block{}, time.Time{}
		b.after = release{next: now.Add(time.Second), end: now.Add(time.Minute), spacing: 2 * time.Second}
		at, _ := b.Estimate(now, waitqueue.Load{Calls: 3}, 0)
		require.Equal(t, now.Add(7*time.Second), at)
	})
}

// When successes contradict a quota, calls no longer wait for its rate.
func TestRelease_endsWithTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, now := newBucket(), time.Now()
		b.dims = []dimension{{limit: 1, window: time.Hour, refutedUntil: now.Add(time.Hour)}}
		b.after = release{next: now.Add(time.Hour), end: now.Add(2 * time.Hour), spacing: time.Hour}
		p := permitOf(b)
		b.learn(&p, &Response{Status: http.StatusOK}, now)
		require.LessOrEqual(t, b.after.interval(now, 1), time.Second)
		require.Equal(t, now, b.after.next)
	})
}

// A call that cannot be sent before its deadline, because others are released before it, fails at once.
func TestRelease_isEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := with(Config{}).Set("a")
		shows := func(status, remaining, reset int) *Response {
			h := http.Header{}
			setFields(h, "RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, remaining, reset))
			return answerOf(status, h, time.Now())
		}
		s.Observe(Request{}, shows(http.StatusTooManyRequests, 0, 3), time.Now(), time.Now(), 0)
		deadline := time.Now().Add(3100 * time.Millisecond)
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		var sent, refused, waitedInVain atomic.Int64
		var calls sync.WaitGroup
		for range 30 {
			calls.Go(func() {
				begun := time.Now()
				p, rejected := s.Admit(ctx, Request{Deadline: deadline}, begun)
				switch {
				case rejected == nil:
					sent.Add(1)
					p.Done(shows(http.StatusOK, 99, 60), time.Now())
				case time.Since(begun) == 0:
					refused.Add(1)
				default:
					waitedInVain.Add(1)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		require.NotZero(t, sent.Load())
		require.NotZero(t, refused.Load())
		require.Less(t, waitedInVain.Load(), int64(5), "a release is not exact")
	})
}
