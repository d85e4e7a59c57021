package circuit

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

// §4.15: one probe at a time tests the server, and after the first success several may be in flight. The ratio of
// failures decides.
func TestOpening_probes(t *testing.T) {
	// Steps, all on one circuit after its cooldown:
	//   a     a call is admitted       r     a call is rejected
	//   0-9   that call ends, with the outcome of the next letter
	//   x     that call is canceled    +     half a cooldown passes, with its jitter
	for _, tt := range []struct {
		name   string
		ratio  float64
		static bool
		steps  string
		want   string // the changes
	}{
		{"one at a time", 0, false, "arr", "half-open"},
		{"three successes close", 0, false, "a0Sa1Sa2Saaaaaaaa", "half-open closed"},
		{"after a success three in all", 0, false, "a0Saar1Sr2Saaaaa", "half-open closed"},
		{"a success does not close before the others have their results", 0, false, "a0Saa1Srr", "half-open"},
		{"a failure opens", 0, false, "a0Fr", "half-open open"},
		{"a failure after a success does not", 0, false, "a0Saa1Fr", "half-open"},
		{"failures beside a success do not", 0, false, "a0Saa1F2Faaaa", "half-open closed"},
		{"two of three are half", 0.5, false, "a0Saa1F2Fr", "half-open open"},
		{"one of three is less than half", 0.5, false, "a0Saa1F2Saaaa", "half-open closed"},
		{"one of three is a third", 0.3, false, "a0Saa1F2Sr", "half-open open"},
		{"429 is a success", 0, false, "a0Aa1Aa2Aaaaa", "half-open closed"},
		{"429 is a success, beside failures", 0, false, "a0Aaa1F2Faaaa", "half-open closed"},
		{"a canceled probe frees its slot", 0, false, "ar0xar1xar", "half-open"},
		{"an unknown result frees its slot", 0, false, "ar0Nar1Nar", "half-open"},
		{"a canceled probe is not a success", 0, false, "a0xa1xa2xa3Saar", "half-open"},
		{"canceled after a success", 0, false, "a0Saar1xar2xar", "half-open"},
		{"the next one follows after a cooldown", 0, false, "a+r+ar+r+ar", "half-open"},
		{"a late success counts", 0, false, "a++ar0Saar", "half-open"},
		{"a late success counts beside new probes", 0, false, "a++a0Saa1S2Saaaa", "half-open closed"},
		{"lost probes do not delay those after a success", 0, false, "a++a++a++a++a4Saar5S6Saaaa", "half-open closed"},
		{"an older probe that is canceled makes no room", 0, false, "a++a1S0xaar", "half-open"},
		{"late results after that", 0, false, "a++a++a++a++a4S0S1Saaaa", "half-open closed"},
		{"a late failure opens", 0, false, "a++a0Fr", "half-open open"},
		{"more late failures are no change", 0, false, "a++a++a0F1F2Fr", "half-open open"},
		{"a success of the other probe", 0, false, "a++a0F1Sa2Sa3Saaaa", "half-open open half-open closed"},
		{"successes of the other probes", 0, false, "a++a++a++a0F1S2S3Saaaa", "half-open open closed"},
		{"a late success of a closed circuit", 0, false, "a++a1Saa2S3S0Saaaa", "half-open closed"},
		{"a second result is ignored", 0, false, "a0S0S0S0F", "half-open"},
		{"a second failure is ignored", 0.5, false, "a0Saa1F1F1F", "half-open"},
		{"a second cancel is ignored", 0, false, "a0xa0xr0xr", "half-open"},
		{"a success after a cancel is ignored", 0, false, "a0x0S0S0S", "half-open"},
		{"static: three at once", 0, true, "aaar0S1S2Saaaa", "half-open closed"},
		{"static: one after the other", 0, true, "a0Saar1S2Saaaa", "half-open closed"},
		{"static: a failure opens", 0, true, "aaa0Fr1Fr", "half-open open"},
		{"static: a canceled probe frees its slot", 0, true, "aaar1xar", "half-open"},
		{"static: a lost probe frees its slot", 0, true, "aaa++ar++ar", "half-open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const cooldown = 8 * time.Second
			b := record(Rules{FailureRatio: tt.ratio, MinRequests: 1, Cooldown: cooldown, MaxCooldown: cooldown, Static: tt.static})
			at := b.opened(t, epoch)
			var permits []Permit
			for i := 0; i < len(tt.steps); i++ {
				msg := []any{"step %d of %s", i, tt.steps}
				switch c := tt.steps[i]; c {
				case 'a', 'r':
					rejectedUntil, rejects := b.rejects(at)
					permit, notBefore, ok := b.admit(at)
					require.Equal(t, c == 'a', ok, msg...)
					require.Equal(t, rejects, !ok, msg...)
					if ok {
						permits = append(permits, permit)
					} else {
						require.True(t, notBefore.After(at), msg...)
						require.Equal(t, rejectedUntil, notBefore, msg...)
						require.LessOrEqual(t, notBefore.Sub(at), cooldown*5/4, msg...)
					}
				case '+':
					at = at.Add(cooldown * 5 / 8)
				default:
					i++
					if tt.steps[i] == 'x' {
						permits[c-'0'].Cancel(at)
						continue
					}
					b.done(permits[c-'0'], Result{Server: outcomes[tt.steps[i]]}, at)
				}
			}
			require.Equal(t, strings.TrimSpace("open "+tt.want), b.path())
			for i, c := range b.changes[1:] {
				require.Equal(t, b.changes[i].To, c.From)
			}
		})
	}
}

