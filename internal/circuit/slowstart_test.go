package circuit

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const limitTypical, limitTimeout = 10 * time.Millisecond, 500 * time.Millisecond

func limitRules() *Rules { r := Rules{}.withDefaults(); return &r }

func limited() *slowStart {
	return newSlowStart(limitRules(), limitTypical, limitTimeout, limitTypical, epoch)
}

// sized is a limit that has grown to so many.
func sized(n float64) *slowStart {
	l := limited()
	l.size = n
	return l
}

func (l *slowStart) ask(now time.Time) (notBefore time.Time, ok bool) {
	if rejection := l.admit(now); rejection != nil {
		return rejection.NotBefore, false
	}
	return time.Time{}, true
}

// fill admits as many as it does, unless it has expired.
func (l *slowStart) fill(now time.Time) (n int) {
	for !l.expired(now) {
		if l.admit(now) != nil {
			break
		}
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
		{"just below twice the typical latency", limitRules(), 300 * time.Millisecond, 600*time.Millisecond - 1, 300 * time.Millisecond, false},
		{"twice the typical latency", limitRules(), 300 * time.Millisecond, 600 * time.Millisecond, 300 * time.Millisecond, true},
		{"just a tenth of a second", limitRules(), time.Millisecond, slowFailure, time.Millisecond, true},
		{"quicker than answers are now", limitRules(), limitTypical, limitTimeout, time.Second, false},
		{"nothing known at all", limitRules(), 0, 0, 0, false},
		{"static", &Rules{Static: true}, limitTypical, limitTimeout, limitTypical, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, newSlowStart(tt.rules, tt.typical, tt.worst, tt.took, epoch) != nil)
		})
	}
}

// While responses are quick, the limit doubles with each round trip.
func TestLimit_opensQuickly(t *testing.T) {
	l, now := limited(), epoch
	for _, want := range []int{1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128} {
		n, sent := l.fill(now), now
		require.Equal(t, want, n)
		now = now.Add(2 * limitTypical)
		for range n {
			l.done(sent, now, Success)
		}
	}
}

// Once responses are not quick, the limit grows by one in a round, and no more once they
// take half as long as the slowest failure.
func TestLimit_growsInTenRounds(t *testing.T) {
	for _, tt := range []struct {
		name string
		took time.Duration
		part int // of the limit that is used: one in so many
		want float64
	}{
		{"twice the typical latency: doubles", 2 * limitTypical, 1, 20 << 10},
		{"more: one in a round", 2*limitTypical + 1, 1, 30},
		{"nearly half of the slowest failure: one in a round", limitTimeout/2 - 1, 1, 30},
		{"half of the slowest failure: no growth", limitTimeout / 2, 1, 20},
		{"half of the limit is used: half of one in a round", 100 * time.Millisecond, 2, 25},
		{"less than half of the limit is used: no growth", 100 * time.Millisecond, 3, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := sized(20), epoch.Add(time.Second)
			for range 10 {
				sent := now
				for range int(math.Ceil(l.size / float64(tt.part))) {
					l.admit(now)
				}
				now = now.Add(tt.took)
				for l.inFlight > 0 {
					l.done(sent, now, Success)
				}
			}
			require.InDelta(t, tt.want, l.size, 1)
		})
	}
}

// Failures that led to a cut do not count for the next.
func TestLimit_cutsOnNewResults(t *testing.T) {
	l, now := sized(80), epoch.Add(time.Second)
	for _, round := range []struct {
		failures int
		want     float64
	}{{80, 61.0 / 4}, {1, 61.0 / 4}} {
		sent := now
		l.fill(sent)
		now = now.Add(limitTimeout)
		for i := range l.inFlight {
			outcome := Success
			if i < round.failures {
				outcome = Failure
			}
			l.done(sent, now, outcome)
		}
		require.InDelta(t, round.want, l.size, 1e-9)
		now = now.Add(time.Second)
	}
}

