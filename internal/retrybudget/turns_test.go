package retrybudget

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// turnsOf are calls that wait for their turn, and when they were sent. Each is answered after its latency.
type turnsOf struct {
	*bucket

	begun   time.Time
	latency time.Duration
	ends    []Result // of the first calls that are sent; the others succeed

	all     sync.WaitGroup
	mu      sync.Mutex
	sent    []time.Duration
	order   []int
	refused int
}

func newTurns(rules Rules, latency time.Duration, ends ...Result) *turnsOf {
	rules.Static = true // so that no success brings tokens
	b := with(rules)
	b.rules.Origin = time.Now()
	return &turnsOf{bucket: b, begun: time.Now(), latency: latency, ends: ends}
}

// join waits as call n, which began n nanoseconds after the first.
func (w *turnsOf) join(ctx context.Context, n int, limits waitqueue.Limits) {
	limits.Ctx, limits.Since = ctx, w.begun.Add(time.Duration(n))
	p, ok := w.AwaitTurn(1, &w.rules, time.Now(), limits)
	w.mu.Lock()
	if !ok {
		w.refused++
		w.mu.Unlock()
		return
	}
	i := len(w.sent)
	w.sent = append(w.sent, time.Since(w.begun))
	w.order = append(w.order, n)
	w.mu.Unlock()
	time.Sleep(w.latency)
	result := Result{Succeeded: true}
	if i < len(w.ends) {
		result = w.ends[i]
	}
	p.Done(result)
}

// §4.16: calls bring the tokens of those that wait, which go in the order in which they began. Without calls, one that a limit has
// rejected is a test: after three usual intervals, or at once if the limit named its wait. Each that is served lets one more go.
func TestAwaitTurn(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	failed := Result{}
	three := 3 * Recent // usual intervals, of a bucket to which no call has come lately
	for _, tt := range []struct {
		name  string
		class uint8
		calls []time.Duration // when ten calls come, which bring a token
		ends  []Result
		sent  []time.Duration
	}{
		{"a token of calls: one", Rejected, []time.Duration{s}, nil, []time.Duration{s}},
		{"two tokens: two, and then a test after three intervals of the second's", Failed, []time.Duration{s, s}, nil, []time.Duration{s, s, s + 3*Recent/20}},
		{"rejected, no calls: after three intervals, and one more for each that is served", Rejected, nil, nil, []time.Duration{three, three + 100*ms, three + 100*ms, three + 200*ms}},
		{"rejected, a test that fails: three intervals again", Rejected, nil, []Result{failed}, []time.Duration{three, 2*three + 100*ms, 2*three + 200*ms}},
		{"its wait is over, no calls: at once", Asked, nil, nil, []time.Duration{0, 100 * ms, 100 * ms, 200 * ms}},
		{"asked to wait again: as long as it asks", Asked, nil, []Result{{Asks: 10 * s}}, []time.Duration{0, 10*s + 100*ms, 10*s + 200*ms}},
		{"its wait is over, a test that fails otherwise: after intervals", Asked, nil, []Result{failed}, []time.Duration{0, three + 100*ms, three + 200*ms}},
		{"asked to wait a third time: about twice as long", Asked, nil, []Result{{Asks: 10 * s}, {Asks: 10 * s}, {Asks: 10 * s}}, []time.Duration{0, 10*s + 100*ms, 20*s + 300*ms, 40*s + 700*ms}},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			w := newTurns(Rules{Ratio: 0.1}, 100*ms, tt.ends...)
			ctx, cancel := context.WithCancel(t.Context())
			for n := range len(tt.sent) + 3 {
				w.all.Go(func() { w.join(ctx, n, waitqueue.Limits{MaxWait: never, Class: tt.class}) })
				synctest.Wait()
			}
			for _, at := range tt.calls {
				time.Sleep(at - time.Since(w.begun))
				w.bucket.calls(10, time.Now())
				synctest.Wait()
			}
			time.Sleep(tt.sent[len(tt.sent)-1] - time.Since(w.begun))
			synctest.Wait()
			cancel()
			w.all.Wait()
			require.GreaterOrEqual(t, len(w.sent), len(tt.sent), "%v", w.sent)
			require.Equal(t, tt.sent, w.sent[:len(tt.sent)])
		})
	}
}

// §4.16: a call that comes brings a part of a token, and those that wait hope for the next: no test is sent before three usual
// intervals have passed without one.
func TestAwaitTurn_waitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTurns(Rules{Ratio: 0.01}, 0)
		w.all.Go(func() { w.join(t.Context(), 0, waitqueue.Limits{MaxWait: never, Class: Rejected}) })
		for range 20 { // every 100 ms, so the three intervals are 300 ms
			time.Sleep(100 * time.Millisecond)
			w.bucket.calls(1, time.Now())
		}
		synctest.Wait()
		require.EqualValues(t, 1, w.bucket.turns.queue.Len())
		w.all.Wait()
		require.Len(t, w.sent, 1)
		require.InDelta(t, 2.3, w.sent[0].Seconds(), 0.02)
	})
}

