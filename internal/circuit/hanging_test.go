package circuit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kind is a kind of calls to a server that only fails, each an attempt. A call fails after a time.
type kind struct {
	every, fails time.Duration
	rejected     bool // it fails by a response, not by a timeout
}

// fail makes evenly spaced calls for a time, until one is rejected, and returns the time until then.
func (b *recorded) fail(start time.Time, longest time.Duration, kinds ...kind) (opened time.Duration, rejected bool) {
	const step = 5 * time.Millisecond
	type call struct {
		Permit
		end time.Duration
	}
	inFlight := make([][]call, len(kinds)) // of each kind, in the order of their ends
	for at := time.Duration(0); at < longest; at += step {
		for i, k := range kinds {
			for len(inFlight[i]) > 0 && inFlight[i][0].end <= at {
				b.done(inFlight[i][0].Permit, Result{Outcome: Failure, Took: k.fails, TimeOut: !k.rejected}, start.Add(at))
				inFlight[i] = inFlight[i][1:]
			}
			if at%k.every != 0 {
				continue
			}
			permit, _, ok := b.admit(start.Add(at))
			if !ok {
				return at, true
			}
			inFlight[i] = append(inFlight[i], call{permit, at + k.fails})
		}
	}
	return longest, false
}

// L2: a server that only hangs opens the circuit two seconds after the first timeout, however many
// attempts are in flight: they were sent after those that have failed.
func TestClosed_opensForHangingServer(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		kinds []kind
		want  time.Duration // until calls are rejected
	}{
		{"2 calls a second, timeout of 1 s", []kind{{every: s / 2, fails: s}}, 3 * s},
		{"2 calls a second, timeout of 30 s: twenty failures, as no success is left in the Window", []kind{{every: s / 2, fails: 30 * s}}, 39 * s},
		{"20 calls a second, timeout of 3 s", []kind{{every: s / 20, fails: 3 * s}}, 5 * s},
		{"20 calls a second, timeout of 10 s", []kind{{every: s / 20, fails: 10 * s}}, 12 * s},
		{"200 calls a second, timeout of 5 s", []kind{{every: s / 200, fails: 5 * s}}, 7 * s},
		{"200 calls a second, timeout of 60 s", []kind{{every: s / 200, fails: 60 * s}}, 62 * s},
		{"timeouts of 5 s and 30 s: the longer one", []kind{{every: s / 20, fails: 5 * s}, {every: s / 20, fails: 30 * s}}, 30 * s},
		{"503 at once, or timeout of 10 s", []kind{{every: s / 20, rejected: true}, {every: s / 20, fails: 10 * s}}, 10 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{})
			for at := -10 * s; at < 0; at += tt.kinds[0].every {
				b.done(b.must(t, epoch.Add(at)), Result{Outcome: Success, Took: s / 50}, epoch.Add(at))
			}
			opened, rejected := b.fail(epoch, 4*time.Minute, tt.kinds...)
			require.True(t, rejected, "never")
			require.GreaterOrEqual(t, opened, tt.want)
			require.LessOrEqual(t, opened, tt.want+s)
		})
	}
}

