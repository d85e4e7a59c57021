package waitqueue

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// gate issues a permit every second, the first one after a second.
type gate struct {
	Queue[int]

	mu       sync.Mutex
	next     time.Time
	granted  int
	dispatch int // calls of Dispatch
	returned []int
	blocked  bool
}

func newGate() *gate {
	g := &gate{next: time.Now().Add(time.Second)}
	g.Mu, g.Gate = &g.mu, g
	return g
}

func (g *gate) Dispatch(now time.Time) {
	g.dispatch++
	for g.Len() > 0 && !now.Before(g.next) {
		g.granted++
		g.next = g.next.Add(time.Second)
		g.Grant(g.First(), g.granted)
	}
	wake := time.Time{}
	if g.Len() > 0 {
		wake = g.next
	}
	g.WakeAt(wake, now)
}

func (g *gate) Estimate(_ time.Time, ahead Load, _ int64) (time.Time, bool) {
	return g.next.Add(time.Duration(ahead.Calls) * time.Second), g.blocked
}

func (g *gate) Return(p int, _ time.Time) { g.returned = append(g.returned, p) }

func (g *gate) Take(now time.Time, _ int64) (int, bool) {
	if now.Before(g.next) {
		return 0, false
	}
	g.granted++
	g.next = g.next.Add(time.Second)
	return g.granted, true
}

func (g *gate) enter(l Limits) (int, *Rejection) {
	p, _, rejected := g.Enter(time.Now(), l)
	return p, rejected
}

// TestQueue_rejects checks when a call is rejected without waiting, and when it leaves.
func TestQueue_rejects(t *testing.T) {
	for _, row := range []struct {
		name     string
		limits   Limits // Ctx is set; Deadline is from now, in the year 1
		deadline time.Duration
		trip     time.Duration
		cancel   time.Duration
		blocked  bool
		reason   Reason
		took     time.Duration
		ok       bool
	}{
		{name: "long enough: a permit", limits: Limits{MaxWait: time.Second}, took: time.Second, ok: true},
		{name: "beyond MaxWait: at once", limits: Limits{MaxWait: 999 * time.Millisecond}, reason: MaxWaitExceeded},
		{name: "it must not wait: at once", limits: Limits{}, reason: MaxWaitExceeded},
		{name: "beyond the deadline: at once", limits: Limits{MaxWait: time.Minute}, deadline: time.Second, reason: DeadlineExceeded},
		{name: "no time for the response: at once", limits: Limits{MaxWait: time.Minute}, trip: time.Second, deadline: 2 * time.Second, reason: DeadlineExceeded},
		{name: "time for the response: a permit", limits: Limits{MaxWait: time.Minute}, trip: time.Second, deadline: 2001 * time.Millisecond, took: time.Second, ok: true},
		{name: "beyond MaxBlock, and blocked: at once", limits: Limits{MaxWait: time.Minute, MaxBlock: 500 * time.Millisecond}, blocked: true, reason: MaxWaitExceeded},
		{name: "beyond MaxBlock, not blocked: a permit", limits: Limits{MaxWait: time.Minute, MaxBlock: 500 * time.Millisecond}, took: time.Second, ok: true},
		{name: "canceled: it leaves", limits: Limits{MaxWait: time.Minute}, cancel: 300 * time.Millisecond, reason: Canceled, took: 300 * time.Millisecond},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			g := newGate()
			g.blocked, g.RTT = row.blocked, row.trip
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.cancel > 0 {
				time.AfterFunc(row.cancel, cancel)
			}
			if row.limits.Ctx = ctx; row.deadline > 0 {
				row.limits.Deadline = time.Now().Add(row.deadline)
			}
			begun := time.Now()
			_, rejected := g.enter(row.limits)
			require.Equal(t, row.took, time.Since(begun))
			require.Equal(t, row.ok, rejected == nil)
			if !row.ok {
				require.Equal(t, row.reason, rejected.Reason)
			}
			require.Zero(t, g.Len())
		})
	}
}

// A queued call is rejected if its permit would now be too late, and the calls behind it move up.
func TestQueue_sweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var calls sync.WaitGroup
		enter := func(max time.Duration, want *Reason, took time.Duration) {
			calls.Go(func() {
				begun := time.Now()
				_, rejected := g.enter(Limits{Ctx: t.Context(), MaxWait: max})
				if assert.Equal(t, want != nil, rejected != nil) && want != nil {
					assert.Equal(t, *want, rejected.Reason)
				}
				assert.Equal(t, took, time.Since(begun))
			})
			synctest.Wait()
		}
		enter(5*time.Second, new(MaxWaitExceeded), 500*time.Millisecond)
		enter(time.Minute, nil, 10*time.Second)
		time.Sleep(500 * time.Millisecond)
		g.mu.Lock()
		g.next = g.next.Add(9 * time.Second)
		g.Sweep(time.Now())
		g.Dispatch(time.Now())
		g.mu.Unlock()
		calls.Wait()
	})
}