// Successes of long ago do not hide that half of the requests fail now.
func TestLimit_forgetsOldResults(t *testing.T) {
	const worst, took = 100 * time.Millisecond, 50 * time.Millisecond // too slow for the limit to grow
	l, now, failures := newSlowStart(limitRules(), limitTypical, worst, limitTypical, epoch), epoch, 0
	l.size = 40
	for i := 0; l.size == 40; i++ {
		_, ok := l.ask(now)
		require.True(t, ok)
		sent, outcome := now, Success
		now = now.Add(took)
		if i >= 180 && i%2 == 0 {
			outcome = Failure
			failures++
		}
		l.done(sent, now, outcome)
	}
	require.Less(t, failures, 50)
}

func TestLimit_cut(t *testing.T) {
	// The results come at once, of requests that were sent at once. F is a failure, S a
	// response too slow for the limit to grow.
	many := strings.Repeat
	for _, tt := range []struct {
		name     string
		size     float64
		inFlight int
		results  string
		want     float64
	}{
		{"one cut a round, to a quarter of what is in flight then", 80, 80, many("F", 80), 61.0 / 4},
		{"few in flight: a quarter of them, and not of the limit", 80, 8, many("F", 8), 6.0 / 4},
		{"more in flight than the limit: a quarter of the limit", 8, 80, many("F", 80), 8.0 / 4},
		{"one in flight: a quarter", 8, 1, "F", 1.0 / 4},
		{"below one: not less than an eighth", 0.25, 1, "F", 1.0 / 8},
		{"a quarter fail: cut", 40, 40, many("SSSF", 13), 25.0 / 4},
		{"a sixth fail: no cut", 40, 40, many("SSSSSF", 6), 40},
		{"ten failures of forty in flight: too few results", 40, 40, many("F", 10), 40},
		{"no failure", 40, 40, many("S", 40), 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, sent := sized(float64(tt.inFlight)), epoch.Add(time.Second)
			require.Equal(t, tt.inFlight, l.fill(sent))
			l.size = tt.size
			now := sent.Add(limitTimeout)
			for _, c := range []byte(tt.results) {
				l.done(sent, now, outcomes[c])
			}
			require.InDelta(t, tt.want, l.size, 1e-9)
		})
	}
}

func TestLimitToleratesAFewFailures(t *testing.T) {
	const slow = 100 * time.Millisecond // or a quick answer would be the reason
	l, now := sized(40), epoch
	for i := range 4000 {
		_, ok := l.ask(now)
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

// Below one, the limit is a pause after each request: the first has one of three times its
// latency.
func TestLimit_pauses(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name     string
		baseline time.Duration // 0: unknown
		took     time.Duration
		want     []time.Duration // after each response
	}{
		{"quick: none", limitTypical, 2 * limitTypical, []time.Duration{0, 0, 0}},
		{"not quick: shorter each time", limitTypical, 100 * ms, []time.Duration{270 * ms, 245 * ms, 223 * ms}},
		{"half of the slowest failure: no shorter", limitTypical, limitTimeout / 2, []time.Duration{750 * ms, 750 * ms, 750 * ms}},
		{"baseline unknown, a sixteenth of the slowest failure: none", 0, limitTimeout / 16, []time.Duration{0, 0, 0}},
		{"baseline unknown, more: shorter each time", 0, 32 * ms, []time.Duration{86 * ms, 78 * ms, 71 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := newSlowStart(limitRules(), tt.baseline, limitTimeout, limitTypical, epoch), epoch
			for _, want := range tt.want {
				_, ok := l.ask(now)
				require.True(t, ok)
				now = now.Add(tt.took)
				l.done(now.Add(-tt.took), now, Success)
				end := l.paused
				require.Equal(t, want > 0, now.Before(end))
				if want == 0 {
					continue
				}
				require.InDelta(t, want, end.Sub(now), float64(ms))
				notBefore, ok := l.ask(end.Add(-1))
				require.False(t, ok)
				require.Equal(t, end, notBefore)
				now = end
			}
		})
	}
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
			l := newSlowStart(&rules, limitTypical, limitTimeout, limitTypical, epoch)
			_, ok := l.ask(epoch)
			require.True(t, ok)
			now := epoch.Add(DefaultWindow - time.Second)
			l.done(epoch, now, tt.outcome)
			notBefore, ok := l.ask(now)
			require.False(t, ok)
			require.Equal(t, tt.want, notBefore.Sub(now))
		})
	}
}

