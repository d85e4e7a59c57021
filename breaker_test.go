package resilienthttp

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

var breakerEpoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// breakerLog collects changes, as OnChange or as a breakerObserver.
type breakerLog struct {
	mu      sync.Mutex
	changes []BreakerChange
}

func (l *breakerLog) breakerChanged(c BreakerChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, c)
}

func (l *breakerLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s []string
	for _, c := range l.changes {
		s = append(s, c.To.String())
	}
	return strings.Join(s, " ")
}

var breakerOutcomes = map[rune]breakerOutcome{
	'S': outcomeSuccess, 'F': outcomeFailure, 'A': outcomeAlive, 'N': outcomeNone,
}

// breakerRun sends one request after the other at one time, with results as
// told by their letters, and returns how many were let out.
func breakerRun(b *Breaker, scope string, at time.Time, results string, o breakerObserver) (sent int) {
	for _, r := range results {
		if p, _, ok := b.admit(scope, at, o); ok {
			sent++
			p.done(result{outcome: breakerOutcomes[r]}, at, o)
		}
	}
	return sent
}

// breakerOpened returns a circuit that has just opened, and when it is over.
func breakerOpened(t *testing.T, b *Breaker, scope string, at time.Time) (until time.Time) {
	t.Helper()
	for range 1000 {
		p, until, ok := b.admit(scope, at, nil)
		if !ok {
			return until
		}
		p.done(result{outcome: outcomeFailure}, at, nil)
	}
	t.Fatal("does not open")
	return
}

func TestBreakerOpens(t *testing.T) {
	for _, tt := range []struct {
		name    string
		breaker *Breaker
		results string
		sent    int // all of them, if it never opens
	}{
		{name: "zero value: half of twenty", breaker: &Breaker{}, results: strings.Repeat("SF", 10) + "S", sent: 20},
		{name: "zero value: nineteen failures are too few", breaker: &Breaker{}, results: strings.Repeat("F", 19), sent: 19},
		{name: "zero value: twenty failures", breaker: &Breaker{}, results: strings.Repeat("F", 30), sent: 20},
		{name: "below the ratio", breaker: &Breaker{}, results: strings.Repeat("SSF", 100), sent: 300},
		{name: "the ratio is reached later", breaker: &Breaker{}, results: strings.Repeat("S", 20) + strings.Repeat("F", 30), sent: 40},
		{name: "a success completes the minimum", breaker: &Breaker{MinRequests: 4}, results: "FFFSS", sent: 4},
		{name: "no failure, never", breaker: &Breaker{MinRequests: 1, FailureRatio: math.SmallestNonzeroFloat64}, results: "SSSSSS", sent: 6},
		{name: "tiny ratio: one failure", breaker: &Breaker{MinRequests: 1, FailureRatio: math.SmallestNonzeroFloat64}, results: "SSSSSFS", sent: 6},
		{name: "ratio of one", breaker: &Breaker{MinRequests: 1, FailureRatio: 1}, results: "SFFFFFF", sent: 7},
		{name: "ratio above one is one", breaker: &Breaker{MinRequests: 2, FailureRatio: 7}, results: "FFF", sent: 2},
		{name: "seven in a hundred, in decimal", breaker: &Breaker{MinRequests: 100, FailureRatio: 0.07}, results: strings.Repeat("S", 93) + "FFFFFFFS", sent: 100},
		{name: "negative minimum: one", breaker: &Breaker{MinRequests: -1}, results: "FF", sent: 1},
		{name: "negative ratio: never", breaker: &Breaker{MinRequests: 1, FailureRatio: -1}, results: strings.Repeat("F", 50), sent: 50},
		{name: "ratio is NaN: never", breaker: &Breaker{MinRequests: 1, FailureRatio: math.NaN()}, results: strings.Repeat("F", 50), sent: 50},
		{name: "ratio is +Inf: one", breaker: &Breaker{MinRequests: 2, FailureRatio: math.Inf(1)}, results: "FFF", sent: 2},
		{name: "429 says nothing while closed", breaker: &Breaker{MinRequests: 4}, results: "AAAAFFFAF" + "F", sent: 9},
		{name: "cancelled calls say nothing", breaker: &Breaker{MinRequests: 4}, results: "NNNNFFFNF" + "F", sent: 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.sent, breakerRun(tt.breaker, "h", breakerEpoch, tt.results, nil))
			require.Equal(t, 1, breakerRun(tt.breaker, "other", breakerEpoch, "S", nil), "scopes are apart")
		})
	}
}

