package resilienthttp

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const valveTypical, valveTimeout = 10 * time.Millisecond, 500 * time.Millisecond

var valveRules = &breakerRules{adaptive: true, window: 10 * time.Second, maxCooldown: 30 * time.Second}

func valveAt(now time.Time) *valve {
	return newValve(valveRules, valveTypical, valveTimeout, valveTypical, now)
}

// valveFill lets in as many as may enter, unless all may.
func valveFill(v *valve, now time.Time) (n int) {
	for _, ok := v.enter(now); ok && v.works(); _, ok = v.enter(now) {
		n++
	}
	return n
}

func TestValveIsForSlowFailures(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		rules                *breakerRules
		typical, worst, took time.Duration
		want                 bool
	}{
		{"timeouts", valveRules, valveTypical, valveTimeout, valveTypical, true},
		{"nothing known of before", valveRules, 0, valveTimeout, valveTypical, true},
		{"it failed at once", valveRules, valveTypical, 0, valveTypical, false},
		{"slower than answers, and yet quick", valveRules, time.Millisecond, 99 * time.Millisecond, time.Millisecond, false},
		{"as slow as answers always were", valveRules, 300 * time.Millisecond, valveTimeout, 300 * time.Millisecond, false},
		{"quicker than answers are now", valveRules, valveTypical, valveTimeout, time.Second, false},
		{"nothing known at all", valveRules, 0, 0, 0, false},
		{"cooldowns of one's own", &breakerRules{window: 10 * time.Second}, valveTypical, valveTimeout, valveTypical, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, newValve(tt.rules, tt.typical, tt.worst, tt.took, breakerEpoch).works())
		})
	}
}

// Where answers come as fast as ever, everybody is in after a few rounds.
func TestValveOpensQuickly(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	for range 12 {
		n := valveFill(v, now)
		sent := now
		now = now.Add(valveTypical)
		for range n {
			v.left(sent, now, outcomeSuccess)
		}
	}
	require.Greater(t, valveFill(v, now), 100)
	require.Zero(t, v.paused, "quick answers call for no pause")
}

// Where they come slowly, the limit grows by one in a round.
func TestValveGrowsSlowlyUnderLoad(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	v.limit = 20
	const slow = 100 * time.Millisecond
	for range 10 {
		n, sent := valveFill(v, now), now
		now = now.Add(slow)
		for range n {
			v.left(sent, now, outcomeSuccess)
		}
	}
	require.InDelta(t, 30, v.limit, 1)
}

func TestValveCutsOnceForEachRound(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch.Add(time.Second)
	v.limit = 80
	n, sent := valveFill(v, now), now
	require.Equal(t, 80, n)
	now = now.Add(valveTimeout)
	for range n {
		v.left(sent, now, outcomeFailure)
	}
	require.InDelta(t, 20, v.limit, 10, "the others were sent under the old limit")
	require.Zero(t, v.flying)
}

func TestValveToleratesAFewFailures(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	v.limit = 40
	for i := range 4000 {
		_, ok := v.enter(now)
		require.True(t, ok)
		outcome := outcomeSuccess
		if i%10 == 9 {
			outcome = outcomeFailure
		}
		now = now.Add(valveTypical)
		v.left(now.Add(-valveTypical), now, outcome)
	}
	require.GreaterOrEqual(t, v.limit, 40.0)
}

// Below one, the limit is a pause: a quarter is a request and three times as
// long as it took.
func TestValvePauses(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	_, ok := v.enter(now)
	require.True(t, ok)
	const took = 200 * time.Millisecond
	now = now.Add(took)
	v.left(now.Add(-took), now, outcomeSuccess)
	notBefore, ok := v.enter(now)
	require.False(t, ok)
	require.InDelta(t, 3*took, notBefore.Sub(now), float64(took))
	at, refuses := v.wouldRefuse(now)
	require.True(t, refuses)
	require.Equal(t, notBefore, at)
	_, refuses = v.wouldRefuse(notBefore)
	require.False(t, refuses)
	_, ok = v.enter(notBefore)
	require.True(t, ok)
}

// However long a failure has taken, nobody is shut out for longer than by an
// open circuit.
func TestValvePauseIsBounded(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	_, ok := v.enter(now)
	require.True(t, ok)
	now = now.Add(time.Hour)
	v.left(breakerEpoch, now, outcomeFailure)
	notBefore, ok := v.enter(now)
	require.False(t, ok)
	require.Equal(t, 30*time.Second, notBefore.Sub(now))
}

// A request that never ends must not shut the others out.
func TestValveDoesNotWaitForTheLost(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	_, ok := v.enter(now)
	require.True(t, ok)
	notBefore, ok := v.enter(now)
	require.False(t, ok)
	require.Equal(t, now.Add(valveTimeout), notBefore)
	_, ok = v.enter(notBefore)
	require.True(t, ok)
}

