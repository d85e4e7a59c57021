package circuit

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

const usualLatency, outageLatency = 10 * time.Millisecond, 500 * time.Millisecond

func defaultRules() *Rules { r := Rules{}.withDefaults(); return &r }

func newLimit() *slowStart {
	return newSlowStart(defaultRules(), usualLatency, &outage{usual: time.Second, slow: true}, outageLatency, usualLatency, epoch)
}

// sized returns a slowStart with a limit.
func sized(n float64) *slowStart {
	l := newLimit()
	l.size = n
	return l
}

func (l *slowStart) ask(now time.Time) (notBefore time.Time, ok bool) {
	if rejection := l.admit(now); rejection != nil {
		return rejection.NotBefore, false
	}
	return time.Time{}, true
}

// fill asks until a request is rejected, and returns how many were admitted.
func (l *slowStart) fill(now time.Time) (n int) {
	for !l.expired(now) {
		if l.admit(now) != nil {
			break
		}
		n++
	}
	return n
}

func TestSlowStart_begins(t *testing.T) {
	for _, tt := range []struct {
		name        string
		rules       *Rules
		worst, took time.Duration
		want        bool
	}{
		{"slow failures", defaultRules(), outageLatency, usualLatency, true},
		{"faster than responses are now", defaultRules(), outageLatency, time.Second, false},
		{"static", &Rules{Static: true}, outageLatency, usualLatency, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, newSlowStart(tt.rules, usualLatency, &outage{usual: time.Second}, tt.worst, tt.took, epoch) != nil)
		})
	}
}

// L2: after a quick response the limit is a quarter of what was in flight before the outage, because a server that takes
// long for each response would need many of them to grow it.
func TestSlowStart_initialLimit(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name                  string
		baseline, usual, took time.Duration
		want                  float64
		enough                int // MinRequests; 0: the default
	}{
		{"27 in flight before", 740 * ms, 27 * ms, 740 * ms, 6.85, 0},
		{"less than one", 10 * ms, time.Second, 10 * ms, .25, 0},
		{"a response that is not quick", 740 * ms, 27 * ms, 1900 * ms, .25, 0},
		{"a latency that is not known: that of the probe", 0, 27 * ms, 740 * ms, 6.85, 0},
		{"many: at most 20", 10 * time.Second, ms, 10 * time.Second, 20, 0},
		{"many: at most MinRequests", 10 * time.Second, ms, 10 * time.Second, 8, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := Rules{MinRequests: tt.enough}.withDefaults()
			l := newSlowStart(&rules, tt.baseline, &outage{usual: tt.usual, slow: true}, 30*time.Second, tt.took, epoch)
			require.InDelta(t, tt.want, l.size, .01)
		})
	}
}

// Law L2: while more requests are answered quickly than fail slowly, the failures are no queue.
func TestSlowStart_quickResponsesBeside(t *testing.T) {
	for _, tt := range []struct {
		name       string
		took       time.Duration // of the responses
		every      int           // how many responses there are for each slow failure, and it
		grows, cut bool
	}{
		{"a quarter fails slowly, the others are quick", usualLatency, 4, true, false},
		{"a third fails slowly, the others are quick", usualLatency, 3, true, false},
		{"all fail slowly", usualLatency, 1, false, true},
		{"a quarter fails slowly, the others are slow", outageLatency / 4, 4, false, true},
		{"a tenth fails slowly, the others are slow", outageLatency / 4, 10, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := newLimit(), epoch
			cut := l.cut
			for i := range 100 {
				now = now.Add(10 * time.Second)
				require.Nil(t, l.admit(now))
				sent, server := now, outcome.Works
				now = now.Add(tt.took)
				if i%tt.every == tt.every-1 {
					server, now = outcome.Fails, sent.Add(outageLatency)
				}
				endFirst(l, sent, now, server)
			}
			require.Equal(t, tt.cut, !l.cut.Equal(cut))
			require.Equal(t, tt.grows, l.size >= 1)
		})
	}
}

// While responses are quick, the limit doubles with each round trip.
func TestSlowStart_doublesEachRoundTrip(t *testing.T) {
	l, now := newLimit(), epoch
	for _, want := range []int{1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128} {
		n, sent := l.fill(now), now
		require.Equal(t, want, n)
		now = now.Add(2 * usualLatency)
		for range n {
			endFirst(l, sent, now, outcome.Works)
		}
	}
}