func TestBreakerDefaults(t *testing.T) {
	type rules struct {
		min         uint64
		window      time.Duration
		cooldown    time.Duration
		maxCooldown time.Duration
		probes      int
	}
	const tick = time.Millisecond
	for _, tt := range []struct {
		name    string
		breaker *Breaker
		want    rules
	}{
		{"zero value", &Breaker{}, rules{20, 10 * time.Second, 100 * time.Millisecond, 30 * time.Second, 3}},
		{"all set", &Breaker{MinRequests: 5, Window: time.Minute, Cooldown: 2 * time.Second, MaxCooldown: time.Hour, Probes: 7},
			rules{5, time.Minute, 2 * time.Second, time.Hour, 7}},
		{"all negative", &Breaker{MinRequests: -1, Window: -1, Cooldown: -1, MaxCooldown: -1, Probes: -1},
			rules{1, 10 * time.Second, tick, tick, 1}},
		{"all tiny", &Breaker{MinRequests: 1, Window: 1, Cooldown: 1, MaxCooldown: 1, Probes: 1}, rules{1, tick, tick, tick, 1}},
		{"cooldown above the default maximum", &Breaker{Cooldown: time.Hour}, rules{20, 10 * time.Second, time.Hour, time.Hour, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.breaker.freeze(breakerEpoch)
			require.Equal(t, tt.want, rules{r.minRequests, r.window, r.cooldown, r.maxCooldown, r.probes})
		})
	}
	t.Run("frozen at first use", func(t *testing.T) {
		b := &Breaker{MinRequests: 2}
		breakerRun(b, "h", breakerEpoch, "F", nil)
		b.MinRequests, b.FailureRatio = 1000, -1
		require.Equal(t, 1, breakerRun(b, "h", breakerEpoch, "FF", nil))
	})
}

func TestBreakerWindowSlides(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []struct {
			after   time.Duration
			results string
		}
		open bool
	}{
		{name: "within the window", open: true, steps: []struct {
			after   time.Duration
			results string
		}{{0, "FF"}, {9 * time.Second, "FF"}}},
		{name: "failures leave the window", steps: []struct {
			after   time.Duration
			results string
		}{{0, "FFF"}, {10 * time.Second, "FFF"}}},
		{name: "successes leave the window too", open: true, steps: []struct {
			after   time.Duration
			results string
		}{{0, "SSSSSSSSSS"}, {5 * time.Second, "FFF"}, {5 * time.Second, "S"}}},
		{name: "after an idle time", steps: []struct {
			after   time.Duration
			results string
		}{{0, "FFF"}, {1000 * time.Hour, "FFF"}}},
		{name: "a clock that goes back", open: true, steps: []struct {
			after   time.Duration
			results string
		}{{0, "FF"}, {-time.Second, "FF"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &Breaker{MinRequests: 4}
			at := breakerEpoch
			for _, s := range tt.steps {
				at = at.Add(s.after)
				require.Equal(t, len(s.results), breakerRun(b, "h", at, s.results, nil))
			}
			_, refuses := b.wouldRefuse("h", at)
			require.Equal(t, tt.open, refuses)
		})
	}
}

// §4.15: cools down with growth, and up to a quarter of jitter on top, also on
// top of the maximum; once closed, from the beginning.
func TestBreakerCooldown(t *testing.T) {
	for _, tt := range []struct {
		name          string
		cooldown, max time.Duration
		want          []time.Duration // without jitter
	}{
		{name: "defaults: probes that fail at once may come again soon", want: []time.Duration{1e8, 1e8, 1e8}},
		{name: "default maximum", cooldown: 1e9, want: []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9, 30e9}},
		{name: "no growth", max: -1, want: []time.Duration{1e8, 1e8, 1e8}},
		{name: "maximum below the first", cooldown: 8e9, max: 4e9, want: []time.Duration{8e9, 8e9}},
		{name: "half of the maximum", cooldown: 5e9, max: 10e9, want: []time.Duration{5e9, 10e9, 10e9}},
		{name: "huge maximum", cooldown: 1 << 60, max: math.MaxInt64, want: []time.Duration{1 << 60, 1 << 61, 1 << 62}},
		{name: "negative", cooldown: -1, want: []time.Duration{1e6, 2e6, 4e6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			jitters := map[time.Duration]bool{}
			for range 20 {
				b := &Breaker{MinRequests: 1, Probes: 1, Cooldown: tt.cooldown, MaxCooldown: tt.max}
				at := breakerEpoch
				for _, want := range append(tt.want, 0) {
					if want == 0 { // closed in between
						require.Equal(t, 1, breakerRun(b, "h", at, "S", nil))
						want = tt.want[0]
					}
					require.Equal(t, 1, breakerRun(b, "h", at, "F", nil))
					until, refuses := b.wouldRefuse("h", at)
					require.True(t, refuses)
					wait := until.Sub(at)
					require.GreaterOrEqual(t, wait, want)
					require.LessOrEqual(t, wait, want+want/4)
					jitters[wait-want] = true

					p, notBefore, ok := b.admit("h", until.Add(-1), nil)
					require.False(t, ok)
					require.Equal(t, permit{}, p)
					require.Equal(t, until, notBefore)
					at = until
				}
			}
			require.Greater(t, len(jitters), 10, "the jitter is random, at the maximum too")
		})
	}
	t.Run("no duration overflows", func(t *testing.T) {
		b := &Breaker{MinRequests: 1, Cooldown: math.MaxInt64, MaxCooldown: math.MaxInt64, Window: math.MaxInt64}
		until := breakerOpened(t, b, "h", time.Now())
		require.True(t, until.After(time.Now().Add(200*365*24*time.Hour)), "%v", until)
	})
}

