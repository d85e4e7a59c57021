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

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// §4.17: calls are released over half of the time that they have waited, and within 5 s. At least, they are released at twice
// the rate that uses up the quota, or one each second.
func TestRelease_spacing(t *testing.T) {
	for _, row := range []struct {
		name          string
		limit, calls  int64
		window, waits time.Duration
		want          time.Duration
	}{
		{"few calls: at twice the rate", 100, 3, time.Minute, time.Minute, 300 * time.Millisecond},
		{"many calls: within 5 s", 100, 50, time.Minute, time.Minute, 100 * time.Millisecond},
		{"a short wait: half of it", 100, 50, time.Minute, time.Second, 10 * time.Millisecond},
		{"more calls than the limit: only the limit counts", 10, 1000, time.Minute, time.Minute, 500 * time.Millisecond},
		{"a window of a second: half of it", 100, 1000, time.Second, time.Minute, 5 * time.Millisecond},
		{"a small quota: one each second", 10, 3, time.Hour, time.Hour, time.Second},
		{"no wait: not zero", 100, 3, time.Minute, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := dimension{limit: row.limit, window: row.window}
			require.Equal(t, row.want, d.spacing(row.calls, row.waits))
		})
	}
}

// If no quota is known, several processes do not begin in the same moment.
func TestRelease_beginsAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, begins := time.Now(), map[time.Time]bool{}
		for range 100 {
			b := newBucket()
			b.heldSince = now.Add(-10 * time.Second)
			_, _ = b.Join(now, waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Minute})
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
		require.NotZero(t, b.opening(time.Now()).recheck, "others still wait for the first")
		b.finish(&first.flight, true)
		require.Zero(t, b.opening(time.Now()).recheck)
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
		s.Observe(Request{}, shows(http.StatusTooManyRequests, 0, 2), time.Now(), time.Now(), 0)
		deadline := time.Now().Add(2500 * time.Millisecond)
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		var sent, refused, waitedInVain atomic.Int64
		var calls sync.WaitGroup
		for range 10 {
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
		require.Zero(t, waitedInVain.Load())
	})
}
