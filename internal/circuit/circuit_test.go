package circuit

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

var (
	epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	host  = scope.Key{Name: "h"}
)

func (s State) String() string { return [...]string{"closed", "half-open", "open"}[s] }

var outcomes = map[byte]outcome.Server{'S': outcome.Works, 'F': outcome.Fails, 'A': outcome.Rejects, 'N': outcome.Silent}

// recorded is a Breaker with one scope that records all changes.
type recorded struct {
	*Breaker
	mu      sync.Mutex
	changes []Change
}

func record(rules Rules) *recorded { return &recorded{Breaker: New(rules, epoch)} }

func (b *recorded) note(c *Change) {
	if c == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = append(b.changes, *c)
}

// path returns the states after each change.
func (b *recorded) path() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	states := make([]string, 0, len(b.changes))
	for _, c := range b.changes {
		states = append(states, c.To.String())
	}
	return strings.Join(states, " ")
}

func (b *recorded) admit(at time.Time) (p Permit, notBefore time.Time, ok bool) {
	p, rejection := b.Circuit(host).Admit(at, noRoute, false)
	b.note(p.Change)
	if rejection != nil {
		return p, rejection.NotBefore, false
	}
	return p, time.Time{}, true
}

func (b *recorded) rejects(at time.Time) (notBefore time.Time, rejects bool) {
	if rejection := b.Circuit(host).Rejects(at); rejection != nil {
		return rejection.NotBefore, true
	}
	return time.Time{}, false
}

func (b *recorded) done(t Permit, r Result, at time.Time) { b.note(t.Done(r, at)) }

// run makes one call after the other at one time, with a result for each letter, and returns
// how many were admitted.
func (b *recorded) run(at time.Time, results string) (sent int) {
	for i := range results {
		if t, _, ok := b.admit(at); ok {
			sent++
			b.done(t, Result{Server: outcomes[results[i]]}, at)
		}
	}
	return sent
}

// opened fails calls until the circuit opens, and returns the end of its cooldown.
func (b *recorded) opened(t *testing.T, at time.Time) (until time.Time) {
	t.Helper()
	for range 1000 {
		permit, until, ok := b.admit(at)
		if !ok {
			return until
		}
		b.done(permit, Result{Server: outcome.Fails}, at)
	}
	t.Fatal("does not open")
	return
}

// openedBy opens the circuit by failures with a latency, and returns the time.
func (b *recorded) openedBy(t *testing.T, at time.Time, took time.Duration) time.Time {
	t.Helper()
	before := len(b.changes)
	for range 2 {
		for range 30 {
			if len(b.changes) > before {
				return at
			}
			b.done(b.must(t, at), Result{Server: outcome.Fails, Took: took, TimeOut: took >= slowFailure}, at)
		}
		at = at.Add(minStreakTime)
	}
	t.Fatal("does not open")
	return at
}

func (b *recorded) must(t *testing.T, at time.Time) Permit {
	t.Helper()
	permit, _, ok := b.admit(at)
	require.True(t, ok)
	return permit
}

// §4.15: results of attempts that were admitted before a change are ignored.
func TestPermit_ignoredAfterChange(t *testing.T) {
	b := record(Rules{MinRequests: 2, Probes: 1})
	at := epoch
	var old []Permit
	for range 50 {
		old = append(old, b.must(t, at))
	}
	at = b.opened(t, at)
	late := func(o outcome.Server, n int) {
		for range n {
			b.done(old[0], Result{Server: o}, at)
			old = old[1:]
		}
	}
	late(outcome.Fails, 5) // open: no second opening, no longer cooldown
	probe := b.must(t, at)
	late(outcome.Works, 5) // half-open: they are no probes
	late(outcome.Fails, 5)
	require.Equal(t, "open half-open", b.path())
	b.done(probe, Result{Server: outcome.Works}, at)
	late(outcome.Fails, 20) // closed again: they are not of this window
	require.Equal(t, "open half-open closed", b.path())
	require.Equal(t, 1, b.run(at, "F"), "the window is fresh")
	require.Equal(t, "open half-open closed", b.path())
	require.Equal(t, 1, b.run(at, "FF"))
	require.Equal(t, "open half-open closed open", b.path())
	b.done(probe, Result{Server: outcome.Works}, at)
	require.Equal(t, "open half-open closed open", b.path())
}