// §4.15: half-open lets a few probes through, each leased for one cooldown.
func TestBreakerHalfOpen(t *testing.T) {
	// Steps, all on one circuit that is half-open after three probes at most:
	//   a     a request is let out        r     a request is refused
	//   0-9   the result of that request, of the kind of the letter after it
	//   +     half a cooldown goes by
	for _, tt := range []struct {
		name  string
		steps string
		want  string // the changes
	}{
		{name: "three successes close", steps: "aaa0S1S2Saaaaaaaa", want: "half-open closed"},
		{name: "one after the other", steps: "a0Sa1Sa2Saaaaaaaaa", want: "half-open closed"},
		{name: "no more than three at once", steps: "aaarrr", want: "half-open"},
		{name: "a success keeps its place", steps: "aaa0Srr1Sr2Saaaaa", want: "half-open closed"},
		{name: "a failure opens", steps: "aaa0S1Fr", want: "half-open open"},
		{name: "the first failure opens", steps: "aaa0Fr", want: "half-open open"},
		{name: "late results after that are ignored", steps: "aaa0F1F2S1Sr", want: "half-open open"},
		{name: "429 counts as alive", steps: "aaa0A1A2Aaaaa", want: "half-open closed"},
		{name: "a cancelled probe gives its place back", steps: "aaar0Nar1N2Naar", want: "half-open"},
		{name: "a cancelled probe is not a success", steps: "aaa0N1N2Na3S", want: "half-open"},
		{name: "places come back after a cooldown", steps: "aaa+r+aaar", want: "half-open"},
		{name: "each place in its time", steps: "a+aar+ar+aar", want: "half-open"},
		{name: "a late success counts", steps: "aaa++0S1S2Saaaaa", want: "half-open closed"},
		{name: "a late success counts beside new probes", steps: "aaa++aaa0S1S3Saaaaa", want: "half-open closed"},
		{name: "a late success takes up a place", steps: "aaa++0Saar", want: "half-open"},
		{name: "a late failure opens", steps: "aaa++aaa0Fr", want: "half-open open"},
		{name: "a late cancellation frees nothing", steps: "aaa++aaa0N1N2Nr", want: "half-open"},
		{name: "a second result is ignored", steps: "aaa0S0S0S0F1S", want: "half-open"},
		{name: "a second result is ignored when the first was late", steps: "aaa++0S0S0S0F", want: "half-open"},
		{name: "a second cancellation frees nothing", steps: "aaa0Na0N0Nr", want: "half-open"},
		{name: "a success after a cancellation is ignored", steps: "aaa0N0S0S0S", want: "half-open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log breakerLog
			const cooldown = 8 * time.Second
			b := &Breaker{MinRequests: 1, Cooldown: cooldown, OnChange: log.breakerChanged}
			at := breakerOpened(t, b, "h", breakerEpoch)
			var permits []permit
			for i := 0; i < len(tt.steps); i++ {
				msg := []any{"step %d of %s", i, tt.steps}
				switch c := tt.steps[i]; c {
				case 'a', 'r':
					p, notBefore, ok := b.admit("h", at, nil)
					require.Equal(t, c == 'a', ok, msg...)
					if ok {
						permits = append(permits, p)
					} else {
						require.True(t, notBefore.After(at), msg...)
					}
				case '+':
					at = at.Add(cooldown / 2)
				default:
					i++
					permits[c-'0'].done(result{outcome: breakerOutcomes[rune(tt.steps[i])]}, at, nil)
				}
			}
			require.Equal(t, strings.TrimSpace("open "+tt.want), log.String())
		})
	}
}

func TestBreakerHalfOpenIsFull(t *testing.T) {
	b := &Breaker{MinRequests: 1, Probes: 2, Cooldown: 10 * time.Second}
	at := breakerOpened(t, b, "h", breakerEpoch)
	first, _, ok := b.admit("h", at, nil)
	require.True(t, ok)
	_, refuses := b.wouldRefuse("h", at)
	require.False(t, refuses)
	_, _, ok = b.admit("h", at.Add(time.Second), nil)
	require.True(t, ok)

	_, notBefore, ok := b.admit("h", at.Add(2*time.Second), nil)
	require.False(t, ok)
	require.Equal(t, at.Add(3*time.Second), notBefore, "the probes may be answered soon")
	notBefore, refuses = b.wouldRefuse("h", at.Add(2*time.Second))
	require.True(t, refuses)
	require.Equal(t, at.Add(3*time.Second), notBefore)
	_, notBefore, _ = b.admit("h", at.Add(9500*time.Millisecond), nil)
	require.Equal(t, at.Add(10*time.Second), notBefore, "the first lease ends sooner")
	_, refuses = b.wouldRefuse("h", at.Add(10*time.Second))
	require.False(t, refuses, "by then, the lease is over")

	first.done(result{outcome: outcomeNone}, at, nil)
	_, refuses = b.wouldRefuse("h", at.Add(2*time.Second))
	require.False(t, refuses)

	// The leases of a circuit that has opened again are as long as its cooldown.
	at = breakerOpened(t, b, "h", at)
	b.admit("h", at, nil)
	b.admit("h", at, nil)
	_, refuses = b.wouldRefuse("h", at.Add(20*time.Second-1))
	require.True(t, refuses)
	_, refuses = b.wouldRefuse("h", at.Add(20*time.Second))
	require.False(t, refuses)
}

