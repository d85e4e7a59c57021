package quota

import (
	"context"
	"fmt"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
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

// A new call does not wait because others have waited, as long as much of the quota is left.
func TestRelease_newCalls(t *testing.T) {
	for _, row := range []struct {
		name    string
		limit   int
		window  time.Duration
		waiting int
		apart   time.Duration // between two of these
		after   time.Duration // from the reset until new calls come
		gap     time.Duration // between two new ones
		most    time.Duration // for which a new call waits
	}{
		{"5,000 an hour, ten waited", 5000, time.Hour, 10, 0, time.Second, 50 * time.Millisecond, time.Second},
		{"5,000 an hour, ten waited that came slowly", 5000, time.Hour, 10, 2 * time.Second, time.Second, 50 * time.Millisecond, time.Second},
		{"5,000 an hour, one waited", 5000, time.Hour, 1, 0, time.Second, 50 * time.Millisecond, time.Second},
		{"600 a minute, fourteen waited, and many come", 600, time.Minute, 14, 2 * time.Second, 0, 20 * time.Millisecond, 2 * time.Second},
		{"100 a minute, ten waited", 100, time.Minute, 10, 0, time.Second, 700 * time.Millisecond, time.Second},
		{"100 a minute, one waited", 100, time.Minute, 1, 0, time.Second, 700 * time.Millisecond, time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
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
			opens := reset
			var calls sync.WaitGroup
			for range row.waiting {
				calls.Go(call)
				time.Sleep(row.apart)
			}
			time.Sleep(time.Until(opens) + row.after)
			for range 60 {
				calls.Go(func() {
					begun := time.Now()
					call()
					assert.Less(t, time.Since(begun), row.most)
				})
				time.Sleep(row.gap)
			}
			calls.Wait()
		})
	}
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

// When successes contradict a quota, calls no longer wait for its rate.
func TestRelease_endsWithTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, now := newBucket(), time.Now()
		b.dims = []dimension{{amount: amount{limit: 1}, period: period{window: time.Hour}, span: span{refutedUntil: now.Add(time.Hour)}}}
		b.after = release{next: now.Add(time.Hour), end: now.Add(2 * time.Hour), spacing: time.Hour}
		p := permitOf(b)
		b.learn(&p, &Response{Status: http.StatusOK}, now)
		require.LessOrEqual(t, b.after.interval(now, 1), time.Second)
		require.Equal(t, now, b.after.next)
	})
}

// The calls of a burst are released at its pace, also if few have come since.
func TestRelease_burst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.block.until = time.Now().Add(time.Hour)
		for i := range 40 {
			time.Sleep(max(time.Duration(i-29)*time.Second, 0))
			_, e, rejected := b.TakeOrJoin(time.Now(), &waitqueue.Limits{Ctx: t.Context(), MaxWait: 2 * time.Hour, MaxBlock: time.Hour})
			require.Nil(t, rejected)
			require.NotNil(t, e)
		}
		require.Zero(t, b.pace())
	})
}

// The example of docs/rate-limits.md: a quota of 60 a minute, three calls a second, and the first waits for 20 s.
func TestRelease_example(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reset := with(Config{}), time.Now().Add(20*time.Second)
		left := 0
		var mu sync.Mutex
		var sent []time.Duration // since the reset
		var calls sync.WaitGroup
		call := func() {
			e := newExchange(t.Context(), l)
			if e.enter() != nil {
				return // the quota is exhausted again
			}
			mu.Lock()
			defer mu.Unlock()
			if at := time.Since(reset); at >= 0 {
				sent = append(sent, at)
				left = 60 - len(sent)
			}
			shown := reset
			if len(sent) > 0 {
				shown = reset.Add(time.Minute)
			}
			setFields(e.header, "RateLimit-Policy", `"p";q=60;w=60`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, left, int(time.Until(shown).Seconds())))
			e.done()
		}
		call()
		for range 90 {
			calls.Go(call)
			time.Sleep(time.Second / 3)
		}
		calls.Wait()
		within := func(from, to time.Duration) (n int) {
			for _, at := range sent {
				if at >= from && at < to {
					n++
				}
			}
			return n
		}
		require.InDelta(t, 45, within(time.Second, 11*time.Second), 1, "4.5 a second")
	})
}
