package circuit

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// outageOf is a client of a server that is away. It lives in a bubble.
type outageOf struct {
	*recorded

	back  time.Time                 // the server works since then
	takes func(released int) Result // of a server that works; nil: a success after 10 ms
	rests time.Duration             // of a call that has failed
	calls sync.WaitGroup
	mu    sync.Mutex         // guards the fields below
	sent  []int              // the calls, in the order in which they were sent
	at    []time.Time        // when they were sent
	ended map[int]*Rejection // the result; nil: a success
}

// away makes results at a rate for ten seconds, and then failures until the circuit opens.
func away(t *testing.T, rules Rules, every, took time.Duration) *outageOf {
	t.Helper()
	o := &outageOf{recorded: &recorded{Breaker: New(rules, time.Now())}, ended: map[int]*Rejection{}}
	for end := time.Now().Add(DefaultWindow); time.Now().Before(end); time.Sleep(every) {
		o.done(o.must(t, time.Now()), Result{Server: outcome.Works, Took: usualLatency}, time.Now())
	}
	for range 1000 {
		p := o.must(t, time.Now())
		if o.done(p, Result{Server: outcome.Fails, Took: took, TimeOut: took >= slowFailure}, time.Now()); o.path() == "open" {
			return o
		}
		time.Sleep(every)
	}
	t.Fatal("does not open")
	return nil
}

type Entry = waitqueue.Entry[Permit]

func (c *Circuit) wait(now time.Time, l waitqueue.Limits) (Permit, *Rejection) {
	e := &Entry{Limits: l}
	rejected := c.Wait(now, e, false)
	return e.Permit, rejected
}

// call starts a call that is sent again until it succeeds or is rejected.
func (o *outageOf) call(i int, l waitqueue.Limits) {
	o.calls.Go(func() {
		for ; ; l.Sent++ {
			p, rejected := o.Circuit(host).Admit(time.Now(), noRoute, false)
			if rejected != nil {
				p, rejected = o.Circuit(host).wait(time.Now(), l)
			}
			o.mu.Lock()
			if rejected != nil {
				o.ended[i] = rejected
				o.mu.Unlock()
				return
			}
			o.sent = append(o.sent, i)
			o.at = append(o.at, time.Now())
			n := len(o.sent)
			o.mu.Unlock()
			o.note(p.Change)
			r := Result{Server: outcome.Works, Took: usualLatency}
			if time.Now().Before(o.back) {
				r.Server = outcome.Fails
			} else if o.takes != nil {
				r = o.takes(n)
			}
			time.Sleep(r.Took)
			if o.done(p, r, time.Now()); r.Server == outcome.Works || o.takes != nil && !time.Now().Before(o.back) {
				o.mu.Lock()
				o.ended[i] = nil
				o.mu.Unlock()
				return
			}
			l.RestsTo = time.Now().Add(o.rests)
		}
	})
	synctest.Wait()
}

func limits(t *testing.T) waitqueue.Limits {
	t.Helper()
	return waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Minute}
}

// nothingLeft requires that no call waits or is in flight.
func (o *outageOf) nothingLeft(t *testing.T) {
	t.Helper()
	c := o.Find(host)
	require.Zero(t, c.Status(time.Now()).Waiting)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting != nil {
		require.True(t, c.waiting.queue.Alarm().IsZero(), "no timer")
	}
	if c.opening != nil {
		require.Zero(t, c.opening.inFlight)
	} else if l := c.closed.Load().slowStart.Load(); l != nil {
		require.Empty(t, l.inFlight)
	}
	if s := c.closed.Load(); s != nil {
		require.False(t, s.releasing.Load())
	}
}