// The circuit closes gradually after timeouts, or if probes fail more slowly than the failures that opened it, unless
// the responses to the probes are slower still.
func TestOpening_slowStart(t *testing.T) {
	const quick, slow = 10 * time.Millisecond, 500 * time.Millisecond
	for _, tt := range []struct {
		name   string
		opened byte   // T: a timeout opens it; otherwise as in probes
		probes string // q, s: quick and slow successes; Q, S: quick and slow failures; t: slower than slow
		want   bool
	}{
		{"timeout", 'T', "qqq", true},
		{"quick failure", 'Q', "qqq", false},
		{"quick failure, probes fail as quickly", 'Q', "QQqqq", false},
		{"quick failure, a probe fails slowly", 'Q', "QSqqq", true},
		{"quick failure, a probe fails slowly beside successes", 'Q', "qSq", true},
		{"quick failure, a probe fails slowly, and the next quickly", 'Q', "SQqqq", false},
		{"slow error, probes fail as slowly", 'S', "SSqqq", false},
		{"timeout, then a quick failure", 'T', "Qqqq", true},
		{"timeout, responses are slower", 'T', "qqt", false},
		{"timeout, responses are as slow", 'T', "qqs", true},
		{"a probe fails slowly, responses are slower", 'Q', "Sqqt", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(Rules{MinRequests: 1})
			b.done(b.must(t, epoch), Result{Server: outcome.Works, Took: quick}, epoch)
			at := epoch.Add(time.Minute)
			latency := map[byte]time.Duration{'q': quick, 'Q': quick, 's': slow, 'S': slow, 'T': slow, 't': slow + 1}
			b.done(b.must(t, at), Result{Server: outcome.Fails, Took: latency[tt.opened], TimeOut: tt.opened == 'T'}, at)
			for _, c := range []byte(tt.probes) {
				if until, rejects := b.rejects(at); rejects {
					at = until
				}
				r := Result{Server: outcome.Works, Took: latency[c]}
				if c < 'a' {
					r.Server = outcome.Fails
				}
				b.done(b.must(t, at), r, at)
			}
			require.Equal(t, Closed, b.Find(host).Status(at).State)
			require.Equal(t, tt.want, b.limit() != nil)
		})
	}
}