// A request that never ends must not keep the others out, nor a response that is late by
// nature, of a long poll say. One more is admitted after the time that failures take, but
// not much more than a second.
func TestLimit_admitsAfterLostRequest(t *testing.T) {
	for _, tt := range []struct {
		name        string
		worst       time.Duration
		failed      time.Duration // later; 0: nothing has
		wait, again time.Duration // again: when the client is asked to come again
	}{
		{"failures of half a second", limitTimeout, 0, limitTimeout, limitTimeout},
		{"failures of two seconds", 2 * time.Second, 0, time.Second, time.Second},
		{"failures of half a minute", 30 * time.Second, 0, 3750 * time.Millisecond, time.Second},
		{"a slower failure since", limitTimeout, 800 * time.Millisecond, 800 * time.Millisecond, 800 * time.Millisecond},
		{"a quicker failure since", limitTimeout, 200 * time.Millisecond, limitTimeout, limitTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := newSlowStart(limitRules(), limitTypical, tt.worst, limitTypical, epoch), epoch
			if tt.failed > 0 {
				l.admit(now)
				l.done(now, now.Add(tt.failed), Failure)
				now = l.paused
			}
			_, ok := l.ask(now)
			require.True(t, ok)
			notBefore, ok := l.ask(now)
			require.False(t, ok)
			require.Equal(t, now.Add(tt.again), notBefore)
			_, ok = l.ask(now.Add(tt.wait - 1))
			require.False(t, ok)
			_, ok = l.ask(now.Add(tt.wait))
			require.True(t, ok)
		})
	}
}

// The limit ends after six Windows without a cut, also where it rejects.
func TestLimit_endsWithoutCuts(t *testing.T) {
	for _, tt := range []struct {
		name        string
		took, every time.Duration // latency, and time between rounds of as many requests as are admitted
		fails       time.Duration // when one of them fails; 0: none does
	}{
		{"responses nearly as slow as failures", limitTimeout * 4 / 5, time.Second / 2, 0},
		{"bursts", 4 * limitTypical, 9 * time.Second, 0},
		{"a failure after twenty seconds: no cut", limitTimeout * 4 / 5, time.Second / 2, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now, failed := limited(), epoch, epoch
			for l.fill(now); !l.expired(now); l.fill(now) {
				for l.inFlight > 0 {
					end, outcome := now.Add(tt.took), Success
					if tt.fails > 0 && failed.Equal(epoch) && now.Sub(epoch) >= tt.fails {
						outcome, failed = Failure, end
					}
					l.done(now, end, outcome)
				}
				now = now.Add(tt.every)
				require.Less(t, now.Sub(epoch), time.Hour)
			}
			require.Equal(t, tt.fails > 0, failed.After(epoch))
			require.Greater(t, now.Sub(epoch), 6*DefaultWindow)
			require.LessOrEqual(t, now.Sub(epoch), 6*DefaultWindow+tt.every)
		})
	}
}

// limitedBreaker is one whose circuit has closed after timeouts, with quick
// answers.
func limitedBreaker(t *testing.T) (b *recorded, at time.Time) {
	b, at = record(Rules{MinRequests: 4}), epoch
	b.done(b.must(t, at), Result{Outcome: Success, Took: limitTypical}, at)
	at = b.openedBy(t, at, limitTimeout)
	at, _ = b.rejects(at, false)
	for range DefaultProbes {
		b.done(b.must(t, at), Result{Outcome: Success, Took: limitTypical}, at)
	}
	require.Equal(t, "open half-open closed", b.path())
	require.NotNil(t, b.limit())
	return b, at
}

func (b *recorded) limit() *slowStart { return b.Find(host).closed.Load().slowStart.Load() }

