package circuit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.15: the cooldown grows each time that the circuit opens again, and begins anew after it
// was closed. Up to a quarter is added at random, also to the maximum. Unless the rules are
// static, the cooldown follows the latency of the failure. A failure as long as the first cooldown
// leaves only the minimum.
func TestOpening_cooldown(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		rules Rules
		took  time.Duration
		want  []time.Duration // without jitter
	}{
		{"at once", Rules{}, 0, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"quick", Rules{}, 20 * ms, []time.Duration{100 * ms, 160 * ms, 160 * ms}},
		{"twice the failure", Rules{}, 300 * ms, []time.Duration{600 * ms, 1200 * ms, 2400 * ms, 2400 * ms}},
		{"half a second", Rules{}, 500 * ms, []time.Duration{1000 * ms, 2000 * ms, 4000 * ms, 4000 * ms}},
		{"just less than a second", Rules{}, 999 * ms, []time.Duration{1e9, 2e9, 4e9, 4e9}},
		{"a second: the failure itself took the time", Rules{}, 1000 * ms, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"half a minute", Rules{}, 30 * time.Second, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"written out", Rules{}.withDefaults(), 20 * ms, []time.Duration{100 * ms, 160 * ms, 160 * ms}},
		{"Cooldown set", Rules{Cooldown: 1e9}, 999 * ms, []time.Duration{1e9, 2e9, 4e9, 4e9}},
		{"Cooldown set, half a minute", Rules{Cooldown: 1e9}, 30 * time.Second, []time.Duration{1e9, 1e9, 1e9}},
		{"Cooldown set, longer than the failure", Rules{Cooldown: 3e9}, 2 * time.Second, []time.Duration{3e9, 4e9, 4e9}},
		{"Cooldown set, at once", Rules{Cooldown: 1e9}, 0, []time.Duration{1e9, 1e9, 1e9}},
		{"MaxCooldown set", Rules{MaxCooldown: 1e9}, 300 * ms, []time.Duration{600 * ms, 1000 * ms, 1000 * ms}},
		{"MaxCooldown below twice the failure", Rules{MaxCooldown: 500 * ms}, 300 * ms, []time.Duration{500 * ms, 500 * ms}},
		{"maximum below the first", Rules{Cooldown: 8e9, MaxCooldown: 4e9}, 0, []time.Duration{8e9, 8e9}},
		{"no growth", Rules{MaxCooldown: -1}, 30 * time.Second, []time.Duration{100 * ms, 100 * ms}},
		{"static", Rules{Static: true}, 0, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 4000 * ms, 4000 * ms}},
		{"static, whatever the latency", Rules{Static: true}, 30 * time.Second, []time.Duration{100 * ms, 200 * ms}},
		{"static, half of the maximum", Rules{Cooldown: 2e9, Static: true}, 0, []time.Duration{2e9, 4e9, 4e9}},
		{"static, huge", Rules{Cooldown: 1 << 60, MaxCooldown: math.MaxInt64, Static: true}, 0, []time.Duration{1 << 60, 1 << 61, 1 << 62}},
		{"static, negative", Rules{Cooldown: -1, Static: true}, 0, []time.Duration{minCooldown, 2 * minCooldown, 4 * minCooldown}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			jitters := map[time.Duration]bool{}
			for range 20 {
				rules := tt.rules
				rules.MinRequests, rules.Probes = 1, 1
				if rules.MaxCooldown == 0 {
					rules.MaxCooldown = 4 * time.Second
				}
				b, at := record(rules), epoch
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
					until, rejects := b.rejects(at, false)
					require.True(t, rejects)
					wait := until.Sub(at)
					require.GreaterOrEqual(t, wait, want)
					require.LessOrEqual(t, wait, want+want/4)
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

// §4.15: a retry that is rejected after the cooldown gets a NotBefore in the future.
func TestOpening_notBeforeIsInTheFuture(t *testing.T) {
	b := record(Rules{MinRequests: 1, Cooldown: time.Second})
	until := b.opened(t, epoch)
	for _, at := range []time.Time{epoch, until.Add(-1), until, until.Add(time.Minute), until.Add(time.Hour)} {
		notBefore, rejects := b.rejects(at, true)
		require.True(t, rejects)
		require.True(t, notBefore.After(at))
	}
}