func TestCircuit_status(t *testing.T) {
	b := record(Rules{MinRequests: 4, Probes: 1, FailureRatio: 0.5})
	require.Equal(t, Status{}, b.Find(host).Status(epoch), "unknown")
	b.run(epoch, "SSS")
	require.Equal(t, Status{State: Closed, Calls: 3, Since: epoch}, b.Find(host).Status(epoch))
	until := b.opened(t, epoch.Add(time.Second))
	begun := epoch.Add(time.Second)
	open := Status{State: Open, Calls: 6, Failures: 3, Openings: 1, Opening: Opening{begun, 6, 3, 0}, Since: begun, NotBefore: until, Outage: begun}
	require.Equal(t, open, b.Find(host).Status(until.Add(-1)))
	half := Status{State: HalfOpen, Calls: 6, Failures: 3, Openings: 1, Opening: Opening{begun, 6, 3, 0}, Since: until, Outage: begun}
	require.Equal(t, half, b.Find(host).Status(until), "as the next request will find it")
	require.Equal(t, "open", b.path(), "State and Status change nothing")
	probe := b.must(t, until)
	got := b.Find(host).Status(until)
	require.True(t, got.NotBefore.After(until), "it is in flight")
	half.NotBefore = got.NotBefore
	require.Equal(t, half, got)
	b.done(probe, Result{Server: outcome.Fails}, until)
	again := b.Find(host).Status(until)
	require.Equal(t, []int{6, 3, 1}, []int{again.Calls, again.Failures, again.Opening.FailedProbes}, "for which it opened, and since")
	require.Equal(t, begun, again.Opening.OpenedAt)
	require.Equal(t, Open, again.State)
	var names []string
	b.NotClosed(func(key scope.Key) { names = append(names, key.Name) })
	require.Equal(t, []string{"h"}, names)
	b.done(b.must(t, again.NotBefore), Result{Server: outcome.Works}, again.NotBefore)
	b.NotClosed(func(scope.Key) { t.Error("closed") })
	require.Equal(t, Closed, b.Find(host).Status(again.NotBefore).State)
	require.Equal(t, 1, b.Find(host).Status(again.NotBefore).Openings, "the failed probe is no opening of a closed circuit")
	until = b.opened(t, again.NotBefore.Add(time.Second))
	require.Equal(t, 2, b.Find(host).Status(until).Openings)
	require.Zero(t, b.Find(host).Status(until).Opening.FailedProbes, "of this opening")
	require.Zero(t, b.Find(host).Status(until.Add(6*time.Minute)).Openings, "of the last 5 min")
}

func TestCircuit_statusOfSlowStart(t *testing.T) {
	b, at := slowStarted(t)
	s := b.Find(host).Status(at)
	require.Equal(t, Closed, s.State)
	require.InDelta(t, 0.25, s.Limit, 1e-9)
	require.Zero(t, s.NotBefore)
	b.done(b.must(t, at), Result{Server: outcome.Works, Took: outageLatency}, at)
	s = b.Find(host).Status(at)
	require.Equal(t, Closed, s.State)
	require.Equal(t, at.Add(3*outageLatency), s.NotBefore, "it pauses")
	require.Zero(t, b.Find(host).Status(s.NotBefore).NotBefore)
}

// atDeadline is the result of an attempt that the deadline of its call has ended: see the rows of CallDeadline in package outcome.
func (b *recorded) atDeadline(took time.Duration) Result {
	if b.Circuit(host).Late(took) {
		return Result{Server: outcome.Fails, Took: took, TimeOut: true}
	}
	return Result{Took: took}
}

// §4.15: the call's deadline is a failure only if the attempt had far longer than usual.
func TestPermit_timeout(t *testing.T) {
	for _, tt := range []struct {
		name          string
		typical, took time.Duration // 0: no response before
		failure       bool
	}{
		{"no baseline, just below a second", 0, time.Second - 1, false},
		{"no baseline, a second", 0, time.Second, true},
		{"quick server, just below the minimum", 10 * time.Millisecond, hold.Hanging - 1, false},
		{"quick server, the minimum", 10 * time.Millisecond, hold.Hanging, true},
		{"slow server, just below four times", time.Second, 4*time.Second - 1, false},
		{"slow server, four times", time.Second, 4 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{MinRequests: 1, FailureRatio: 0.01, Probes: 1, Static: true})
			if tt.typical > 0 {
				b.done(b.must(t, epoch), Result{Server: outcome.Works, Took: tt.typical}, epoch)
			}
			b.done(b.must(t, epoch), b.atDeadline(tt.took), epoch)
			require.Equal(t, tt.failure, b.path() == "open", "closed")

			at := b.opened(t, epoch)
			b.done(b.must(t, at), b.atDeadline(tt.took), at)
			if tt.failure {
				require.Equal(t, "open half-open open", b.path())
				return
			}
			require.Equal(t, "open half-open", b.path())
			b.must(t, at) // the slot is free
		})
	}
}