func TestBreakerWouldRefuse(t *testing.T) {
	b := &Breaker{MinRequests: 1, Cooldown: time.Second}
	_, refuses := b.wouldRefuse("h", breakerEpoch)
	require.False(t, refuses, "unknown")
	require.Zero(t, b.circuits.Len(), "and still unknown")
	breakerRun(b, "h", breakerEpoch, "S", nil)
	_, refuses = b.wouldRefuse("h", breakerEpoch)
	require.False(t, refuses, "closed")

	until := breakerOpened(t, b, "h", breakerEpoch.Add(time.Minute))
	notBefore, refuses := b.wouldRefuse("h", until.Add(-1))
	require.True(t, refuses, "open")
	require.Equal(t, until, notBefore)
	notBefore, refuses = b.wouldRefuse("h", until)
	require.False(t, refuses, "the cooldown will be over")
	require.Zero(t, notBefore)
	require.Equal(t, StateOpen, b.peek("h").state, "to ask changes nothing")
	for range 3 {
		_, _, ok := b.admit("h", until, nil)
		require.True(t, ok, "and takes no place")
		b.wouldRefuse("h", until)
	}

	b = &Breaker{MinRequests: 1}
	until = breakerOpened(t, b, "h", breakerEpoch)
	notBefore, refuses = b.wouldRefuse("h", until)
	require.True(t, refuses, "by default, its places are for calls")
	require.Equal(t, until, notBefore)
	_, _, ok := b.admit("h", until, nil)
	require.True(t, ok, "such as this one")
	_, refuses = b.wouldRefuse("h", until)
	require.True(t, refuses, "half-open, too")
}

// §4.15: results of an earlier generation are ignored.
func TestBreakerLateResults(t *testing.T) {
	var log breakerLog
	b := &Breaker{MinRequests: 2, Probes: 1, OnChange: log.breakerChanged}
	at := breakerEpoch
	var old []permit
	for range 50 {
		p, _, ok := b.admit("h", at, nil)
		require.True(t, ok)
		old = append(old, p)
	}
	at = breakerOpened(t, b, "h", at)
	late := func(o breakerOutcome, n int) {
		for range n {
			old[0].done(result{outcome: o}, at, nil)
			old = old[1:]
		}
	}
	late(outcomeFailure, 5) // open: no second opening, no longer cooldown
	p, _, ok := b.admit("h", at, nil)
	require.True(t, ok)
	late(outcomeSuccess, 5) // half-open: they are no probes
	late(outcomeFailure, 5)
	require.Equal(t, "open half-open", log.String())
	p.done(result{outcome: outcomeSuccess}, at, nil)
	late(outcomeFailure, 20) // closed again: they are not of this window
	require.Equal(t, "open half-open closed", log.String())
	require.Equal(t, 1, breakerRun(b, "h", at, "F", nil), "the window is fresh")
	require.Equal(t, "open half-open closed", log.String())
	require.Equal(t, 1, breakerRun(b, "h", at, "FF", nil))
	require.Equal(t, "open half-open closed open", log.String())
	p.done(result{outcome: outcomeSuccess}, at, nil)
	require.Equal(t, "open half-open closed open", log.String())
	_, _, current := p.generation.enter(at)
	require.False(t, current, "nobody gets a place in a generation that is over")
}

func TestBreakerReports(t *testing.T) {
	type told struct {
		by string
		BreakerChange
	}
	var got []told
	observer := breakerFunc(func(c BreakerChange) { got = append(got, told{"observer", c}) })
	b := &Breaker{MinRequests: 1, Probes: 1, OnChange: func(c BreakerChange) { got = append(got, told{"OnChange", c}) }}

	t0 := breakerEpoch
	breakerRun(b, "h", t0, "SF", observer)
	t1, refuses := b.wouldRefuse("h", t0)
	require.True(t, refuses)
	p, _, _ := b.admit("h", t1, observer)
	p.done(result{outcome: outcomeSuccess}, t1.Add(-time.Second), observer) // a clock that went back
	var want []told
	for _, c := range []BreakerChange{
		{"h", StateClosed, StateOpen, t0},
		{"h", StateOpen, StateHalfOpen, t1},
		{"h", StateHalfOpen, StateClosed, t1},
	} {
		want = append(want, told{"OnChange", c}, told{"observer", c})
	}
	require.Equal(t, want, got)
}