// §4.15: after a failure of at least the first cooldown, there is one probe at a time. It holds its
// slot for the first cooldown, or until ten calls were rejected and Cooldown is over.
func TestOpening_hangingServer(t *testing.T) {
	const timeout = 5 * time.Second
	open := func(t *testing.T, rules Rules, took time.Duration) (*recorded, time.Time) {
		t.Helper()
		rules.MinRequests = 1
		b := record(rules)
		at := b.openedBy(t, epoch, took)
		until, rejects := b.rejects(at, false)
		require.True(t, rejects)
		return b, until
	}
	// nextAfter returns how long calls, one in each interval, are rejected after a probe.
	nextAfter := func(b *recorded, at time.Time, interval time.Duration, retries bool) (wait time.Duration) {
		for wait < time.Minute {
			wait += interval
			if _, _, ok := b.ask(at.Add(wait), retries); ok {
				break
			}
		}
		return wait
	}
	t.Run("the first probe comes after Cooldown", func(t *testing.T) {
		b := record(Rules{MinRequests: 1})
		at := b.openedBy(t, epoch, timeout)
		until, rejects := b.rejects(at, false)
		require.True(t, rejects)
		require.GreaterOrEqual(t, until.Sub(at), DefaultCooldown)
		require.LessOrEqual(t, until.Sub(at), DefaultCooldown*5/4)
	})
	for _, tt := range []struct {
		name     string
		rules    Rules
		took     time.Duration
		interval time.Duration
		min, max time.Duration // until the next probe
	}{
		{"a failure of less than a second: three probes at once", Rules{}, 999 * time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond},
		{"static: three probes at once", Rules{Static: true}, timeout, time.Millisecond, time.Millisecond, time.Millisecond},
		{"a failure of a second: one", Rules{}, time.Second, time.Second / 2, time.Second, 3 * time.Second / 2},
		{"few calls: the first cooldown", Rules{}, timeout, time.Second / 2, time.Second, 3 * time.Second / 2},
		{"Cooldown set, few calls: at least this", Rules{Cooldown: 4 * time.Second}, timeout, time.Second / 2, 4 * time.Second, 11 * time.Second / 2},
		{"20 calls a second: ten are rejected", Rules{}, timeout, time.Second / 20, 11 * time.Second / 20, 11 * time.Second / 20},
		{"1000 calls a second: Cooldown", Rules{}, timeout, time.Millisecond, DefaultCooldown, DefaultCooldown},
		{"Cooldown set, 1000 calls a second", Rules{Cooldown: time.Second}, timeout, time.Millisecond, time.Second, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := open(t, tt.rules, tt.took)
			b.must(t, at)
			wait := nextAfter(b, at, tt.interval, false)
			require.GreaterOrEqual(t, wait, tt.min)
			require.LessOrEqual(t, wait, tt.max)
		})
	}
	t.Run("rejected retries do not count", func(t *testing.T) {
		b, at := open(t, Rules{}, timeout)
		b.must(t, at)
		for i := range 100 {
			_, _, ok := b.ask(at.Add(time.Duration(i)*time.Millisecond), true)
			require.False(t, ok)
		}
		_, rejects := b.rejects(at.Add(DefaultCooldown), false)
		require.True(t, rejects)
	})
	t.Run("a rejection ends with the slot, and is never in the past", func(t *testing.T) {
		b, at := open(t, Rules{}, timeout)
		b.must(t, at)
		for wait := time.Duration(0); wait < time.Second; wait += 90 * time.Millisecond {
			notBefore, rejects := b.rejects(at.Add(wait), false)
			require.True(t, rejects)
			require.True(t, notBefore.After(at.Add(wait)))
			require.LessOrEqual(t, notBefore.Sub(at), 5*time.Second/4)
		}
	})
	t.Run("a probe that hangs holds the slot of the next opening too", func(t *testing.T) {
		b, at := open(t, Rules{Probes: 1}, timeout)
		first := b.must(t, at)
		at = at.Add(timeout)
		b.must(t, at)
		b.done(first, Result{Outcome: Failure, Took: timeout, TimeOut: true}, at)
		require.Equal(t, "open half-open open", b.path())
		wait := nextAfter(b, at, time.Second/2, false)
		require.GreaterOrEqual(t, wait, time.Second, "not the end of the new cooldown")
		require.LessOrEqual(t, wait, 3*time.Second/2)
	})
	t.Run("after a response the next probe is sent at once, and three close", func(t *testing.T) {
		b, at := open(t, Rules{}, timeout)
		b.must(t, at) // it hangs
		at = at.Add(5 * time.Second / 4)
		for range DefaultProbes {
			b.done(b.must(t, at), Result{Outcome: Success, Took: time.Millisecond}, at)
		}
		require.Equal(t, "open half-open closed", b.path())
	})
}

// A client of a server that only hangs: one call a second is held, also after many timeouts.
func TestOpening_hangingServerHoldsFewCalls(t *testing.T) {
	for _, tt := range []struct {
		perSecond int
		timeout   time.Duration
		most      float64 // ratio of the calls that are held
	}{{2, time.Second, 0.4}, {2, 5 * time.Second, 0.4}, {2, 30 * time.Second, 0.4}, {20, time.Second, 0.1}, {20, 30 * time.Second, 0.1}, {200, 10 * time.Second, 0.06}} {
		t.Run(fmt.Sprintf("%d a second, timeout of %v", tt.perSecond, tt.timeout), func(t *testing.T) {
			b := record(Rules{})
			every := time.Second / time.Duration(tt.perSecond)
			for i := range 20 {
				b.done(b.must(t, epoch), Result{Outcome: Success, Took: time.Millisecond}, epoch.Add(time.Duration(i)))
			}
			opened, rejected := b.fail(epoch, time.Hour, kind{every: every, fails: tt.timeout})
			require.True(t, rejected)
			at, calls, held := epoch.Add(opened+2*tt.timeout), 0, 0
			type probe struct {
				Permit
				end time.Time
			}
			var probes []probe
			for range 100 * tt.perSecond {
				for len(probes) > 0 && !probes[0].end.After(at) {
					b.done(probes[0].Permit, Result{Outcome: Failure, Took: tt.timeout, TimeOut: true}, at)
					probes = probes[1:]
				}
				calls++
				if permit, _, ok := b.admit(at); ok {
					held++
					probes = append(probes, probe{permit, at.Add(tt.timeout)})
				}
				at = at.Add(every)
			}
			require.LessOrEqual(t, float64(held)/float64(calls), tt.most)
			require.GreaterOrEqual(t, held, 60, "a probe at least each 1.7 s")
		})
	}
}
