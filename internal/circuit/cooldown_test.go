package circuit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
		{"static, negative", Rules{Cooldown: -1, Static: true}, 0, []time.Duration{minCooldown, minCooldown, 2 * minCooldown}},
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
						b.done(b.must(t, at), Result{Outcome: Failure, Took: tt.took}, at)
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
		for b.Find(host).State(at) == Closed {
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