type breakerFunc func(BreakerChange)

func (f breakerFunc) breakerChanged(c BreakerChange) { f(c) }

// §4.15: callbacks run outside locks. If they did not, this would not end.
func TestBreakerCallbacksMayUseIt(t *testing.T) {
	var b *Breaker
	var log breakerLog
	at := breakerEpoch
	use := func(c BreakerChange) {
		log.breakerChanged(c)
		b.State(c.Scope)
		b.wouldRefuse(c.Scope, at)
		if p, _, ok := b.admit(c.Scope, at, nil); ok {
			p.done(result{outcome: outcomeNone}, at, nil)
		}
		if p, _, ok := b.admit("another", at, nil); ok {
			p.done(result{outcome: outcomeSuccess}, at, nil)
		}
	}
	b = &Breaker{MinRequests: 1, OnChange: use}
	breakerRun(b, "h", at, "F", breakerFunc(use))
	at, _ = b.wouldRefuse("h", at)
	probe, _, ok := b.admit("h", at, breakerFunc(use))
	require.True(t, ok)
	breakerRun(b, "h", at, "SS", breakerFunc(use))
	other, _, ok := b.admit("h", at, nil)
	require.False(t, ok)
	require.Equal(t, permit{}, other)
	probe.done(result{outcome: outcomeSuccess}, at, breakerFunc(func(c BreakerChange) {
		use(c)
		probe.done(result{outcome: outcomeSuccess}, at, nil) // which is of the generation that just ended
	}))
	require.Equal(t, "open open half-open half-open closed closed", log.String())
}

func TestBreakerCallbacksMayPanic(t *testing.T) {
	b := &Breaker{MinRequests: 1, Probes: 1, Cooldown: time.Second, OnChange: func(BreakerChange) { panic("callback") }}
	at := breakerEpoch
	p, _, _ := b.admit("h", at, nil)
	require.PanicsWithValue(t, "callback", func() { p.done(result{outcome: outcomeFailure}, at, nil) })
	at, refuses := b.wouldRefuse("h", at)
	require.True(t, refuses, "it has opened")
	require.PanicsWithValue(t, "callback", func() { b.admit("h", at, nil) })
	at, refuses = b.wouldRefuse("h", at)
	require.True(t, refuses, "the place of the one that panicked is taken")
	p, _, ok := b.admit("h", at, nil)
	require.True(t, ok, "for one cooldown")
	require.PanicsWithValue(t, "callback", func() { p.done(result{outcome: outcomeSuccess}, at, nil) })
	require.Equal(t, StateClosed, b.State("h"))
}

func TestBreakerState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log breakerLog
		b := &Breaker{MinRequests: 1, Probes: 1, OnChange: log.breakerChanged}
		require.Equal(t, StateClosed, b.State("h"), "unknown")
		require.Zero(t, b.circuits.Len(), "to ask creates no entry")

		breakerRun(b, "h", time.Now(), "S", nil)
		require.Equal(t, StateClosed, b.State("h"))
		breakerRun(b, "h", time.Now(), "F", nil)
		require.Equal(t, StateOpen, b.State("h"))
		until, _ := b.wouldRefuse("h", time.Now())
		time.Sleep(time.Until(until) - 1)
		require.Equal(t, StateOpen, b.State("h"))
		time.Sleep(time.Nanosecond)
		require.Equal(t, StateHalfOpen, b.State("h"), "as the next request will find it")
		require.Equal(t, "open", log.String(), "to ask is no change")

		p, _, ok := b.admit("h", time.Now(), nil)
		require.True(t, ok)
		require.Equal(t, StateHalfOpen, b.State("h"))
		p.done(result{outcome: outcomeSuccess}, time.Now(), nil)
		require.Equal(t, StateClosed, b.State("h"))
		require.Equal(t, "open half-open closed", log.String())
	})
	for want, s := range map[string]BreakerState{
		"closed": StateClosed, "half-open": StateHalfOpen, "open": StateOpen, "BreakerState(7)": 7, "BreakerState(-1)": -1,
	} {
		require.Equal(t, want, s.String())
	}
	require.Equal(t, StateClosed, BreakerState(0), "the zero state")
}

// §4.15: a probe that hangs, panics or exits gives its place back, and nobody
// has to do anything for it.
func TestBreakerLostProbes(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func()
	}{
		{"hangs", func() { time.Sleep(time.Hour) }},
		{"panics", func() { defer func() { _ = recover() }(); panic("lost") }},
		{"exits", runtime.Goexit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &Breaker{MinRequests: 1, Cooldown: time.Second, MaxCooldown: -1}
				until := breakerOpened(t, b, "h", time.Now())
				time.Sleep(time.Until(until))
				lost := 0
				for range 100 { // ten seconds
					for {
						_, _, ok := b.admit("h", time.Now(), nil)
						if !ok {
							break
						}
						lost++
						go tt.lose()
					}
					time.Sleep(100 * time.Millisecond)
				}
				require.Equal(t, 30, lost, "three in each cooldown, no fewer and no more")
				require.LessOrEqual(t, len(b.peek("h").probes), 3, "those that are lost are forgotten")
				require.Equal(t, 3, breakerRun(b, "h", time.Now(), "SSS", nil))
				require.Equal(t, StateClosed, b.State("h"))
				time.Sleep(2 * time.Hour) // those that hang come to an end
			})
		})
	}
}