// §4.18
func TestBreaker_isBounded(t *testing.T) {
	b := record(Rules{MinRequests: 1, Cooldown: time.Hour})
	until := b.opened(t, epoch)
	run := func(name string, o outcome.Server) {
		key := scope.Key{Name: name}
		for range 2 {
			permit, _ := b.Circuit(key).Admit(epoch, noRoute, false)
			permit.Done(Result{Server: o}, epoch)
		}
	}
	held := b.Circuit(scope.Key{Name: "held"})
	held.Acquire()
	for i := range 20_000 {
		run(strconv.Itoa(i), outcome.Works)
	}
	require.Same(t, held, b.Find(scope.Key{Name: "held"}), "a record points to it")
	require.LessOrEqual(t, b.circuits.Len(), scope.DefaultMax)
	notBefore, rejects := b.rejects(epoch)
	require.True(t, rejects, "an open circuit outlives hosts that come and go")
	require.Equal(t, until, notBefore)
	for i := range 20_000 {
		run(strconv.Itoa(i), outcome.Fails)
	}
	require.LessOrEqual(t, b.circuits.Len(), scope.DefaultMax, "also if all of them are open")
}

func TestBreaker_copiesKeys(t *testing.T) {
	url := strings.Repeat("h", 1<<10)
	b := New(Rules{}, epoch)
	key := scope.Key{Name: url[:4]}
	require.NotSame(t, unsafe.StringData(url), unsafe.StringData(b.Circuit(key).key.Name))
}

// §4.15: a thousand failures are one change, and a half-open circuit admits one of a thousand calls.
func TestCircuit_oneChangeForManyFailures(t *testing.T) {
	for range 20 {
		b := record(Rules{Probes: 5})
		var ready, wg sync.WaitGroup
		ready.Add(1000)
		for range 1000 {
			wg.Go(func() {
				permit, _, ok := b.admit(epoch)
				ready.Done()
				ready.Wait()
				if ok {
					b.done(permit, Result{Server: outcome.Fails}, epoch)
				}
			})
		}
		wg.Wait()
		require.Equal(t, "open", b.path())

		until, _ := b.rejects(epoch)
		var in atomic.Int64
		for range 1000 {
			wg.Go(func() {
				if _, notBefore, ok := b.admit(until); ok {
					in.Add(1)
				} else if !notBefore.After(until) {
					t.Error("rejected without NotBefore")
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, in.Load())
		require.Equal(t, "open half-open", b.path())
	}
}

// No result is lost under concurrent use: the circuit opens exactly with the last one.
func TestCircuit_countsAllResults(t *testing.T) {
	for _, failures := range []int{898, 899} {
		for range 5 {
			b := record(Rules{MinRequests: 1000, FailureRatio: 0.9, Static: true})
			var wg sync.WaitGroup
			for i := range 999 {
				wg.Go(func() {
					permit, _, _ := b.admit(epoch)
					if i < failures {
						b.done(permit, Result{Server: outcome.Fails}, epoch)
					} else {
						b.done(permit, Result{Server: outcome.Works}, epoch)
					}
				})
			}
			wg.Wait()
			require.Empty(t, b.path())
			b.run(epoch, "F")
			require.Equal(t, failures == 899, b.path() == "open")
		}
	}
}

// All methods at once, for the race detector. The changes form one path from closed to the
// last state, in any order.
func TestCircuit_stress(t *testing.T) {
	var changes [3][3]atomic.Int64
	var clock atomic.Int64
	now := func() time.Time { return epoch.Add(time.Duration(clock.Load())) }
	b := New(Rules{
		FailureRatio: 0.3, MinRequests: 2, Probes: 2,
		Cooldown: 100 * time.Millisecond, MaxCooldown: 200 * time.Millisecond, Window: time.Second,
	}, epoch)
	note := func(c *Change) {
		if c != nil {
			changes[c.From][c.To].Add(1)
		}
	}
	c := b.Circuit(host)
	rounds := 4000
	if testing.Short() {
		rounds = 1000
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(4, uint64(g)))
			for range rounds {
				clock.Add(r.Int64N(int64(time.Millisecond)))
				at := now()
				retry := r.IntN(8) == 0
				if rejection := c.Rejects(at); rejection != nil && !rejection.NotBefore.After(at) {
					t.Error("would be rejected without a time")
				}
				permit, rejection := c.Admit(at, noRoute, false)
				note(permit.Change)
				if rejection != nil {
					if !rejection.NotBefore.After(at) {
						t.Error("rejected without NotBefore")
					}
					if !retry {
						continue
					}
					permit, _ = c.Admit(at, func() uint64 { return r.Uint64N(4) }, true)
					note(permit.Change)
				}
				if r.IntN(4) == 0 {
					runtime.Gosched()
				}
				c.mu.Lock()
				if c.opening != nil && (c.opening.inFlight < 0 || c.opening.inFlight > 16) {
					t.Errorf("%d probes are in flight", c.opening.inFlight)
				}
				if (c.opening != nil) == (c.closed.Load() != nil) {
					t.Error("both closed and not, or neither")
				}
				c.mu.Unlock()
				result := Result{Server: outcome.Server(r.IntN(4)), Took: time.Duration(r.Int64N(2) * r.Int64N(int64(2*time.Second))), Retry: retry}
				note(permit.Done(result, now()))
				if r.IntN(8) == 0 {
					permit.Cancel(now())
				}
				c.Status(at)
			}
		})
	}
	wg.Wait()
	end := Closed
	if o := c.opening; o != nil && o.halfOpen {
		end = HalfOpen
	} else if o != nil {
		end = Open // also after its cooldown
	}
	for s := range changes {
		in, out := int64(0), int64(0)
		for other := range changes {
			in, out = in+changes[other][s].Load(), out+changes[s][other].Load()
		}
		if State(s) == Closed {
			in++ // where it began
		}
		if State(s) == end {
			out++
		}
		require.Equal(t, in, out, "%v", State(s))
	}
	for _, never := range [][2]State{{Closed, HalfOpen}, {Closed, Closed}, {Open, Open}, {HalfOpen, HalfOpen}} {
		require.Zero(t, changes[never[0]][never[1]].Load(), "%v", never)
	}
	for _, some := range [][2]State{{Closed, Open}, {Open, HalfOpen}, {HalfOpen, Open}, {HalfOpen, Closed}} {
		require.NotZero(t, changes[some[0]][some[1]].Load(), "%v", some)
	}
}