// §4.30: when the circuit closes, calls are released in the order in which they began, at one and a half times the usual
// rate, but all within the time for which the first of them has waited.
func TestWaiting_release(t *testing.T) {
	for _, tt := range []struct {
		name          string
		every, outage time.Duration
		late          time.Duration // when they come
		calls         int
		interval      time.Duration // 0: all within that time
	}{
		{"few calls: one and a half times the usual rate", 120 * time.Millisecond, 8 * time.Second, 0, 30, 80 * time.Millisecond},
		{"many calls: within the time that they have waited", 120 * time.Millisecond, 3 * time.Second, 0, 200, 0},
		{"late in a long outage", 120 * time.Millisecond, 19 * time.Second, 18 * time.Second, 30, 0},
		{"a busy client", 6 * time.Millisecond, 2 * time.Second, 0, 100, 4 * time.Millisecond},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			o := away(t, Rules{}, tt.every, 0)
			begun := o.Find(host).Status(time.Now()).Outage
			o.back = begun.Add(tt.outage)
			time.Sleep(tt.late)
			now := time.Now()
			for _, i := range rand.Perm(tt.calls) {
				l := limits(t)
				l.Since = now.Add(time.Duration(i-tt.calls) * time.Millisecond)
				o.call(i, l)
			}
			require.InDelta(t, tt.calls, o.Find(host).Status(time.Now()).Waiting, 1, "one may be a probe")
			o.calls.Wait()
			require.Len(t, o.ended, tt.calls)
			closed := o.changes[len(o.changes)-1]
			require.Equal(t, Closed, closed.To)
			last, released := -1, []time.Time(nil)
			for n, i := range o.sent {
				if at := o.at[n]; !at.Before(closed.At) {
					require.Greater(t, i, last, "in their order")
					last, released = i, append(released, at)
				}
			}
			require.GreaterOrEqual(t, len(released), tt.calls-3*DefaultProbes)
			took := released[len(released)-1].Sub(closed.At)
			waited := closed.At.Sub(now) + time.Duration(tt.calls)*time.Millisecond
			require.LessOrEqual(t, took, waited)
			if tt.interval > 0 {
				require.InDelta(t, tt.interval*time.Duration(len(released)-1), took, float64(took/10))
			} else {
				require.Greater(t, took, waited*8/10)
			}
			o.nothingLeft(t)
		})
	}
}

// L2: the probe is the call that was sent least often, of those that do not rest, and of these the one with the most time left, but
// routes take turns.
func TestWaiting_probe(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rests [3]time.Duration // of the calls when they begin to wait
		sent  [3]int
		route [3]uint64
		again time.Duration // how long a call rests that was a probe
		want  []int
	}{
		{"each in its turn", [3]time.Duration{}, [3]int{}, [3]uint64{}, 0, []int{2, 1, 0, 2, 1, 0}},
		{"those sent less often first", [3]time.Duration{}, [3]int{2, 0, 1}, [3]uint64{}, 0, []int{1, 2, 1, 2, 1, 0}},
		{"one rests", [3]time.Duration{0, time.Hour, 0}, [3]int{}, [3]uint64{}, 0, []int{2, 0, 2, 0}},
		{"all rest: the first that has rested", [3]time.Duration{3 * time.Second, 2 * time.Second, time.Hour}, [3]int{}, [3]uint64{}, time.Hour, []int{1, 0}},
		{"the other route in its turn", [3]time.Duration{}, [3]int{}, [3]uint64{1, 2, 2}, 0, []int{2, 0, 1, 0, 2, 1}},
		{"another route, sent less often", [3]time.Duration{}, [3]int{0, 2, 2}, [3]uint64{1, 2, 2}, 0, []int{0, 0, 2, 0, 1}},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			o := away(t, Rules{}, 50*time.Millisecond, 0)
			o.back, o.rests = time.Now().Add(time.Hour), tt.again
			ctx, cancel := context.WithCancel(t.Context())
			begun := time.Now()
			for i := range 3 {
				l := limits(t)
				l.Ctx, l.Sent, l.Route, l.MaxWait, l.Since = ctx, tt.sent[i], tt.route[i], time.Hour, begun.Add(time.Duration(i))
				if tt.rests[i] > 0 {
					l.RestsTo = begun.Add(tt.rests[i])
				}
				o.call(i, l)
			}
			time.Sleep(10 * time.Second)
			cancel()
			o.calls.Wait()
			require.GreaterOrEqual(t, len(o.sent), len(tt.want))
			require.Equal(t, tt.want, o.sent[:len(tt.want)])
			if tt.rests[0] > 0 {
				require.Len(t, o.sent, len(tt.want))
				require.Equal(t, tt.rests[0], o.at[1].Sub(begun))
				require.Equal(t, tt.rests[1], o.at[0].Sub(begun))
			}
			o.nothingLeft(t)
		})
	}
}

