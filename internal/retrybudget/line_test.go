package retrybudget

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// awaiting are calls that wait for the tokens of a retry after a timeout.
type awaiting struct {
	*bucket

	mu      sync.Mutex
	flying  []Permit
	refused int
}

func (a *awaiting) join(ctx context.Context, longest time.Duration) {
	p, ok := a.Await(&a.rules, time.Now(), waitqueue.Limits{Ctx: ctx, MaxWait: longest})
	a.mu.Lock()
	defer a.mu.Unlock()
	if ok {
		a.flying = append(a.flying, p)
	} else {
		a.refused++
	}
}

// end ends the retry that is longest in flight, as q: quick, s: slow, f: failed, c: canceled.
func (a *awaiting) end(how rune) {
	p := a.flying[0]
	a.flying = a.flying[1:]
	switch how {
	case 'c':
		p.Cancel()
	default:
		p.Done(Result{Succeeded: how != 'f', Slow: how == 's'})
	}
	synctest.Wait()
}

// L1: one retry after a timeout is in flight, and one more for each that was answered soon.
func TestAwait(t *testing.T) {
	const calls = 20
	for _, tt := range []struct {
		name            string
		tokens          float64
		ends            string
		flying, refused int
	}{
		{"one, and the others wait", 50, "", 1, 0},
		{"a quick success: two", 50, "q", 2, 0},
		{"two: three", 50, "qq", 3, 0},
		{"a slow success: one", 50, "s", 1, 0},
		{"a failure: the next when all have ended", 50, "qqf", 2, 0},
		{"then one again", 50, "qqfss", 1, 0},
		{"canceled: another one", 50, "c", 1, 0},
		{"canceled: as many as before", 50, "qqc", 3, 0},
		{"a success returns the tokens for the next", 5, "qsqsq", 1, 0},
		{"too few for two: one, and the others wait for its tokens", 8, "q", 1, 0},
		{"a failure takes the tokens: the others end", 5, "f", 0, calls - 1},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			a := &awaiting{bucket: with(Rules{Tokens: tt.tokens})}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range calls {
				go a.join(ctx, time.Hour)
			}
			synctest.Wait()
			for _, how := range tt.ends {
				a.end(how)
			}
			require.Len(t, a.flying, tt.flying)
			require.Equal(t, tt.refused, a.refused)
			may := a.MayAwait(&a.rules, time.Now())
			require.Equal(t, tt.refused == 0, may)
		})
	}
}

// A call that must not wait longer leaves the queue, and one that gets its tokens in that instant returns them.
func TestAwait_ends(t *testing.T) {
	for _, end := range waitEnds() {
		bubble.Run(t, end.name, func(t *testing.T) {
			a := &awaiting{bucket: with(Rules{Tokens: 50})}
			a.join(t.Context(), 0)
			end.wait(t, a.join)
			require.Equal(t, 1, a.refused)
			a.end('s')
			require.InDelta(t, 0, a.Status(&a.rules, time.Now()).Used, 1e-6)
			a.join(t.Context(), 0)
			require.Len(t, a.flying, 1, "nothing is left of the call")
		})
	}
}

// The call that began last is the next, because it has the most time left.
func TestAwait_latestCallFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &awaiting{bucket: with(Rules{Tokens: 50})}
		a.join(t.Context(), 0)
		var order []int
		begun := time.Now()
		for _, n := range []int{2, 3, 1} {
			go func() {
				p, ok := a.Await(&a.rules, time.Now(), waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Hour, Since: begun.Add(time.Duration(n))})
				if ok {
					order = append(order, n)
					p.Done(Result{Succeeded: true, Slow: true})
				}
			}()
			synctest.Wait()
		}
		a.end('s')
		require.Equal(t, []int{3, 2, 1}, order)
	})
}

// §4.16: whatever the order, no token is lost and none is made, and no retry is left in flight.
func TestAwait_thousandGoroutines(t *testing.T) {
	a := &awaiting{bucket: with(Rules{Tokens: 5})}
	a.rules.Tokens = 50
	var flying, most atomic.Int64
	var done sync.WaitGroup
	for i := range 1000 {
		done.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if i%3 == 0 {
				cancel()
			}
			p, ok := a.Await(&a.rules, time.Now(), waitqueue.Limits{Ctx: ctx, MaxWait: 30 * time.Second})
			if !ok {
				return
			}
			most.Store(max(most.Load(), flying.Add(1)))
			flying.Add(-1)
			if i%5 == 0 {
				p.Cancel()
			}
			p.Done(Result{Succeeded: true, Slow: i%2 == 0})
		})
	}
	done.Wait()
	require.LessOrEqual(t, most.Load(), int64(10))
	require.InDelta(t, 50, a.Status(&a.rules, time.Now()).Remaining, 1e-6)
	require.Zero(t, a.timeouts.sent)
	require.Zero(t, a.timeouts.queue.Len())
}
