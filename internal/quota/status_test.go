package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func each(t *testing.T, l *Limiter) (all []Quota) {
	t.Helper()
	l.Each(time.Now(), func(scope string, q Quota) {
		require.Equal(t, "api.example.com", scope)
		all = append(all, q)
	})
	return all
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{})
		require.Empty(t, each(t, l))
		e := newExchange(t.Context(), l)
		require.Nil(t, e.enter())
		require.Empty(t, each(t, l), "no quota is known")
		e.header = http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"30"}}
		begun := time.Now()
		e.done()
		want := Quota{Limit: 10, Remaining: 7, Reset: begun.Add(30 * time.Second)}
		require.Equal(t, []Quota{want}, each(t, l))
		require.Nil(t, e.enter())
		want.Remaining = 6
		require.Equal(t, []Quota{want}, each(t, l), "one is in flight")
		time.Sleep(31 * time.Second)
		require.Zero(t, each(t, l)[0].Reset)
		require.Equal(t, int64(10), each(t, l)[0].Remaining, "the request in flight is of the window before")
		require.Equal(t, int64(6), l.accounts.Peek(accountKey{scope: e.scope}).general.dims[0].remaining-l.accounts.Peek(accountKey{scope: e.scope}).general.inflight, "Each changes nothing")
		e.done()
	})
	for _, row := range []struct {
		name      string
		remaining []int // in the responses, one a second
		limit     int
		want      int64
	}{
		{"this process alone", []int{99, 98, 97}, 100, 0},
		{"the first response shows what was used before: unknown", []int{50, 49}, 100, 0},
		{"another process takes 40 of it", []int{99, 98, 57, 56}, 100, 40},
		{"another process takes all", []int{299, 298, 0}, 300, 297},
		{"tokens come back, and only then others use them", []int{10, 9, 50, 49, 29}, 100, 19},
	} {
		bubble.Run(t, "used by others: "+row.name, func(t *testing.T) {
			l := with(Config{})
			e := newExchange(t.Context(), l)
			for i, remaining := range row.remaining {
				require.Nil(t, e.enter())
				e.header = http.Header{
					"X-Ratelimit-Limit": {strconv.Itoa(row.limit)}, "X-Ratelimit-Remaining": {strconv.Itoa(remaining)}, "X-Ratelimit-Reset": {strconv.Itoa(60 - i)},
				}
				e.done()
				time.Sleep(time.Second)
			}
			require.Equal(t, row.want, each(t, l)[0].UsedByOthers)
			if row.remaining[len(row.remaining)-1] == 0 {
				require.Equal(t, row.want, l.Set(e.scope).Exhausted(e.Request, time.Now()).UsedByOthers)
			}
			time.Sleep(time.Minute)
			require.Zero(t, each(t, l)[0].UsedByOthers, "in the next window")
			require.Nil(t, l.Set(e.scope).Exhausted(e.Request, time.Now()))
		})
	}
	bubble.Run(t, "named buckets, and a block", func(t *testing.T) {
		l := with(Config{})
		e := newExchange(t.Context(), l)
		require.Nil(t, e.enter())
		e.header = http.Header{"X-Ratelimit-Bucket": {"abc"}, "X-Ratelimit-Limit": {"5"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset-After": {"4"}}
		e.done()
		all := each(t, l)
		require.Len(t, all, 1)
		require.Equal(t, "abc", all[0].Bucket)
		require.Zero(t, all[0].Remaining)
	})
	bubble.Run(t, "a fixed limit", func(t *testing.T) {
		l := with(Config{Limit: 2, Burst: 4})
		e := newExchange(t.Context(), l)
		for range 3 {
			require.Nil(t, e.enter())
		}
		require.Equal(t, []Quota{{Bucket: "fixed", Limit: 4, Remaining: 1, Reset: time.Now().Add(1500 * time.Millisecond)}}, each(t, l))
		time.Sleep(time.Minute)
		require.Equal(t, []Quota{{Bucket: "fixed", Limit: 4, Remaining: 4}}, each(t, l))
	})
}

// recordingWaiter is a Waiter that records its calls.
type recordingWaiter struct {
	turns  []time.Duration
	fixed  []bool
	ends   int
	panics bool
}

func (w *recordingWaiter) WaitBegins(turn time.Time, fixed bool) {
	if w.panics {
		panic("waiter")
	}
	w.fixed = append(w.fixed, fixed)
	w.turns = append(w.turns, time.Until(turn))
}

func (w *recordingWaiter) WaitEnds() { w.ends++ }

// A Waiter is called with the estimate if a request waits, and not if it is sent or rejected at
// once. A call with a Waiter that panics leaves the queue.
func TestWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 0.1, Burst: 1, MaxWait: 15 * time.Second})
		e, w := newExchange(t.Context(), l), &recordingWaiter{}
		e.Request.Waiter = w
		require.Nil(t, e.enter())
		require.Empty(t, w.turns)
		require.Nil(t, e.enter())
		require.Equal(t, []time.Duration{10 * time.Second}, w.turns)
		require.Equal(t, []bool{true}, w.fixed, "it waits for the fixed limit")
		require.Equal(t, 1, w.ends)
		e.Request.NoWait = true
		require.NotNil(t, e.enter())
		e.Request.NoWait = false
		require.Len(t, w.turns, 1, "it was rejected at once")
		w.panics = true
		require.Panics(t, func() { e.enter() })
		require.Equal(t, 2, w.ends, "WaitEnds is called for each wait")
		w.panics = false
		require.Zero(t, l.Set("api.example.com").fixed.Len())
		begun := time.Now()
		require.Nil(t, e.enter())
		require.InDelta(t, 10, time.Since(begun).Seconds(), 0.001, "and took no permit of another call")
		require.Equal(t, int64(3), l.accounts.Peek(accountKey{scope: e.scope}).general.inflight, "and none in flight")
	})
}
