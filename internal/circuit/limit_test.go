package circuit

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const limitTypical, limitTimeout = 10 * time.Millisecond, 500 * time.Millisecond

func limitRules() *Rules { r := Rules{}.withDefaults(); return &r }

func limited() *limit {
	return newLimit(limitRules(), limitTypical, limitTimeout, limitTypical, epoch)
}

// sized is a limit that has grown to so many.
func sized(n float64) *limit {
	l := limited()
	l.size = n
	return l
}

// fill admits as many as it does, unless all may come.
func (l *limit) fill(now time.Time) (n int) {
	for _, ok := l.admit(now); ok && l.works(); _, ok = l.admit(now) {
		n++
	}
	return n
}

func TestLimitIsForSlowFailures(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		rules                *Rules
		typical, worst, took time.Duration
		want                 bool
	}{
		{"timeouts", limitRules(), limitTypical, limitTimeout, limitTypical, true},
		{"nothing known of before", limitRules(), 0, limitTimeout, limitTypical, true},
		{"it failed at once", limitRules(), limitTypical, 0, limitTypical, false},
		{"slower than answers, and yet quick", limitRules(), time.Millisecond, slowFailure - 1, time.Millisecond, false},
		{"as slow as answers always were", limitRules(), 300 * time.Millisecond, limitTimeout, 300 * time.Millisecond, false},
		{"quicker than answers are now", limitRules(), limitTypical, limitTimeout, time.Second, false},
		{"nothing known at all", limitRules(), 0, 0, 0, false},
		{"static", &Rules{Static: true}, limitTypical, limitTimeout, limitTypical, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, newLimit(tt.rules, tt.typical, tt.worst, tt.took, epoch).works())
		})
	}
}

// Where answers come as fast as ever, everybody is in after a few rounds.
func TestLimitOpensQuickly(t *testing.T) {
	l, now := limited(), epoch
	for range 12 {
		n, sent := l.fill(now), now
		now = now.Add(limitTypical)
		for range n {
			l.done(sent, now, Success)
		}
	}
	require.Greater(t, l.fill(now), 100)
	require.Zero(t, l.paused, "quick answers call for no pause")
}

// Where they come slowly, the limit grows by one in a round.
func TestLimitGrowsSlowlyUnderLoad(t *testing.T) {
	l, now := sized(20), epoch
	const slow = 100 * time.Millisecond
	for range 10 {
		n, sent := l.fill(now), now
		now = now.Add(slow)
		for range n {
			l.done(sent, now, Success)
		}
	}
	require.InDelta(t, 30, l.size, 1)
}

func TestLimitCutsOnceForEachRound(t *testing.T) {
	l, now := sized(80), epoch.Add(time.Second)
	n, sent := l.fill(now), now
	require.Equal(t, 80, n)
	now = now.Add(limitTimeout)
	for range n {
		l.done(sent, now, Failure)
	}
	require.InDelta(t, limitCut*80, l.size, 10, "the others were sent under the old limit")
	require.Zero(t, l.inFlight)
}

// One failure tells little where many are in flight.
func TestLimitWaitsForEnoughResults(t *testing.T) {
	l, now := sized(2*limitEnough), epoch.Add(time.Second)
	sent := now
	require.Equal(t, 2*limitEnough, l.fill(now))
	now = now.Add(limitTimeout)
	for range limitEnough / 2 {
		l.done(sent, now, Failure)
	}
	require.InDelta(t, 2*limitEnough, l.size, 0)
}

func TestLimitToleratesAFewFailures(t *testing.T) {
	const slow = 100 * time.Millisecond // or a quick answer would be the reason
	l, now := sized(40), epoch
	for i := range 4000 {
		_, ok := l.admit(now)
		require.True(t, ok)
		outcome := Success
		if i%10 == 9 {
			outcome = Failure
		}
		now = now.Add(slow)
		l.done(now.Add(-slow), now, outcome)
	}
	require.GreaterOrEqual(t, l.size, 40.0)
}