// Once responses are not quick, the limit grows by one in a round. It stops growing once they
// take half as long as the slowest failure.
func TestSlowStart_growsInTenRounds(t *testing.T) {
	for _, tt := range []struct {
		name string
		took time.Duration
		part int // the used part of the limit is 1/part
		want float64
	}{
		{"a sixteenth of the slowest failure: doubles", outageLatency / 16, 1, 20 << 10},
		{"more: one in a round", outageLatency/16 + 1, 1, 30},
		{"nearly half of the slowest failure: one in a round", outageLatency/2 - 1, 1, 30},
		{"half of the slowest failure: no growth", outageLatency / 2, 1, 20},
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
				for len(l.inFlight) > 0 {
					endFirst(l, sent, now, outcome.Works)
				}
			}
			require.InDelta(t, tt.want, l.size, 1)
		})
	}
}

// L2: a server with quick failures has no queue. So the limit grows although half of the requests fail.
func TestSlowStart_quickFailures(t *testing.T) {
	for _, tt := range []struct {
		name string
		took time.Duration // of a failure
		grow bool
	}{
		{"within a sixteenth of the slowest failure: quick", outageLatency / 16, true},
		{"slower: a queue", outageLatency/16 + 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := newLimit(), epoch
			for i := range 200 {
				require.Nil(t, l.admit(now))
				sent, server := now, outcome.Works
				now = now.Add(usualLatency)
				if i%2 == 0 {
					now, server = sent.Add(tt.took), outcome.Fails
				}
				endFirst(l, sent, now, server)
				if l.paused.After(now) {
					now = l.paused
				}
			}
			require.Equal(t, tt.grow, l.size >= 1)
		})
	}
}

// L2: a slow failure that opens the circuit after many quick ones begins neither a long cooldown nor slow start.
func TestCircuit_oneTimeoutAmongQuickFailures(t *testing.T) {
	for _, tt := range []struct {
		name        string
		quick, slow int
		cooldown    time.Duration
		limited     bool
	}{
		{"quick failures and a timeout: the usual time between two results", 18, 1, 200 * time.Millisecond, false},
		{"timeouts and a quick failure", 1, 18, 600 * time.Millisecond, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := record(Rules{FailureRatio: 0.9}), epoch
			b.done(b.must(t, at), Result{Server: outcome.Works, Took: usualLatency}, at)
			b.Find(host).outage.usual = 200 * time.Millisecond
			var permits []Permit
			for range tt.quick + tt.slow {
				permits = append(permits, b.must(t, at))
			}
			at = at.Add(300 * time.Millisecond)
			for i, p := range permits {
				took := time.Duration(0)
				if i >= tt.quick {
					took = 300 * time.Millisecond
				}
				b.done(p, Result{Server: outcome.Fails, Took: took, TimeOut: took > 0}, at)
			}
			require.Equal(t, "open", b.path())
			until, _ := b.rejects(at)
			require.InDelta(t, tt.cooldown+tt.cooldown/8, until.Sub(at), float64(tt.cooldown/8+1))
			for range DefaultProbes {
				b.done(b.must(t, until), Result{Server: outcome.Works, Took: usualLatency}, until)
				until = until.Add(time.Second)
			}
			require.Equal(t, tt.limited, b.limit() != nil)
		})
	}
}

func TestSlowStart_cut(t *testing.T) {
	// The results come at once, of requests that were sent at once. F is a failure, S a
	// response too slow for the limit to grow.
	many := strings.Repeat
	for _, tt := range []struct {
		name     string
		size     float64
		inFlight int
		results  string
		want     float64
		before   float64 // ratio of failures
		enough   int     // MinRequests; 0: the default
	}{
		{"one cut a round, to a quarter of what is in flight then", 80, 80, many("F", 80), 61.0 / 4, 0, 0},
		{"few in flight: a quarter of them, and not of the limit", 80, 8, many("F", 8), 6.0 / 4, 0, 0},
		{"more in flight than the limit: a quarter of the limit", 8, 80, many("F", 80), 8.0 / 4, 0, 0},
		{"one in flight: a quarter", 8, 1, "F", 1.0 / 4, 0, 0},
		{"below one: not less than an eighth", 0.25, 1, "F", 1.0 / 8, 0, 0},
		{"a quarter fail: cut", 40, 40, many("SSSF", 13), 25.0 / 4, 0, 0},
		{"a sixth fail: no cut", 40, 40, many("SSSSSF", 6), 40, 0, 0},
		{"ten failures of forty in flight: too few results", 40, 40, many("F", 10), 40, 0, 0},
		{"ten failures of forty in flight: MinRequests is ten", 40, 40, many("F", 10), 31.0 / 4, 0, 10},
		{"no failure", 40, 40, many("S", 40), 40, 0, 0},
		{"half fail, a tenth before: cut", 40, 40, many("SF", 13), 27.0 / 4, .1, 0},
		{"half fail, a third before: by chance", 40, 40, many("SF", 13), 40, .33, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, sent, rules := &outage{usual: time.Second, ratio: tt.before, slow: true}, epoch.Add(time.Second), Rules{MinRequests: tt.enough}.withDefaults()
			l := newSlowStart(&rules, usualLatency, before, outageLatency, usualLatency, epoch)
			l.size = float64(tt.inFlight)
			require.Equal(t, tt.inFlight, l.fill(sent))
			l.size = tt.size
			now := sent.Add(outageLatency)
			for _, c := range []byte(tt.results) {
				endFirst(l, sent, now, outcomes[c])
			}
			require.InDelta(t, tt.want, l.size, 1e-9)
		})
	}
}