// §4.15: a probe that hangs, panics or exits frees its slot: the next one is sent after a cooldown.
func TestOpening_lostProbesFreeTheirSlots(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func()
	}{
		{"hangs", func() { time.Sleep(time.Hour) }},
		{"panics", func() { defer func() { _ = recover() }(); panic("lost") }},
		{"exits", runtime.Goexit},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			b := &recorded{Breaker: New(Rules{MinRequests: 1, Cooldown: time.Second, MaxCooldown: -1}, time.Now())}
			until := b.opened(t, time.Now())
			time.Sleep(time.Until(until))
			lost := 0
			for range 100 { // ten seconds
				for {
					if _, _, ok := b.admit(time.Now()); !ok {
						break
					}
					lost++
					go tt.lose()
				}
				time.Sleep(100 * time.Millisecond)
			}
			require.GreaterOrEqual(t, lost, 8)
			require.LessOrEqual(t, lost, 10, "one in each cooldown")
			time.Sleep(5 * time.Second / 4)
			require.Equal(t, 3, b.run(time.Now(), "SSS"), "lost ones do not delay those after a success")
			require.Equal(t, Closed, b.Find(host).Status(time.Now()).State)
			time.Sleep(2 * time.Hour) // the hanging ones end
		})
	}
}

func TestCircuit_closedDoesNotAllocate(t *testing.T) {
	b, now := record(Rules{}), epoch
	b.run(now, "SF")
	c := b.Circuit(host)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(10 * time.Millisecond)
		permit, _ := c.Admit(now, noRoute, false)
		permit.Done(Result{Server: outcome.Works}, now)
		c.Rejects(now)
	}))
}

// A Breaker of a package may be used in several testing/synctest bubbles, which all begin in the
// year 2000, and before outside of them. What an earlier one left is over: no call is rejected.
func TestCircuit_clockThatGoesBack(t *testing.T) {
	back := epoch.Add(-26 * 365 * 24 * time.Hour)
	for _, tt := range []struct {
		name string
		took time.Duration
		do   func(t *testing.T, b *recorded, at time.Time)
	}{
		{"open", 0, func(*testing.T, *recorded, time.Time) {}},
		{"half-open, the probe hangs", time.Second / 2, func(t *testing.T, b *recorded, at time.Time) { t.Helper(); b.must(t, at) }},
		{"slow start", time.Second / 2, func(t *testing.T, b *recorded, at time.Time) {
			t.Helper()
			for range DefaultProbes {
				b.done(b.must(t, at), Result{Server: outcome.Works, Took: time.Second / 10}, at)
			}
			require.NotNil(t, b.limit())
			b.done(b.must(t, at), Result{Server: outcome.Fails, Took: time.Second / 2}, at)
			_, rejects := b.rejects(at)
			require.True(t, rejects)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{MinRequests: 1})
			at := b.openedBy(t, epoch.Add(tt.took), tt.took)
			until, rejects := b.rejects(at)
			require.True(t, rejects)
			tt.do(t, b, until)
			for range DefaultProbes {
				b.done(b.must(t, back), Result{Server: outcome.Works}, back)
			}
			require.Equal(t, Closed, b.Find(host).Status(back).State)
			until = b.opened(t, back)
			require.Less(t, until.Sub(back), time.Second, "and it opens as in the first")
		})
	}
}

func noRoute() uint64 { return 0 }