// A server that takes longer than a cooldown to answer must not stay shut out.
func TestBreakerSlowServerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{MinRequests: 1, Cooldown: time.Second}
		until := breakerOpened(t, b, "h", time.Now())
		time.Sleep(time.Until(until))
		for range 10 {
			if p, _, ok := b.admit("h", time.Now(), nil); ok {
				go func() {
					time.Sleep(5 * time.Second)
					p.done(result{outcome: outcomeSuccess}, time.Now(), nil)
				}()
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, StateClosed, b.State("h"))
		time.Sleep(time.Minute)
	})
}

// §4.18
func TestBreakerScopesAreBounded(t *testing.T) {
	b := &Breaker{MinRequests: 1, Cooldown: time.Hour}
	breakerOpened(t, b, "down", breakerEpoch)
	for i := range 20_000 {
		breakerRun(b, strconv.Itoa(i), breakerEpoch, "SS", nil)
	}
	require.LessOrEqual(t, b.circuits.Len(), 4096)
	_, refuses := b.wouldRefuse("down", breakerEpoch)
	require.True(t, refuses, "an open circuit outlives hosts that come and go")

	for i := range 20_000 {
		breakerRun(b, strconv.Itoa(i), breakerEpoch, "FF", nil)
	}
	require.LessOrEqual(t, b.circuits.Len(), 4096, "also if all of them are open")

	off := &Breaker{FailureRatio: -1}
	breakerRun(off, "h", breakerEpoch, "FF", nil)
	require.Zero(t, off.circuits.Len(), "one that is off keeps nothing")
}

func TestBreakerKeepsNoURL(t *testing.T) {
	url := strings.Repeat("h", 1<<10)
	var b Breaker
	b.admit(url[:4], breakerEpoch, nil)
	require.NotSame(t, unsafe.StringData(url), unsafe.StringData(b.peek("hhhh").scope))
}