// The limit ends a Window after the last failure or rejection.
func TestLimit_endsWithoutRejections(t *testing.T) {
	const later = 9 * time.Second
	for _, tt := range []struct {
		name  string
		event func(l *slowStart, now time.Time)
		want  time.Duration
	}{
		{"no requests", func(*slowStart, time.Time) {}, DefaultWindow},
		{"a success", func(l *slowStart, now time.Time) { l.admit(now); l.done(now, now, Success) }, DefaultWindow},
		{"a failure", func(l *slowStart, now time.Time) { l.admit(now); l.done(now, now, Failure) }, later + DefaultWindow},
		{"rejected: too many in flight", func(l *slowStart, now time.Time) { l.admit(now); l.admit(now) }, later + DefaultWindow},
		{"rejected: a pause", func(l *slowStart, now time.Time) {
			l.admit(now)
			l.done(now.Add(-limitTimeout), now, Success)
			l.admit(now)
		}, later + DefaultWindow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := limited()
			tt.event(l, epoch.Add(later))
			require.False(t, l.expired(epoch.Add(tt.want)))
			require.True(t, l.expired(epoch.Add(tt.want+1)))
		})
	}
}

// A circuit that slow start limits pauses after a slow response.
func TestBreaker_slowStartPauses(t *testing.T) {
	b, at := limitedBreaker(t)
	ticket := b.must(t, at)
	at = at.Add(100 * time.Millisecond)
	b.done(ticket, Result{Outcome: Success, Took: 100 * time.Millisecond}, at)
	notBefore, refuses := b.rejects(at, false)
	require.True(t, refuses)
	require.InDelta(t, 270*time.Millisecond, notBefore.Sub(at), float64(time.Millisecond))
}

// The latency during slow start is no baseline: it contains the queue.
func TestBreaker_baselineIsNotFromSlowStart(t *testing.T) {
	b, at := limitedBreaker(t)
	baseline := &b.Find(host).baseline
	for limited := true; limited; limited = b.limit() != nil {
		require.Equal(t, limitTypical, baseline.latency())
		b.done(b.must(t, at), Result{Outcome: Success, Took: 2 * limitTypical}, at.Add(2*limitTypical))
		at = at.Add(time.Second)
	}
	for range 100 { // no limit anymore
		b.must(t, at)
	}
	for range 100 {
		b.done(b.must(t, at), Result{Outcome: Success, Took: 2 * limitTypical}, at)
		at = at.Add(time.Second)
	}
	require.InDelta(t, 2*limitTypical, baseline.latency(), float64(limitTypical)/5)
}

// A ticket that is given back twice, or told of after it was given back, counts
// once: the limit never has less than nothing in flight.
func TestLimitCountsATicketOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(Permit, time.Time)
	}{
		{"cancelled twice", func(p Permit, at time.Time) { p.Cancel(at); p.Cancel(at) }},
		{"told twice", func(p Permit, at time.Time) { p.Done(Result{}, at); p.Done(Result{}, at) }},
		{"told, and cancelled", func(p Permit, at time.Time) { p.Done(Result{Outcome: Responded}, at); p.Cancel(at) }},
		{"cancelled, and told", func(p Permit, at time.Time) { p.Cancel(at); p.Done(Result{Outcome: Responded}, at) }},
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
		require.Nil(t, b.limit())
		lost.Cancel(at)
		during.Cancel(at)
		require.GreaterOrEqual(t, l.inFlight, 0)
	})
}

func TestLimitStress(t *testing.T) {
	b, _ := limitedBreaker(t)
	c, l := b.Circuit(host), b.limit()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 2000 {
				sent := epoch.Add(time.Duration(i) * time.Millisecond)
				permit, rejection := c.Admit(sent, false)
				if rejection != nil {
					if !rejection.NotBefore.After(sent) {
						t.Error("rejected without a time")
					}
					c.Rejects(sent, false)
					continue
				}
				if (i+g)%5 == 0 {
					permit.Cancel(sent)
					permit.Cancel(sent)
					continue
				}
				permit.Done(Result{Outcome: Responded, Took: limitTypical}, sent.Add(limitTypical))
			}
		})
	}
	wg.Wait()
	require.Zero(t, l.inFlight)
}