// §4.15: a probe is sent a cooldown after the one before. The cooldown doubles each time that a probe fails, up to a
// maximum, and begins anew after the circuit was closed. Up to a quarter is added at random, also to the maximum. Unless
// the rules are static, the cooldown follows the latency of the failure.
func TestOpening_cooldown(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		rules Rules
		took  time.Duration
		want  []time.Duration // without jitter: until the first probe, and after each one
	}{
		{"at once", Rules{}, 0, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"quick", Rules{}, 20 * ms, []time.Duration{100 * ms, 100 * ms, 160 * ms, 160 * ms}},
		{"twice the failure", Rules{}, 300 * ms, []time.Duration{600 * ms, 600 * ms, 1200 * ms, 2400 * ms, 2400 * ms}},
		{"just less than a second", Rules{}, 999 * ms, []time.Duration{1e9, 1e9, 2e9, 4e9, 4e9}},
		{"a second: the next one may be sent while it hangs", Rules{}, 1000 * ms, []time.Duration{1e9, 1e9, 1e9}},
		{"half a minute", Rules{}, 30 * time.Second, []time.Duration{1e9, 1e9, 1e9}},
		{"written out", Rules{}.withDefaults(), 20 * ms, []time.Duration{100 * ms, 100 * ms, 160 * ms, 160 * ms}},
		{"Cooldown set", Rules{Cooldown: 2e9}, 999 * ms, []time.Duration{2e9, 2e9, 4e9, 4e9}},
		{"Cooldown set, half a minute", Rules{Cooldown: 2e9}, 30 * time.Second, []time.Duration{2e9, 2e9, 2e9}},
		{"MaxCooldown set", Rules{MaxCooldown: 1e9}, 300 * ms, []time.Duration{600 * ms, 600 * ms, 1e9, 1e9}},
		{"MaxCooldown below twice the failure", Rules{MaxCooldown: 500 * ms}, 300 * ms, []time.Duration{500 * ms, 500 * ms}},
		{"maximum below the first", Rules{Cooldown: 8e9, MaxCooldown: 4e9}, 0, []time.Duration{8e9, 8e9}},
		{"static", Rules{Static: true}, 0, []time.Duration{100 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 4e9, 4e9}},
		{"static, whatever the latency", Rules{Static: true}, 30 * time.Second, []time.Duration{100 * ms, 100 * ms, 200 * ms}},
		{"static, huge", Rules{Cooldown: 1 << 60, MaxCooldown: math.MaxInt64, Static: true}, 0, []time.Duration{1 << 60, 1 << 60, 1 << 61}},
		{"static, negative", Rules{Cooldown: -1, Static: true}, 0, []time.Duration{ms, ms, 2 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			jitters := map[time.Duration]bool{}
			for range 20 {
				rules := tt.rules
				rules.MinRequests, rules.Probes = 1, 1
				if rules.MaxCooldown == 0 {
					rules.MaxCooldown = 4 * time.Second
				}
				b, at := record(rules), epoch.Add(tt.took)
				if tt.took >= slowFailure {
					b.Circuit(host).outage.usual = 200 * ms // at least one of five calls is a probe
				}
				again := []time.Duration{0}
				if tt.took >= slowFailure && !rules.Static {
					again = nil // slow start would reject
				}
				for i, want := range append(tt.want, again...) {
					switch {
					case want == 0: // closed in between
						require.Equal(t, 1, b.run(at, "S"))
						want = tt.want[0]
						at = b.openedBy(t, at, tt.took)
					case i == 0:
						at = b.openedBy(t, at, tt.took)
					default:
						b.done(b.must(t, at), Result{Server: outcome.Fails, Took: tt.took}, at)
					}
					until, rejects := b.rejects(at)
					require.True(t, rejects)
					wait := until.Sub(at)
					require.GreaterOrEqual(t, wait, want, "%d", i)
					require.LessOrEqual(t, wait, want+want/4, "%d", i)
					jitters[wait-want] = true

					permit, notBefore, ok := b.admit(until.Add(-1))
					require.False(t, ok)
					require.Zero(t, permit)
					require.Equal(t, until, notBefore)
					at = until
				}
			}
			require.Greater(t, len(jitters), 10, "the jitter is random, at the maximum too")
		})
	}
	t.Run("no duration overflows", func(t *testing.T) {
		b := &recorded{Breaker: New(Rules{MinRequests: 1, Cooldown: math.MaxInt64, MaxCooldown: math.MaxInt64, Window: math.MaxInt64}, time.Now())}
		until := b.opened(t, time.Now())
		require.True(t, until.After(time.Now().Add(200*365*24*time.Hour)), "%v", until)
	})
}

