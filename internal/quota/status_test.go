package quota

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func each(l *Limiter) (all []Status) {
	l.Each(time.Now(), func(s Status) { all = append(all, s) })
	return all
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{})
		require.Empty(t, each(l))
		e := newExchange(t.Context(), l)
		require.Nil(t, e.enter())
		require.Empty(t, each(l), "nobody has said anything")
		e.header = http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"30"}}
		begun := time.Now()
		e.done()
		want := Status{Scope: "api.example.com", Limit: 10, Remaining: 7, Reset: begun.Add(30 * time.Second)}
		require.Equal(t, []Status{want}, each(l))
		require.Nil(t, e.enter())
		want.Remaining = 6
		require.Equal(t, []Status{want}, each(l), "one is in flight")
		time.Sleep(31 * time.Second)
		require.Zero(t, each(l)[0].Reset)
		require.Equal(t, int64(9), each(l)[0].Remaining, "all of it, but for the one that may take of it")
		require.Equal(t, int64(6), l.buckets.Peek(bucketKey{scope: e.scope}).dims[0].remaining-l.buckets.Peek(bucketKey{scope: e.scope}).inflight, "to look changes nothing")
		e.done()
	})
	t.Run("named buckets, and a closing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := with(Config{})
			e := newExchange(t.Context(), l)
			require.Nil(t, e.enter())
			e.header = http.Header{"X-Ratelimit-Bucket": {"abc"}, "X-Ratelimit-Limit": {"5"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset-After": {"4"}}
			e.done()
			all := each(l)
			require.Len(t, all, 1)
			require.Equal(t, "abc", all[0].Bucket)
			require.Zero(t, all[0].Remaining)
		})
	})
	t.Run("a ceiling", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := with(Config{Limit: 2, Burst: 4})
			e := newExchange(t.Context(), l)
			for range 3 {
				require.Nil(t, e.enter())
			}
			require.Equal(t, []Status{{Scope: "api.example.com", Static: true, Limit: 4, Remaining: 1, Reset: time.Now().Add(1500 * time.Millisecond)}}, each(l))
			time.Sleep(time.Minute)
			require.Equal(t, []Status{{Scope: "api.example.com", Static: true, Limit: 4, Remaining: 4}}, each(l))
		})
	})
}

// told is a Waiter that remembers.
type told struct {
	turns  []time.Duration
	own    []bool
	ends   int
	panics bool
}

func (w *told) WaitBegins(turn time.Time, own bool) {
	if w.panics {
		panic("waiter")
	}
	w.own = append(w.own, own)
	w.turns = append(w.turns, time.Until(turn))
}

func (w *told) WaitEnds() { w.ends++ }

// TestWaiter: a request that waits is told so, with when its turn is to be expected; one
// that does not wait, or is refused, is not; and one that panics has left the line.
func TestWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 0.1, Burst: 1, MaxWait: 15 * time.Second})
		e, w := newExchange(t.Context(), l), &told{}
		e.Request.Waiter = w
		require.Nil(t, e.enter())
		require.Empty(t, w.turns)
		require.Nil(t, e.enter())
		require.Equal(t, []time.Duration{10 * time.Second}, w.turns)
		require.Equal(t, []bool{true}, w.own, "it waits for the static ceiling")
		require.Equal(t, 1, w.ends)
		e.Request.NoWait = true
		require.NotNil(t, e.enter())
		e.Request.NoWait = false
		require.Len(t, w.turns, 1, "it was refused at once")
		w.panics = true
		require.Panics(t, func() { e.enter() })
		require.Equal(t, 2, w.ends, "the wait is over, whatever came of it")
		w.panics = false
		require.Zero(t, l.Set("api.example.com").static.Len())
		begun := time.Now()
		require.Nil(t, e.enter())
		require.InDelta(t, 10, time.Since(begun).Seconds(), 0.001, "and took nobody's turn")
		require.Equal(t, int64(3), l.buckets.Peek(bucketKey{scope: e.scope}).inflight, "nor a place in the bucket")
	})
}