// §4.28, §4.29: A wait ends without a permit: when its caller cancels, or after MaxWait, or at once.
func TestWaiting_ends(t *testing.T) {
	for _, tt := range []struct {
		name    string
		after   time.Duration // of the outage, until the last failure
		maxWait time.Duration
		cancel  time.Duration // 0: not
		took    time.Duration
	}{
		{"canceled", 0, time.Minute, 300 * time.Millisecond, 300 * time.Millisecond},
		{"MaxWait", 0, 400 * time.Millisecond, 0, 400 * time.Millisecond},
		{"it must not wait", 0, 0, 0, 0},
		{"negative MaxWait", 0, -1, 0, 0},
		{"almost too late", maxOutage - 1, 400 * time.Millisecond, 0, 400 * time.Millisecond},
		{"too late", maxOutage + 1, time.Minute, 0, lateWait},
		{"too late, with little time", maxOutage + 1, 400 * time.Millisecond, 0, 400 * time.Millisecond},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			o := away(t, Rules{Cooldown: time.Hour}, 50*time.Millisecond, 0)
			c, l := o.Find(host), limits(t)
			time.Sleep(time.Until(c.Status(time.Now()).Outage.Add(tt.after)))
			c.mu.Lock()
			c.opening.failed = time.Now() // a probe
			c.mu.Unlock()
			require.Equal(t, tt.after <= maxOutage, c.Holds(time.Now()))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l.Ctx, l.MaxWait = ctx, tt.maxWait
			if tt.cancel > 0 {
				time.AfterFunc(tt.cancel, cancel)
			}
			begun := time.Now()
			p, rejected := c.wait(begun, l)
			require.NotNil(t, rejected)
			require.Zero(t, p)
			require.True(t, rejected.NotBefore.After(time.Now()))
			require.Equal(t, c.Status(time.Now()).Outage, rejected.Outage)
			require.Equal(t, tt.took, time.Since(begun))
			require.Zero(t, c.Status(time.Now()).Waiting)
			c.mu.Lock()
			if c.waiting != nil {
				c.waiting.queue.WakeAt(time.Time{}, time.Now())
			}
			c.mu.Unlock()
		})
	}
	bubble.Run(t, "a call that waits may wait on", func(t *testing.T) {
		o := away(t, Rules{}, 50*time.Millisecond, 0)
		o.back = time.Now().Add(25 * time.Second)
		o.call(0, limits(t))
		o.calls.Wait()
		require.Contains(t, o.ended, 0)
		require.Nil(t, o.ended[0], "it was a probe that failed, and waits again")
		o.nothingLeft(t)
	})
}

// §4.28: a call that has waited as long as it may is sent once before it ends, unless it was sent before, or the server has too much work.
func TestWaiting_lastTest(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sent   int
		slow   bool // timeouts opened the circuit
		late   bool // it begins when the server has failed for long
		lastly bool
		tests  bool
	}{
		{"never sent", 0, false, false, true, true},
		{"sent before", 1, false, false, true, false},
		{"the server has too much work", 0, true, false, true, false},
		{"it begins late", 0, false, true, true, false},
		{"it is to fail", 0, false, false, false, false},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			o := away(t, Rules{Cooldown: time.Hour}, 50*time.Millisecond, 0)
			c := o.Find(host)
			c.mu.Lock()
			c.outage.slow = tt.slow
			if tt.late {
				c.opening.failed = c.outage.since.Add(maxOutage + 1)
			}
			c.mu.Unlock()
			l := limits(t)
			l.MaxWait, l.Sent = time.Second, tt.sent
			begun, e := time.Now(), &Entry{Limits: l}
			rejected := c.Wait(begun, e, tt.lastly)
			require.Equal(t, time.Second, time.Since(begun))
			require.Equal(t, !tt.tests, rejected != nil)
			if !tt.tests {
				return
			}
			e.Permit.Done(Result{Server: outcome.Works, Took: usualLatency}, time.Now())
			require.Equal(t, HalfOpen, c.Status(time.Now()).State, "its success counts as that of a probe")
			for range DefaultProbes - 1 {
				p, rejected := c.Admit(time.Now(), func() uint64 { return 0 }, true)
				require.Nil(t, rejected)
				p.Done(Result{Server: outcome.Works, Took: usualLatency}, time.Now())
			}
			require.Equal(t, Closed, c.Status(time.Now()).State)
		})
	}
}