// Below one, the limit is a pause after each request: the first has one of three times its
// latency.
func TestSlowStart_pauses(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name     string
		baseline time.Duration // 0: unknown
		took     time.Duration
		want     []time.Duration // after each response
	}{
		{"quick: none", usualLatency, 2 * usualLatency, []time.Duration{0, 0, 0}},
		{"not quick: shorter each time", usualLatency, 100 * ms, []time.Duration{270 * ms, 245 * ms, 223 * ms}},
		{"half of the slowest failure: no shorter", usualLatency, outageLatency / 2, []time.Duration{750 * ms, 750 * ms, 750 * ms}},
		{"baseline unknown, as long as the probe: none", 0, usualLatency, []time.Duration{0, 0, 0}},
		{"baseline unknown, more: shorter each time", 0, 100 * ms, []time.Duration{270 * ms, 245 * ms, 223 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := newSlowStart(defaultRules(), tt.baseline, &outage{usual: time.Second, slow: true}, outageLatency, usualLatency, epoch), epoch
			for _, want := range tt.want {
				_, ok := l.ask(now)
				require.True(t, ok)
				now = now.Add(tt.took)
				endFirst(l, now.Add(-tt.took), now, outcome.Works)
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

// A pause is never longer than the cooldown of an open circuit.
func TestSlowStart_pauseIsBounded(t *testing.T) {
	const longer = 2 * DefaultWindow
	for _, tt := range []struct {
		name   string
		most   time.Duration // MaxCooldown
		server outcome.Server
		want   time.Duration
	}{
		{"a failure", 0, outcome.Fails, DefaultMaxCooldown},
		{"a slow response", 0, outcome.Works, min(DefaultMaxCooldown, DefaultWindow/2)},
		{"a failure, with long cooldowns", longer, outcome.Fails, longer},
		{"a slow response, with long cooldowns", longer, outcome.Works, DefaultWindow / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := Rules{MaxCooldown: tt.most}.withDefaults()
			l := newSlowStart(&rules, usualLatency, &outage{usual: time.Second, slow: true}, outageLatency, usualLatency, epoch)
			_, ok := l.ask(epoch)
			require.True(t, ok)
			now := epoch.Add(DefaultWindow - time.Second)
			endFirst(l, epoch, now, tt.server)
			notBefore, ok := l.ask(now)
			require.False(t, ok)
			require.Equal(t, tt.want, notBefore.Sub(now))
		})
	}
}

// A request that never ends must not block the others, and neither must a slow response, for
// example of a long poll. One more request is admitted after the latency of failures, or little
// more than a second.
func TestSlowStart_admitsAfterLostRequest(t *testing.T) {
	for _, tt := range []struct {
		name        string
		worst       time.Duration
		failed      time.Duration // latency of a later failure; 0: none
		wait, again time.Duration // until one more is admitted, and until NotBefore
	}{
		{"failures of half a second", outageLatency, 0, outageLatency, outageLatency},
		{"failures of two seconds", 2 * time.Second, 0, time.Second, time.Second},
		{"failures of half a minute", 30 * time.Second, 0, 3750 * time.Millisecond, time.Second},
		{"a slower failure since", outageLatency, 800 * time.Millisecond, 800 * time.Millisecond, 800 * time.Millisecond},
		{"a quicker failure since", outageLatency, 200 * time.Millisecond, outageLatency, outageLatency},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := newSlowStart(defaultRules(), usualLatency, &outage{usual: time.Second, slow: true}, tt.worst, usualLatency, epoch), epoch
			if tt.failed > 0 {
				l.admit(now)
				endFirst(l, now, now.Add(tt.failed), outcome.Fails)
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

// Slow start expires after six Windows without a cut, even if it rejects.
func TestSlowStart_expiresWithoutCuts(t *testing.T) {
	for _, tt := range []struct {
		name        string
		took, every time.Duration // latency, and time between rounds of as many requests as are admitted
		fails       time.Duration // when one of them fails; 0: none does
	}{
		{"responses nearly as slow as failures", outageLatency * 4 / 5, time.Second / 2, 0},
		{"bursts", 4 * usualLatency, 9 * time.Second, 0},
		{"a failure after twenty seconds: no cut", outageLatency * 4 / 5, time.Second / 2, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now, failed := newLimit(), epoch, epoch
			for l.fill(now); !l.expired(now); l.fill(now) {
				for len(l.inFlight) > 0 {
					end, server := now.Add(tt.took), outcome.Works
					if tt.fails > 0 && failed.Equal(epoch) && now.Sub(epoch) >= tt.fails {
						server, failed = outcome.Fails, end
					}
					endFirst(l, now, end, server)
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

// slowStarted returns a Breaker with a circuit that has closed after timeouts.
func slowStarted(t *testing.T) (b *recorded, at time.Time) {
	b, at = record(Rules{MinRequests: 4}), epoch
	b.done(b.must(t, at), Result{Server: outcome.Works, Took: usualLatency}, at)
	at = b.openedBy(t, at.Add(time.Second), outageLatency)
	at, _ = b.rejects(at)
	for range DefaultProbes {
		b.done(b.must(t, at), Result{Server: outcome.Works, Took: usualLatency}, at)
	}
	require.Equal(t, "open half-open closed", b.path())
	require.NotNil(t, b.limit())
	return b, at
}

func (b *recorded) limit() *slowStart { return b.Find(host).closed.Load().slowStart.Load() }

// Slow start expires a Window after the last failure or rejection.
func TestSlowStart_expiresWithoutRejections(t *testing.T) {
	const later = 9 * time.Second
	for _, tt := range []struct {
		name  string
		event func(l *slowStart, now time.Time)
		want  time.Duration
	}{
		{"no requests", func(*slowStart, time.Time) {}, DefaultWindow},
		{"a success", func(l *slowStart, now time.Time) { l.admit(now); endFirst(l, now, now, outcome.Works) }, DefaultWindow},
		{"a slow failure", func(l *slowStart, now time.Time) {
			l.admit(now)
			endFirst(l, now.Add(-outageLatency), now, outcome.Fails)
		}, later + DefaultWindow},
		{"a quick failure", func(l *slowStart, now time.Time) { l.admit(now); endFirst(l, now, now, outcome.Fails) }, DefaultWindow},
		{"rejected: too many in flight", func(l *slowStart, now time.Time) { l.admit(now); l.admit(now) }, later + DefaultWindow},
		{"rejected: a pause", func(l *slowStart, now time.Time) {
			l.admit(now)
			endFirst(l, now.Add(-outageLatency), now, outcome.Works)
			l.admit(now)
		}, later + DefaultWindow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimit()
			tt.event(l, epoch.Add(later))
			require.False(t, l.expired(epoch.Add(tt.want)))
			require.True(t, l.expired(epoch.Add(tt.want+1)))
		})
	}
}

// Slow start ends if the clock was set back: its times would stop requests until the clock is there again.
func TestSlowStart_clockSetBack(t *testing.T) {
	b, at := slowStarted(t)
	c, l := b.Find(host), b.limit()
	l.paused = at.Add(time.Second)
	require.NotNil(t, c.Rejects(at))
	require.Nil(t, c.Rejects(at.Add(-time.Hour)))
	require.False(t, l.expired(at))
	require.True(t, l.expired(at.Add(-time.Hour)))
}

// Slow start counts only the requests that it has admitted: those of other routes are not limited.
func TestSlowStart_otherRoutes(t *testing.T) {
	b, at := slowStarted(t)
	before := *b.limit()
	p, rejected := b.Find(host).Admit(at, func() uint64 { return 99 }, false)
	require.Nil(t, rejected)
	b.done(p, Result{Server: outcome.Works, Took: outageLatency}, at.Add(outageLatency))
	require.Equal(t, before, *b.limit())
}

// Old results have less weight, of at least MinRequests and of twice the limit.
func TestSlowStart_halvesCounts(t *testing.T) {
	for size, most := range map[float64]float64{1: DefaultMinRequests, 100: 200} {
		l := sized(size)
		for l.results < most {
			l.count(1)
		}
		require.InDelta(t, most, l.failures, 0)
		l.quickOnes = most
		l.count(0)
		require.Equal(t, []float64{(most + 1) / 2, most / 2, most / 2}, []float64{l.results, l.failures, l.quickOnes})
	}
}

// A permit of slow start that a waiting call returns no longer counts as in flight.
func TestSlowStart_returnedPermit(t *testing.T) {
	b, at := slowStarted(t)
	c, l := b.Find(host), b.limit()
	p := b.must(t, at)
	require.Len(t, l.inFlight, 1)
	(&waiting{circuit: c}).Return(p, at)
	require.Empty(t, l.inFlight)
	require.False(t, c.NotClosed())
}

// The latency during slow start is no baseline: it contains the queue.
func TestCircuit_baselineIsNotFromSlowStart(t *testing.T) {
	b, at := slowStarted(t)
	baseline := &b.Find(host).baseline
	for active := true; active; active = b.limit() != nil {
		require.Equal(t, usualLatency, baseline.Get())
		b.done(b.must(t, at), Result{Server: outcome.Works, Took: 2 * usualLatency}, at.Add(2*usualLatency))
		at = at.Add(time.Second)
	}
	for range 100 { // slow start has ended
		b.must(t, at)
	}
	for range 100 {
		b.done(b.must(t, at), Result{Server: outcome.Works, Took: 2 * usualLatency}, at)
		at = at.Add(time.Second)
	}
	require.InDelta(t, 2*usualLatency, baseline.Get(), float64(usualLatency)/5)
}

// A permit counts once, even if it ends twice: the number in flight is never negative.
func TestSlowStart_countsAPermitOnce(t *testing.T) {
	slow := Result{Server: outcome.Rejects, Took: outageLatency} // a quick response would overtake the other request
	for _, tt := range []struct {
		name string
		end  func(Permit, time.Time)
	}{
		{"canceled twice", func(p Permit, at time.Time) { p.Cancel(at); p.Cancel(at) }},
		{"done twice", func(p Permit, at time.Time) { p.Done(Result{}, at); p.Done(Result{}, at) }},
		{"done, then canceled", func(p Permit, at time.Time) { p.Done(slow, at); p.Cancel(at) }},
		{"canceled, then done", func(p Permit, at time.Time) { p.Cancel(at); p.Done(slow, at) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, at := slowStarted(t)
			l := b.limit()
			l.size = 3
			other := b.must(t, at)
			for range 5 {
				tt.end(b.must(t, at), at)
				require.Len(t, l.inFlight, 1)
			}
			other.Cancel(at)
			require.Empty(t, l.inFlight)
		})
	}
}

// endFirst ends the first request in flight. It sends one if there is none.
func endFirst(l *slowStart, sent, now time.Time, server outcome.Server) {
	if len(l.inFlight) == 0 {
		l.send(sent)
	}
	l.done(l.inFlight[0], sent, now, server)
}

// A quick response shows that the requests which were sent before it are in no queue, so they hold no slot, and their failures are no
// reason for a cut.
func TestSlowStart_overtakenRequests(t *testing.T) {
	const hung = 3
	for _, tt := range []struct {
		name     string
		took     time.Duration // of the response
		failure  time.Duration // of the requests before it, after that
		inFlight int           // after the response
		cut      bool
	}{
		{"a quick response: they are forgotten", usualLatency, outageLatency, 0, false},
		{"a slow response: they may be in the queue behind which it was", outageLatency / 2, outageLatency, hung, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := sized(hung+2), epoch.Add(time.Second)
			cut, sent := l.cut, now
			for range hung + 2 {
				require.Nil(t, l.admit(now))
			}
			admitted := slices.Clone(l.inFlight)
			// One that was sent later is over, without a response.
			l.done(admitted[hung+1], sent, now, outcome.Silent)
			now = now.Add(tt.took)
			l.done(admitted[hung], sent, now, outcome.Works)
			require.Len(t, l.inFlight, tt.inFlight)
			for _, hanging := range admitted[:hung] {
				l.done(hanging, sent, now.Add(tt.failure), outcome.Fails)
			}
			require.Empty(t, l.inFlight)
			require.Equal(t, tt.cut, l.cut.After(cut))
		})
	}
}