func TestBreakerOneChangeForAThousandFailures(t *testing.T) {
	for range 20 {
		var log breakerLog
		b := &Breaker{OnChange: log.breakerChanged, Probes: 5}
		var ready, wg sync.WaitGroup
		ready.Add(1000)
		for range 1000 {
			wg.Go(func() {
				p, _, ok := b.admit("h", breakerEpoch, nil)
				ready.Done()
				ready.Wait()
				if ok {
					p.done(result{outcome: outcomeFailure}, breakerEpoch, nil)
				}
			})
		}
		wg.Wait()
		require.Equal(t, "open", log.String())

		// And as many at the door when it is half-open: five come in.
		until, _ := b.wouldRefuse("h", breakerEpoch)
		var in atomic.Int64
		for range 1000 {
			wg.Go(func() {
				if _, notBefore, ok := b.admit("h", until, nil); ok {
					in.Add(1)
				} else if !notBefore.After(until) {
					t.Error("refused without a time")
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 5, in.Load())
		require.Equal(t, "open half-open", log.String())
	}
}

// The same with all of them in step, and many times: four failures at once make
// one change, and of four at the door, one comes in.
func TestBreakerOneChangeInStep(t *testing.T) {
	const goroutines = 4
	rounds := int64(4000)
	if testing.Short() {
		rounds = 2000
	}
	var changes, in, step, arrived atomic.Int64
	breakers := make([]*Breaker, rounds)
	for i := range breakers {
		breakers[i] = &Breaker{MinRequests: 1, Probes: 1, OnChange: func(BreakerChange) { changes.Add(1) }}
	}
	inStep := func() {
		if n := arrived.Add(1); n%goroutines == 0 {
			step.Add(1)
		} else {
			for step.Load() <= (n-1)/goroutines {
				runtime.Gosched()
			}
		}
	}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for _, b := range breakers {
				p, _, _ := b.admit("h", breakerEpoch, nil)
				inStep()
				p.done(result{outcome: outcomeFailure}, breakerEpoch, nil)
				inStep()
				if _, _, ok := b.admit("h", breakerEpoch.Add(1250*time.Millisecond), nil); ok {
					in.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2*rounds, changes.Load())
	require.Equal(t, rounds, in.Load())
}

// Every result at the same moment: none is lost, so it opens exactly when the
// last one has been counted.
func TestBreakerCountsAllResults(t *testing.T) {
	for _, failures := range []int{499, 500} {
		for range 5 {
			b := &Breaker{MinRequests: 1000}
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					p, _, ok := b.admit("h", breakerEpoch, nil)
					if !ok {
						return // it is open already, see below
					}
					if i < failures {
						p.done(result{outcome: outcomeFailure}, breakerEpoch, nil)
					} else {
						p.done(result{outcome: outcomeSuccess}, breakerEpoch, nil)
					}
				})
			}
			wg.Wait()
			_, refuses := b.wouldRefuse("h", breakerEpoch)
			require.Equal(t, failures == 500, refuses)
		}
	}
}

// Everything at once, under the race detector. Whatever the order in which they
// are reported, the changes make one path from closed to the state at the end;
// and there are never more probes out than there are places.
func TestBreakerStress(t *testing.T) {
	var changes [3][3]atomic.Int64
	var clock atomic.Int64
	now := func() time.Time { return breakerEpoch.Add(time.Duration(clock.Load())) }
	b := &Breaker{
		MinRequests: 5, Probes: 2, Cooldown: 100 * time.Millisecond, MaxCooldown: 200 * time.Millisecond, Window: time.Second,
		OnChange: func(c BreakerChange) { changes[c.From][c.To].Add(1) },
	}
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
				if notBefore, refuses := b.wouldRefuse("h", at); refuses && !notBefore.After(at) {
					t.Error("would be refused without a time")
				}
				p, notBefore, ok := b.admit("h", at, nil)
				if !ok {
					if !notBefore.After(at) {
						t.Error("refused without a time")
					}
					continue
				}
				if r.IntN(4) == 0 {
					runtime.Gosched()
				}
				if p.probe != nil {
					p.generation.mu.Lock()
					if n := len(p.generation.probes); n > 2 {
						t.Errorf("%d probes are out", n)
					}
					p.generation.mu.Unlock()
				}
				p.done(result{outcome: breakerOutcome(r.IntN(4))}, now(), nil)
				b.State("h")
			}
		})
	}
	wg.Wait()
	end := b.peek("h").state
	for s := range changes {
		in, out := int64(0), int64(0)
		for other := range changes {
			in, out = in+changes[other][s].Load(), out+changes[s][other].Load()
		}
		if BreakerState(s) == StateClosed {
			in++ // where it began
		}
		if BreakerState(s) == end {
			out++
		}
		require.Equal(t, in, out, "%v", BreakerState(s))
	}
	for _, never := range [][2]BreakerState{{StateClosed, StateHalfOpen}, {StateOpen, StateClosed}, {StateClosed, StateClosed}, {StateOpen, StateOpen}, {StateHalfOpen, StateHalfOpen}} {
		require.Zero(t, changes[never[0]][never[1]].Load(), "%v", never)
	}
	for _, some := range [][2]BreakerState{{StateClosed, StateOpen}, {StateOpen, StateHalfOpen}, {StateHalfOpen, StateOpen}, {StateHalfOpen, StateClosed}} {
		require.NotZero(t, changes[some[0]][some[1]].Load(), "%v", some)
	}
}

func TestBreakerHappyPathDoesNotAllocate(t *testing.T) {
	var b Breaker
	now := breakerEpoch
	breakerRun(&b, "h", now, "SF", nil)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(10 * time.Millisecond)
		p, _, _ := b.admit("h", now, nil)
		p.done(result{outcome: outcomeSuccess}, now, nil)
		b.wouldRefuse("h", now)
	}))
}

func BenchmarkBreaker(b *testing.B) {
	now := time.Now()
	const host = "api.example.com"
	call := func(br *Breaker) {
		if p, _, ok := br.admit(host, now, nil); ok {
			p.done(result{outcome: outcomeSuccess}, now, nil)
		}
	}
	b.Run("closed", func(b *testing.B) {
		var br Breaker
		b.ReportAllocs()
		for b.Loop() {
			call(&br)
		}
	})
	b.Run("closed/some-failures", func(b *testing.B) {
		var br Breaker
		breakerRun(&br, host, now, "SSSF", nil)
		b.ReportAllocs()
		for b.Loop() {
			call(&br)
		}
	})
	b.Run("closed/parallel", func(b *testing.B) {
		var br Breaker
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call(&br)
			}
		})
	})
	b.Run("closed/parallel/own-hosts", func(b *testing.B) {
		var br Breaker
		var hosts atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			host := "host-" + strconv.FormatInt(hosts.Add(1), 10)
			for pb.Next() {
				if p, _, ok := br.admit(host, now, nil); ok {
					p.done(result{outcome: outcomeSuccess}, now, nil)
				}
			}
		})
	})
	b.Run("open/parallel", func(b *testing.B) {
		br := Breaker{Cooldown: time.Hour}
		breakerRun(&br, host, now, strings.Repeat("F", 20), nil)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call(&br)
			}
		})
	})
	b.Run("off", func(b *testing.B) {
		br := Breaker{FailureRatio: -1}
		b.ReportAllocs()
		for b.Loop() {
			call(&br)
		}
	})
}