// L2: while the server is slow or fails again, at most one call is released in each Cooldown.
func TestWaiting_releaseSlowsDown(t *testing.T) {
	for _, tt := range []struct {
		name    string
		result  Result
		slowest time.Duration // between two calls
	}{
		{"quick failures", Result{Server: outcome.Fails, Took: time.Millisecond}, DefaultCooldown},
		{"slow responses", Result{Server: outcome.Works, Took: slowFailure}, DefaultCooldown},
		{"usual responses", Result{Server: outcome.Works, Took: usualLatency}, 5 * time.Millisecond},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			o := away(t, Rules{}, 6*time.Millisecond, 0)
			o.back = time.Now().Add(time.Second)
			first, bad := 0, 0
			o.takes = func(n int) Result { // the 20th to 60th call
				if first == 0 {
					first = n
				}
				if n < first+20 || n > first+60 || bad == 4 {
					return Result{Server: outcome.Works, Took: time.Millisecond}
				}
				if tt.result.Server == outcome.Fails {
					bad++
				}
				return tt.result
			}
			for i := range 100 {
				o.call(i, limits(t))
			}
			o.calls.Wait()
			require.Len(t, o.ended, 100)
			require.Equal(t, "open half-open", o.path()[:len("open half-open")])
			times := o.at[first+5:]
			gap, n := time.Duration(0), 0
			for i := range times[1:] {
				if d := times[i+1].Sub(times[i]); d >= tt.slowest {
					n++
					gap = max(gap, d)
				}
			}
			if tt.slowest < DefaultCooldown {
				require.Zero(t, n)
				return
			}
			require.GreaterOrEqual(t, n, 2)
			require.LessOrEqual(t, gap, DefaultCooldown+slowFailure)
			o.nothingLeft(t)
		})
	}
}

// L2: new calls do not wait behind those that have waited, unless slow start limits both.
func TestWaiting_newCallsDoNotWait(t *testing.T) {
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			took := time.Duration(0)
			if slow {
				took = outageLatency
			}
			o := away(t, Rules{}, 50*time.Millisecond, took)
			require.Equal(t, slow, o.Find(host).Slow())
			o.back = time.Now().Add(time.Second)
			for i := range 100 {
				o.call(i, limits(t))
			}
			for o.Find(host).Status(time.Now()).State != Closed {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Millisecond)
			require.Positive(t, o.Find(host).Status(time.Now()).Waiting)
			require.False(t, slow && o.limit() == nil)
			if !slow {
				for range 100 {
					o.done(o.must(t, time.Now()), Result{Server: outcome.Works, Took: 5 * usualLatency}, time.Now())
				}
				require.Equal(t, usualLatency, o.Find(host).Usual(), "the latency contains the queue")
			}
			o.calls.Wait()
			o.nothingLeft(t)
		})
	}
}

// L2: calls that slow start rejects wait in the same queue, and none fails. They are sent in their order, but a call is not
// sent that would have no time for a response like the last one while another one has.
func TestWaiting_slowStart(t *testing.T) {
	const took = 100 * time.Millisecond
	for _, tt := range []struct {
		name  string
		times map[int]time.Duration // until the deadline of these calls
		other time.Duration         // until that of the others; 0: none
		sent  []int
	}{
		{"no deadlines", nil, 0, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"enough time", nil, time.Minute, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"three without enough time", map[int]time.Duration{1: 4 * took, 2: 4 * took, 3: 4 * took}, 0, []int{0, 4, 5, 6, 7, 8, 9}},
		{"none has enough", nil, 4 * took, []int{0, 9}},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			o := away(t, Rules{}, 50*time.Millisecond, outageLatency)
			inFlight, most := 0, 0
			o.back = time.Now()
			for o.Find(host).Status(time.Now()).State != Closed {
				if p, _, ok := o.admit(time.Now()); ok {
					o.done(p, Result{Server: outcome.Works, Took: usualLatency}, time.Now())
				}
				time.Sleep(10 * time.Millisecond)
			}
			require.NotNil(t, o.limit())
			closed := time.Now()
			o.takes = func(int) Result { // a pause after each response: not quick, not slow
				o.mu.Lock()
				inFlight++
				most = max(most, inFlight)
				o.mu.Unlock()
				time.AfterFunc(took, func() { o.mu.Lock(); inFlight--; o.mu.Unlock() })
				return Result{Server: outcome.Works, Took: took}
			}
			for i := range 10 {
				l := limits(t)
				if left := cmp.Or(tt.times[i], tt.other); left > 0 {
					l.MaxWait, l.Deadline = left, closed.Add(left)
				}
				o.call(i, l)
			}
			require.Equal(t, 9, o.Find(host).Status(time.Now()).Waiting)
			require.True(t, o.Find(host).Holds(time.Now()) || time.Now().Equal(closed))
			o.calls.Wait()
			require.Equal(t, 1, most)
			require.Equal(t, tt.sent, o.sent)
			for i := range 10 {
				require.Equal(t, slices.Contains(tt.sent, i), o.ended[i] == nil)
			}
			o.nothingLeft(t)
		})
	}
}