// Below one, the limit is a pause: a quarter is a request and three times as
// long as it took.
func TestLimitPauses(t *testing.T) {
	l, now := limited(), epoch
	_, ok := l.admit(now)
	require.True(t, ok)
	const took = 200 * time.Millisecond
	now = now.Add(took)
	l.done(now.Add(-took), now, Success)
	notBefore, ok := l.admit(now)
	require.False(t, ok)
	require.InDelta(t, 3*took, notBefore.Sub(now), float64(took))
	at, refuses := l.refuses(now)
	require.True(t, refuses)
	require.Equal(t, notBefore, at)
	_, refuses = l.refuses(notBefore)
	require.False(t, refuses)
	_, ok = l.admit(notBefore)
	require.True(t, ok)
}

// However long a failure has taken, nobody is shut out for longer than by an
// open circuit.
func TestLimitPauseIsBounded(t *testing.T) {
	const longer = 2 * DefaultWindow
	for _, tt := range []struct {
		name    string
		most    time.Duration // MaxCooldown
		outcome Outcome
		want    time.Duration
	}{
		{"a failure", 0, Failure, DefaultMaxCooldown},
		{"a slow answer", 0, Success, min(DefaultMaxCooldown, DefaultWindow/2)},
		{"a failure, with long cooldowns", longer, Failure, longer},
		{"a slow answer, with long cooldowns", longer, Success, DefaultWindow / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := Rules{MaxCooldown: tt.most}.withDefaults()
			l := newLimit(&rules, limitTypical, limitTimeout, limitTypical, epoch)
			_, ok := l.admit(epoch)
			require.True(t, ok)
			now := epoch.Add(DefaultWindow - time.Second)
			l.done(epoch, now, tt.outcome)
			notBefore, ok := l.admit(now)
			require.False(t, ok)
			require.Equal(t, tt.want, notBefore.Sub(now))
		})
	}
}

// A request that never ends must not shut the others out.
func TestLimitDoesNotWaitForTheLost(t *testing.T) {
	l, now := limited(), epoch
	_, ok := l.admit(now)
	require.True(t, ok)
	notBefore, ok := l.admit(now)
	require.False(t, ok)
	require.Equal(t, now.Add(limitTimeout), notBefore)
	_, ok = l.admit(notBefore)
	require.True(t, ok)
}

// A server that stays slow, but does not fail, is limited for four Windows.
func TestLimitIsNotForEver(t *testing.T) {
	l, now := limited(), epoch
	const slow = 400 * time.Millisecond // near to what fails
	for now.Sub(epoch) < 3*time.Minute && l.size <= 200 && l.works() {
		n, sent := l.fill(now), now
		now = now.Add(slow)
		for range n {
			l.done(sent, now, Success)
		}
		if n == 0 {
			now = now.Add(time.Second)
		}
	}
	require.False(t, l.works(), "after four Windows in which nothing has failed")
}

// limitedBreaker is one whose circuit has closed after timeouts, with quick
// answers.
func limitedBreaker(t *testing.T) (b *recorded, at time.Time) {
	b, at = record(Rules{MinRequests: 4}), epoch
	b.done(b.must(t, at), Result{Outcome: Success, Took: limitTypical}, at)
	at = b.openedBy(t, at, limitTimeout)
	at, _ = b.Refuses(host, at, false)
	for range DefaultProbes {
		b.done(b.must(t, at), Result{Outcome: Success, Took: limitTypical}, at)
	}
	require.Equal(t, "open half-open closed", b.path())
	require.True(t, b.limit().works())
	return b, at
}

func (b *recorded) limit() *limit { return b.peek(host).state.(*closed).limit }

// It is over once it had nothing to do for a Window, with requests or without.
func TestLimitRests(t *testing.T) {
	for _, tt := range []struct {
		name     string
		requests int
		every    time.Duration
	}{
		{"requests that pass", 110, 100 * time.Millisecond},
		{"no requests", 1, 11 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := limitedBreaker(t)
			for range tt.requests {
				at = at.Add(tt.every)
				b.done(b.must(t, at), Result{Outcome: Success, Took: limitTypical}, at.Add(limitTypical))
			}
			require.False(t, b.limit().works())
			for range 100 {
				b.must(t, at)
			}
		})
	}
}