// The first cooldown of a client with few calls is the usual time between two results. Soon after the circuit closed, it is
// still that of before.
func TestOpening_cooldownFollowsTheUsualRate(t *testing.T) {
	b, at := record(Rules{Probes: 1}), epoch
	for range 40 {
		b.run(at, "S")
		at = at.Add(time.Second / 2)
	}
	for range 2 {
		for b.Find(host).Status(at).State == Closed {
			b.run(at, "F")
			at = at.Add(time.Second / 2)
		}
		at = at.Add(-time.Second / 2)
		until, _ := b.rejects(at)
		require.GreaterOrEqual(t, until.Sub(at), 400*time.Millisecond)
		require.LessOrEqual(t, until.Sub(at), 650*time.Millisecond)
		require.Equal(t, 1, b.run(until, "S"))
		at = until
	}
}

// §4.15: while the circuit is open, each route that has not failed in the outage is tested once, at once. What succeeds is
// not limited by slow start.
func TestOpening_otherRoutes(t *testing.T) {
	route := func(n uint64) func() uint64 { return func() uint64 { return n } }
	type attempt struct {
		route    uint64
		tests    bool
		admitted bool
	}
	for _, tt := range []struct {
		name     string
		rules    Rules
		attempts []attempt
	}{
		{"the route that failed waits", Rules{}, []attempt{{1, true, false}}},
		{"another one is tested once", Rules{}, []attempt{{2, true, true}, {2, true, false}, {3, true, true}}},
		{"a request that must not test waits", Rules{}, []attempt{{2, false, false}}},
		{"Static: all wait", Rules{Static: true}, []attempt{{2, true, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := record(tt.rules)
			c := b.Circuit(host)
			for range DefaultMinRequests {
				p, _ := c.Admit(epoch, route(1), true)
				b.done(p, Result{Server: outcome.Fails, Route: 1}, epoch)
			}
			require.Equal(t, "open", b.path())
			for i, a := range tt.attempts {
				p, rejection := c.Admit(epoch, route(a.route), a.tests)
				b.note(p.Change)
				require.Equal(t, a.admitted, rejection == nil, "attempt %d", i)
			}
		})
	}
	t.Run("as many routes as are known", func(t *testing.T) {
		b := record(Rules{})
		c := b.Circuit(host)
		for i := range uint64(30) {
			p, _ := c.Admit(epoch, route(1+i%maxRoutes), true)
			b.done(p, Result{Server: outcome.Fails, Route: 1 + i%maxRoutes}, epoch)
		}
		_, rejection := c.Admit(epoch, route(100), true)
		require.NotNil(t, rejection, "if sixteen routes have failed, all others are taken for failing too")
	})
	t.Run("a route that was tested and works passes slow start", func(t *testing.T) {
		b := record(Rules{Probes: 1})
		at := b.openedBy(t, epoch, outageLatency)
		c := b.Circuit(host)
		p, rejection := c.Admit(at, route(2), true)
		require.Nil(t, rejection)
		b.done(p, Result{Server: outcome.Works, Took: outageLatency / 2}, at)
		require.NotNil(t, b.limit())
		for range 5 {
			_, rejection = c.Admit(at, route(2), true)
			require.Nil(t, rejection)
		}
	})
}