// hooked is a Waiter that calls a function when the wait begins.
type hooked struct {
	begins func()
	ended  atomic.Int64
}

func (w *hooked) WaitBegins(time.Time, bool) { w.begins() }
func (w *hooked) WaitEnds()                  { w.ended.Add(1) }

// §4.31: A call that gets its permit in the instant in which it leaves returns it: nothing is lost.
func TestWaiting_returnsPermits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(cancel func())
		wait  time.Duration // in WaitBegins
		probe bool          // it was the next probe by then
	}{
		{"a Waiter panics", func(func()) { panic("waiter") }, 0, false},
		{"a Waiter panics, the permit is there", func(func()) { panic("waiter") }, time.Second, true},
		{"canceled, the permit is there", func(cancel func()) { cancel() }, time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 30 { // select chooses at random
				synctest.Test(t, func(t *testing.T) {
					o := away(t, Rules{}, 50*time.Millisecond, 0)
					c, l := o.Find(host), limits(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					w := &hooked{begins: func() { time.Sleep(tt.wait); synctest.Wait(); tt.leave(cancel) }}
					l.Ctx, l.Waiter = ctx, w
					var p Permit
					panicked := true
					func() {
						defer func() { _ = recover() }()
						p, _ = c.wait(time.Now(), l)
						panicked = false
					}()
					require.EqualValues(t, 1, w.ended.Load())
					if p.circuit != nil { // it got the permit
						require.False(t, panicked)
						require.NotNil(t, p.Change)
						p.Cancel(time.Now())
						o.nothingLeft(t)
						return
					}
					o.nothingLeft(t)
					if tt.probe {
						p = o.must(t, time.Now())
						require.NotNil(t, p.Change, "the change of the returned permit")
						require.Equal(t, "open half-open", o.path())
					}
				})
			}
		})
	}
}

// A call holds while the circuit is open, but not for a probe that is due, nor for a pause of slow start.
func TestCircuit_Holds(t *testing.T) {
	b := record(Rules{})
	until := b.opened(t, epoch)
	c := b.Find(host)
	require.True(t, c.Holds(until.Add(-1)))
	require.False(t, c.Holds(until))
	b, at := slowStarted(t)
	b.limit().paused = at.Add(time.Second)
	require.NotNil(t, b.Find(host).Rejects(at))
	require.False(t, b.Find(host).Holds(at))
}

// The circuit may have closed since the call waited: then nothing is left to test.
func TestCircuit_testLastlyIfClosed(t *testing.T) {
	require.False(t, New(Rules{}, epoch).Circuit(host).testLastly(epoch, &Entry{}))
}

// A permit of a closed circuit is not current after another outage.
func TestPermit_currentOfAnOldClosed(t *testing.T) {
	b := record(Rules{MinRequests: 1, Probes: 1})
	old := b.must(t, epoch)
	require.True(t, old.Current())
	at := b.opened(t, epoch)
	b.done(b.must(t, at), Result{Server: outcome.Works}, at)
	require.Equal(t, "open half-open closed", b.path())
	require.False(t, old.Current())
}

// A probe of an opening that is over is not current, also if the circuit has opened again.
func TestPermit_currentOfAnOldProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Rules{FailureRatio: .01, MinRequests: 1, Probes: 1}, time.Now())
		c := b.Circuit(host)
		p, _ := c.Admit(time.Now(), noRoute, false)
		p.Done(Result{Server: outcome.Fails}, time.Now())
		time.Sleep(time.Second)
		old, r := c.Admit(time.Now(), noRoute, false)
		require.Nil(t, r)
		time.Sleep(time.Second)
		next, r := c.Admit(time.Now(), noRoute, false)
		require.Nil(t, r)
		next.Done(Result{Server: outcome.Works}, time.Now())
		p, r = c.Admit(time.Now(), noRoute, false)
		require.Nil(t, r)
		p.Done(Result{Server: outcome.Fails}, time.Now())
		require.Equal(t, Open, c.Status(time.Now()).State)
		require.False(t, old.Current(), "the circuit has changed twice")
	})
}