// A call that leaves when it has its result already keeps it, unless it was canceled: then its permit is returned.
func TestQueue_leavesWithItsResult(t *testing.T) {
	granted := func(g *gate, e *Entry[int]) { g.Grant(e, 7) }
	inASecond := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC) // of a bubble: when the gate has the next permit
	for _, row := range []struct {
		name     string
		result   func(g *gate, e *Entry[int])
		reason   Reason // of leaving
		permit   int
		returned []int
		rejected *Rejection
	}{
		{"granted, and the end of MaxWait", granted, MaxWaitExceeded, 7, nil, nil},
		{"granted, and canceled", granted, Canceled, 0, []int{7}, &Rejection{Reason: Canceled}},
		{"no result yet, and the end of MaxWait", func(*gate, *Entry[int]) {}, MaxWaitExceeded, 0, nil, &Rejection{MaxWaitExceeded, inASecond}},
		{"no result yet, and canceled", func(*gate, *Entry[int]) {}, Canceled, 0, nil, &Rejection{Reason: Canceled}},
		{"rejected, and canceled", func(g *gate, e *Entry[int]) {
			g.next = time.Now().Add(time.Hour)
			g.Sweep(time.Now())
		}, Canceled, 0, nil, &Rejection{MaxWaitExceeded, inASecond.Add(time.Hour - time.Second)}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			g := newGate()
			e := &Entry[int]{Limits: Limits{Ctx: t.Context(), MaxWait: time.Minute}}
			g.mu.Lock()
			require.Nil(t, g.Join(time.Now(), e))
			row.result(g, e)
			g.mu.Unlock()
			g.leave(e, row.reason)
			require.Equal(t, row.permit, e.Permit)
			require.Equal(t, row.returned, g.returned)
			require.Equal(t, row.rejected == nil, e.rejected == nil)
			if row.rejected != nil {
				require.Equal(t, row.rejected.Reason, e.rejected.Reason)
				require.True(t, row.rejected.NotBefore.Equal(e.rejected.NotBefore), "%v", e.rejected.NotBefore)
			}
			require.Zero(t, g.Len())
		})
	}
}

// A permit that is there at once is not too late for a response: the request may as well be sent.
func TestQueue_permitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.RTT, g.next = time.Minute, time.Now()
		e := &Entry[int]{Limits: Limits{Ctx: t.Context(), MaxWait: time.Minute, Deadline: time.Now().Add(time.Second)}}
		g.mu.Lock()
		require.Nil(t, g.Join(time.Now(), e))
		g.mu.Unlock()
		require.Equal(t, 1, e.Permit)
	})
}

// TestQueue_longestWait checks that no MaxWait is too long to be added to.
func TestQueue_longestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		p, rejected := g.enter(Limits{Ctx: t.Context(), MaxWait: math.MaxInt64})
		require.Nil(t, rejected)
		require.Equal(t, 1, p)
	})
}

// A gate is dispatched after a permit is taken: a shared quota asks its store for more then.
func TestQueue_dispatchesAfterTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		time.Sleep(time.Second)
		p, rejected := g.enter(Limits{Ctx: t.Context(), MaxWait: time.Minute})
		require.Nil(t, rejected)
		require.Equal(t, 1, p)
		require.Equal(t, 1, g.dispatch)
	})
}

// A timer that fires too early is set again.
func TestQueue_earlyTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begun := newGate(), time.Now()
		time.AfterFunc(time.Second/2, func() {
			g.mu.Lock()
			g.timer.Stop() // it has fired
			g.mu.Unlock()
			g.wake()
		})
		_, rejected := g.enter(Limits{Ctx: t.Context(), MaxWait: time.Minute})
		require.Nil(t, rejected)
		require.Equal(t, time.Second, time.Since(begun))
	})
}

// A call that began earlier gets its permit earlier, although it joined later.
func TestQueue_isInTheOrderOfSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, now := newGate(), time.Now()
		var calls sync.WaitGroup
		for i, since := range []time.Duration{-2, -4, 0, -1, -3, -2} { // 0: now; of two that began at once, the first that joined
			want := []int{3, 1, 6, 5, 2, 4}[i]
			calls.Go(func() {
				l := Limits{Ctx: t.Context(), MaxWait: time.Minute}
				if since != 0 {
					l.Since = now.Add(since)
				}
				p, rejected := g.enter(l)
				assert.Nil(t, rejected)
				assert.Equal(t, want, p)
			})
			synctest.Wait()
		}
		calls.Wait()
		require.Zero(t, g.Len())
	})
}

// costGate has a permit for no call, and notes what the queue asks.
type costGate struct {
	gate
	asked []Load // what is ahead, with the call's own cost in the next item
}

func (g *costGate) Estimate(now time.Time, ahead Load, cost int64) (time.Time, bool) {
	g.asked = append(g.asked, ahead, Load{Cost: cost})
	return now, false
}

// The queue says what the calls ahead cost together, also after some of them have left.
func TestQueue_cost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &costGate{gate: *newGate()}
		g.Mu, g.Gate, g.next = &g.mu, g, time.Now().Add(time.Hour)
		g.mu.Lock()
		defer g.mu.Unlock()
		var entries []*Entry[int]
		for i, cost := range []int64{100, 20, 3} {
			e := &Entry[int]{Limits: Limits{Ctx: t.Context(), MaxWait: time.Minute, Cost: cost, Since: time.Now().Add(time.Duration(i))}}
			require.Nil(t, g.Join(time.Now(), e))
			entries = append(entries, e)
		}
		require.Equal(t, []Load{{}, {0, 100}, {1, 100}, {0, 20}, {2, 120}, {0, 3}}, g.asked)
		require.EqualValues(t, 100, g.First().Cost)
		g.Grant(g.First(), 1)
		require.EqualValues(t, 20, g.First().Cost)
		g.mu.Unlock()
		g.leave(entries[1], Canceled)
		g.mu.Lock()
		require.Equal(t, Load{1, 3}, g.load())
		g.asked = nil
		g.Sweep(time.Now())
		require.Equal(t, []Load{{}, {0, 3}}, g.asked)
	})
}