// However slow the server has become for good, it is found out in time.
func TestValveIsNotForEver(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	const slow = 400 * time.Millisecond // near to what fails
	for now.Sub(breakerEpoch) < 3*time.Minute {
		n, sent := valveFill(v, now), now
		now = now.Add(slow)
		for range n {
			v.left(sent, now, outcomeSuccess)
		}
		if n == 0 {
			now = now.Add(time.Second)
		}
		if v.limit > 200 || !v.works() {
			break
		}
	}
	require.True(t, v.limit > 200 || !v.works())
	t.Logf("after %v", now.Sub(breakerEpoch))
}

// It is over once it had nothing to do for a Window, with requests or without.
func TestValveRests(t *testing.T) {
	for _, tt := range []struct {
		name     string
		requests int
		every    time.Duration
	}{
		{"requests that pass", 110, 100 * time.Millisecond},
		{"no requests", 1, 11 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := &Breaker{MinRequests: 4}, breakerEpoch
			// Timeouts open the circuit; quick answers close it.
			for range 4 {
				p, _, ok := b.admit("h", at, nil)
				require.True(t, ok)
				p.done(result{outcome: outcomeFailure, took: valveTimeout}, at.Add(valveTimeout), nil)
			}
			at, _ = b.wouldRefuse("h", at)
			for range 3 {
				p, _, ok := b.admit("h", at, nil)
				require.True(t, ok)
				p.done(result{outcome: outcomeSuccess, took: valveTypical}, at.Add(valveTypical), nil)
			}
			g := b.peek("h")
			require.Equal(t, StateClosed, g.state)
			require.True(t, g.valve.works())
			for range tt.requests {
				at = at.Add(tt.every)
				p, _, ok := b.admit("h", at, nil)
				require.True(t, ok)
				p.done(result{outcome: outcomeSuccess, took: valveTypical}, at.Add(valveTypical), nil)
			}
			require.False(t, g.valve.works())
			for range 100 {
				_, _, ok := b.admit("h", at, nil)
				require.True(t, ok)
			}
		})
	}
}

func TestValveStress(t *testing.T) {
	v := valveAt(time.Now())
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 2000 {
				sent := time.Now()
				if _, ok := v.enter(sent); !ok {
					v.wouldRefuse(sent)
					continue
				}
				outcome := outcomeSuccess
				if (i+g)%5 == 0 {
					outcome = outcomeFailure
				}
				v.left(sent, time.Now(), outcome)
			}
		})
	}
	wg.Wait()
	require.Zero(t, v.flying)
}

// Bursts that are further apart than their answers take leave one place in most of
// the time, and learn little. The server was whole all that time.
func TestValveEndsForBursts(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	const slow = 4 * valveTypical // not as quick as to double the limit
	for now.Sub(breakerEpoch) < 50*time.Second {
		now = now.Add(9 * time.Second)
		let := valveFill(v, now)
		if !v.works() {
			break
		}
		for range let {
			v.left(now, now.Add(slow), outcomeSuccess)
		}
	}
	require.False(t, v.works(), "after four Windows in which nothing has failed")
	require.GreaterOrEqual(t, now.Sub(breakerEpoch), 4*valveRules.window)
}

// Who is busy finds out by himself what there is room for: not to be let in with
// all others at once is what the valve is for.
func TestValveGoesOnWhileInUse(t *testing.T) {
	v, now := valveAt(breakerEpoch), breakerEpoch
	_, ok := v.enter(now)
	require.True(t, ok)
	for range 60 {
		now = now.Add(time.Second)
		_, ok := v.enter(now) // that one may be lost
		require.True(t, ok)
		_, ok = v.enter(now)
		require.False(t, ok)
		v.left(now, now, outcomeNone)
	}
	require.True(t, v.works())
}

// After timeouts of half a minute, an answer that takes as long by nature must not
// keep everybody out for all that time, and twice as long again.
func TestValveBesideLongPolls(t *testing.T) {
	now := breakerEpoch
	v := newValve(valveRules, valveTypical, 30*time.Second, valveTypical, now)
	enter := func(want bool) time.Time {
		t.Helper()
		notBefore, ok := v.enter(now)
		require.Equal(t, want, ok)
		return notBefore
	}
	enter(true) // a long poll
	sent := now
	require.Equal(t, now.Add(probeAnswer), enter(false), "most answers come at once")
	now = now.Add(30 * time.Second / 8)
	enter(true)
	enter(false)
	v.left(now, now.Add(valveTypical), outcomeSuccess)
	now = sent.Add(12 * time.Second)
	v.left(sent, now, outcomeSuccess)
	require.Equal(t, now.Add(valveRules.window/2), enter(false), "a pause for the long poll")
}