// A ticket that is given back twice, or told of after it was given back, counts
// once: the limit never has less than nothing in flight.
func TestLimitCountsATicketOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(Ticket, time.Time)
	}{
		{"cancelled twice", func(p Ticket, at time.Time) { p.Cancel(at); p.Cancel(at) }},
		{"told twice", func(p Ticket, at time.Time) { p.Done(Result{}, at); p.Done(Result{}, at) }},
		{"told, and cancelled", func(p Ticket, at time.Time) { p.Done(Result{Outcome: Alive}, at); p.Cancel(at) }},
		{"cancelled, and told", func(p Ticket, at time.Time) { p.Cancel(at); p.Done(Result{Outcome: Alive}, at) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := limitedBreaker(t)
			l := b.limit()
			l.size = 3
			other := b.must(t, at)
			for range 5 {
				tt.end(b.must(t, at), at)
				require.Equal(t, 1, l.inFlight)
			}
			other.Cancel(at)
			require.Zero(t, l.inFlight)
		})
	}
	t.Run("lost ones that come back after the limit is over", func(t *testing.T) {
		b, at := limitedBreaker(t)
		l := b.limit()
		lost := b.must(t, at)
		at = at.Add(time.Hour)
		during := b.must(t, at)
		require.False(t, l.works())
		lost.Cancel(at)
		during.Cancel(at)
		require.GreaterOrEqual(t, l.inFlight, 0)
	})
}

func TestLimitStress(t *testing.T) {
	b, _ := limitedBreaker(t)
	l := b.limit()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 2000 {
				sent := epoch.Add(time.Duration(i) * time.Millisecond)
				ticket, notBefore, _ := b.Admit(host, sent, false)
				if !notBefore.IsZero() {
					if !notBefore.After(sent) {
						t.Error("refused without a time")
					}
					b.Refuses(host, sent, false)
					continue
				}
				if (i+g)%5 == 0 {
					ticket.Cancel(sent)
					ticket.Cancel(sent)
					continue
				}
				ticket.Done(Result{Outcome: Alive, Took: limitTypical}, sent.Add(limitTypical))
			}
		})
	}
	wg.Wait()
	require.Zero(t, l.inFlight)
}

// Bursts that are further apart than their answers take leave one place in most of
// the time, and learn little. The server was whole all that time.
func TestLimitEndsForBursts(t *testing.T) {
	l, now := limited(), epoch
	const slow = 4 * limitTypical // not as quick as to double the limit
	for now.Sub(epoch) < 50*time.Second {
		now = now.Add(9 * time.Second)
		let := l.fill(now)
		if !l.works() {
			break
		}
		for range let {
			l.done(now, now.Add(slow), Success)
		}
	}
	require.False(t, l.works(), "after four Windows in which nothing has failed")
	require.GreaterOrEqual(t, now.Sub(epoch), limitCalm*DefaultWindow)
}

// After timeouts of half a minute, an answer that takes as long by nature must not
// keep everybody out for all that time, and twice as long again.
func TestLimitBesideLongPolls(t *testing.T) {
	now := epoch
	l := newLimit(limitRules(), limitTypical, 30*time.Second, limitTypical, now)
	admit := func(want bool) time.Time {
		t.Helper()
		notBefore, ok := l.admit(now)
		require.Equal(t, want, ok)
		return notBefore
	}
	admit(true) // a long poll
	sent := now
	require.Equal(t, now.Add(probeAnswer), admit(false), "most answers come at once")
	now = now.Add(l.patience())
	admit(true)
	admit(false)
	l.done(now, now.Add(limitTypical), Success)
	now = sent.Add(12 * time.Second)
	l.done(sent, now, Success)
	require.Equal(t, now.Add(min(DefaultMaxCooldown, DefaultWindow/2)), admit(false), "a pause for the long poll")
}