// A client that makes a call a second has to wait a third of a minute for twenty
// results. With MinRequests and Window of one's own, it does.
func TestBreakerOpensWhenNothingSucceeds(t *testing.T) {
	const ten, five = "SSSSSSSSSS", "FFFFF"
	for _, tt := range []struct {
		name    string
		breaker *Breaker
		results string
		every   time.Duration
		open    bool
	}{
		{"five calls", &Breaker{}, ten + five, time.Second, true},
		{"four calls", &Breaker{}, ten + "FFFF", time.Second, false},
		{"nineteen quick ones", &Breaker{}, five + five + five + "FFFF", time.Millisecond, false},
		{"twenty quick ones", &Breaker{}, five + five + five + five, time.Millisecond, true},
		{"a success in between", &Breaker{}, ten + "FFFFSFFFF", time.Second, false},
		{"nothing said about them in between", &Breaker{}, ten + "FFFFNNF", time.Second, true},
		{"not within a Window", &Breaker{}, ten + five + "FFFF", 3 * time.Second, false},
		{"just within a Window", &Breaker{}, ten + five, 2500 * time.Millisecond, true},
		{"the first long before", &Breaker{}, "FFFF" + ten + "FFFF", time.Second, false},
		{"MinRequests of one's own", &Breaker{MinRequests: 20}, ten + five, time.Second, false},
		{"Window of one's own", &Breaker{Window: 10 * time.Second}, ten + five, time.Second, false},
		{"FailureRatio of one's own", &Breaker{FailureRatio: 1}, ten + five, time.Second, true},
		{"never", &Breaker{FailureRatio: -1}, five + five + five + five, time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := breakerEpoch
			for i := range tt.results {
				breakerRun(tt.breaker, "h", at, tt.results[i:i+1], nil)
				at = at.Add(tt.every)
			}
			g := tt.breaker.peek("h")
			require.Equal(t, tt.open, g != nil && g.state == StateOpen)
		})
	}
	t.Run("retries are not calls", func(t *testing.T) {
		b, at := &Breaker{}, breakerEpoch
		for i := range 15 {
			p, _, ok := b.admit("h", at, nil)
			require.True(t, ok)
			p.done(result{outcome: outcomeFailure, retry: i > 0}, at, nil)
			at = at.Add(time.Second / 2)
		}
		require.Equal(t, StateClosed, b.peek("h").state)
	})
}

// By default, a cooldown follows the latency of the failure.
func TestBreakerCooldownFollowsLatency(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		breaker *Breaker
		took    time.Duration
		want    []time.Duration // without jitter
	}{
		{"at once", &Breaker{}, 0, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"quick", &Breaker{}, 20 * ms, []time.Duration{100 * ms, 160 * ms, 160 * ms}},
		{"half a second", &Breaker{}, 500 * ms, []time.Duration{1000 * ms, 2000 * ms, 4000 * ms, 4000 * ms}},
		{"the default AttemptTimeout", &Breaker{}, 30 * time.Second, []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9}},
		{"for ever", &Breaker{}, math.MaxInt64, []time.Duration{1e9, 2e9}},
		{"Cooldown of one's own", &Breaker{Cooldown: 1e9}, 30 * time.Second, []time.Duration{1e9, 2e9, 4e9}},
		{"Cooldown of one's own, at once", &Breaker{Cooldown: 1e9}, 0, []time.Duration{1e9, 2e9, 4e9}},
		{"MaxCooldown of one's own", &Breaker{MaxCooldown: 1e9}, 30 * time.Second, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1e9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := breakerEpoch
			for p, _, ok := tt.breaker.admit("h", at, nil); ok; p, _, ok = tt.breaker.admit("h", at, nil) {
				p.done(result{outcome: outcomeFailure, took: tt.took}, at, nil)
			}
			for i, want := range tt.want {
				g := tt.breaker.peek("h")
				require.Equal(t, StateOpen, g.state)
				cooldown := g.until.Sub(g.since)
				require.GreaterOrEqual(t, cooldown, want, "opening %d", i+1)
				require.LessOrEqual(t, cooldown, want+want/4, "opening %d", i+1)
				at = g.until
				p, _, ok := tt.breaker.admit("h", at, nil)
				require.True(t, ok)
				p.done(result{outcome: outcomeFailure, took: tt.took}, at, nil)
			}
		})
	}
	t.Run("a slow success that completes MinRequests is no slow failure", func(t *testing.T) {
		b := &Breaker{}
		for i := range 20 {
			p, _, ok := b.admit("h", breakerEpoch, nil)
			require.True(t, ok)
			r := result{outcome: outcomeFailure}
			if i == 19 {
				r = result{outcome: outcomeSuccess, took: time.Minute}
			}
			p.done(r, breakerEpoch, nil)
		}
		g := b.peek("h")
		require.Equal(t, StateOpen, g.state)
		require.LessOrEqual(t, g.until.Sub(g.since), 125*ms)
		require.Zero(t, g.worst)
	})
}