// §4.16: the usual interval is that of the last calls, also if none has come for long when a call joins. Another call that joins
// later does not wait anew: calls with deadlines of seconds have no time for it.
func TestAwaitTurn_joinsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTurns(Rules{Ratio: 0.01}, 0)
		for range 10 {
			time.Sleep(125 * time.Millisecond)
			w.bucket.calls(1, time.Now())
		}
		time.Sleep(10 * time.Second)
		joined := time.Since(w.begun)
		w.join(t.Context(), 0, waitqueue.Limits{MaxWait: never})
		require.Equal(t, []time.Duration{joined + 3*Recent/10}, w.sent)
		time.Sleep(time.Second)
		again := time.Since(w.begun)
		w.join(t.Context(), 1, waitqueue.Limits{MaxWait: never})
		require.Equal(t, []time.Duration{joined + 3*Recent/10, again}, w.sent)
		w.bucket.calls(1, time.Now())
		time.Sleep(time.Second)
		last := time.Since(w.begun)
		w.join(t.Context(), 2, waitqueue.Limits{MaxWait: never})
		require.Equal(t, last+3*Recent, w.sent[2], "a call has come")
	})
}

// §4.16: while a limit rejects, the pause between two tests grows to a quarter of that time, and to 90 seconds at most. So its end is
// found soon after it, and a limit of hours gets few tests.
func TestAwaitTurn_pausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 60
		w := newTurns(Rules{}, 0, make([]Result, calls)...)
		for n := range calls {
			w.all.Go(func() { w.join(t.Context(), n, waitqueue.Limits{MaxWait: 3 * never, Class: Rejected}) })
		}
		w.all.Wait()
		require.Len(t, w.sent, calls)
		for i := 1; i < calls; i++ {
			rejects := w.sent[i-1] - w.sent[0]
			require.Equal(t, min(max(3*Recent, rejects/4), maxFailing/4), w.sent[i]-w.sent[i-1], "after %v", rejects)
		}
	})
}

// §4.16: a call that began earlier is the next, also if it joined later. No other retry takes its token.
func TestAwaitTurn_inTheOrderOfTheirBeginnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTurns(Rules{Ratio: 0.1}, 0)
		for _, n := range []int{2, 3, 1} {
			w.all.Go(func() { w.join(t.Context(), n, waitqueue.Limits{MaxWait: never}) })
			synctest.Wait()
		}
		for i := range 3 {
			w.bucket.calls(10, time.Now())
			synctest.Wait()
			_, ok := w.Admit(Request{}, &w.rules, time.Now())
			require.False(t, ok, "after %d tokens", i+1)
		}
		require.Equal(t, []int{1, 2, 3}, w.order)
	})
}

// A call that must not wait longer leaves the queue, and nothing is left of it.
func TestAwaitTurn_ends(t *testing.T) {
	for _, end := range waitEnds() {
		bubble.Run(t, end.name, func(t *testing.T) {
			w := newTurns(Rules{Ratio: 0.1}, 0)
			end.wait(t, func(ctx context.Context, longest time.Duration) { w.join(ctx, 0, waitqueue.Limits{MaxWait: longest}) })
			require.Equal(t, 1, w.refused)
			w.bucket.calls(10, time.Now())
			require.InDelta(t, 1, w.Status(&w.rules, time.Now()).Remaining, 1e-6)
		})
	}
}

// A test that is not sent is as if it had not been planned: the next follows at once.
func TestAwaitTurn_canceledTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTurns(Rules{}, 0)
		p, ok := w.AwaitTurn(1, &w.rules, time.Now(), waitqueue.Limits{Ctx: t.Context(), MaxWait: never, Class: Asked})
		require.True(t, ok)
		p.Cancel()
		w.join(t.Context(), 1, waitqueue.Limits{MaxWait: never, Class: Asked})
		require.Equal(t, []time.Duration{0}, w.sent)
	})
}

// In another testing/synctest bubble the clock is set back.
func TestAwaitTurn_clockThatGoesBack(t *testing.T) {
	b := with(Rules{})
	for _, after := range []time.Duration{never, 0} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(after)
			begun := time.Now()
			p, ok := b.AwaitTurn(1, &b.rules, begun, waitqueue.Limits{Ctx: t.Context(), MaxWait: never, Class: Asked})
			require.True(t, ok)
			require.LessOrEqual(t, time.Since(begun), time.Minute)
			p.Done(Result{Asks: time.Minute})
		})
	}
}

// §4.16: whatever the order, no token is lost and none is made, and no test is left in flight.
func TestAwaitTurn_thousandGoroutines(t *testing.T) {
	b := with(Rules{Tokens: 50, Ratio: 0.01})
	b.rules.Origin = time.Now()
	b.rules.Static = true // so that successes make no tokens
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if i%3 == 0 {
				cancel()
			}
			p, ok := b.AwaitTurn(1, &b.rules, time.Now(), waitqueue.Limits{Ctx: ctx, MaxWait: 30 * time.Second, Class: Asked})
			if !ok {
				return
			}
			if i%5 == 0 {
				p.Cancel()
			}
			p.Done(Result{Succeeded: true})
		})
	}
	all.Wait()
	require.Zero(t, b.turns.tests)
	require.Zero(t, b.turns.queue.Len())
	require.False(t, b.waiting.Load())
	require.GreaterOrEqual(t, b.Status(&b.rules, time.Now()).Remaining, 0.0)
}
