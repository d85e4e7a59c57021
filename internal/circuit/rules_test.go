package circuit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// §4.23: 0 means the default, and a default that is written out changes nothing.
func TestRulesDefaults(t *testing.T) {
	const tick = time.Millisecond
	zero := Rules{}.withDefaults()
	require.Equal(t, Rules{
		FailureRatio: DefaultFailureRatio, MinRequests: DefaultMinRequests, Window: DefaultWindow,
		Cooldown: DefaultCooldown, MaxCooldown: DefaultMaxCooldown, Probes: DefaultProbes,
	}, zero)
	for _, tt := range []struct {
		name  string
		rules Rules
		want  Rules
	}{
		{"FailureRatio", Rules{FailureRatio: DefaultFailureRatio}, zero},
		{"MinRequests", Rules{MinRequests: DefaultMinRequests}, zero},
		{"Window", Rules{Window: DefaultWindow}, zero},
		{"Cooldown", Rules{Cooldown: DefaultCooldown}, zero},
		{"MaxCooldown", Rules{MaxCooldown: DefaultMaxCooldown}, zero},
		{"Probes", Rules{Probes: DefaultProbes}, zero},
		{"all of them", zero, zero},
		{"all set", Rules{0.5, 5, time.Minute, 2 * time.Second, time.Hour, 7, true}, Rules{0.5, 5, time.Minute, 2 * time.Second, time.Hour, 7, true}},
		{"all negative", Rules{-1, -1, -1, -1, -1, -1, false}, Rules{-1, 1, DefaultWindow, minCooldown, minCooldown, 1, false}},
		{"all tiny", Rules{1e-9, 1, 1, 1, 1, 1, false}, Rules{1e-9, 1, window.MinLength, tick, tick, 1, false}},
		{"a ratio above one", Rules{FailureRatio: math.Inf(1)}, Rules{FailureRatio: 1}.withDefaults()},
		{"a cooldown above the default maximum", Rules{Cooldown: time.Hour}, Rules{MaxCooldown: time.Hour, Cooldown: time.Hour}.withDefaults()},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, tt.rules.withDefaults()) })
	}
}

func TestRulesOff(t *testing.T) {
	for ratio, off := range map[float64]bool{-1: true, math.Inf(-1): true, 0: false, math.SmallestNonzeroFloat64: false, 1: false, math.Inf(1): false} {
		r := Rules{FailureRatio: ratio}.withDefaults()
		require.Equal(t, off, r.off(), "%v", ratio)
	}
	r := Rules{FailureRatio: math.NaN()}.withDefaults()
	require.True(t, r.off())
}

// The first cooldown is between Cooldown and MaxCooldown for all rules.
func FuzzFirstCooldown(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), false)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), false)
	f.Add(int64(1), int64(math.MaxInt64), int64(0), int64(math.MaxInt64), false)
	f.Add(int64(time.Second), int64(-1), int64(time.Second), int64(time.Hour), true)
	f.Fuzz(func(t *testing.T, cooldown, most, usual, took int64, static bool) {
		r := Rules{Cooldown: time.Duration(cooldown), MaxCooldown: time.Duration(most), Static: static}.withDefaults()
		got := r.firstCooldown(time.Duration(max(took, 0)), time.Duration(max(usual, 0)))
		require.GreaterOrEqual(t, got, r.Cooldown)
		require.LessOrEqual(t, got, r.MaxCooldown)
		longest := r.longestCooldown(time.Duration(max(took, 0)))
		require.GreaterOrEqual(t, longest, time.Duration(0))
		require.LessOrEqual(t, longest, r.MaxCooldown)
	})
}

// L2: the server gets no more probes than it got calls before. So the first cooldown is at least the usual time between
// two results, but at most a second.
func TestRules_firstCooldown(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name              string
		rules             Rules
		took, usual, want time.Duration
	}{
		{"quick failures of a busy client", Rules{}, 20 * ms, ms, DefaultCooldown},
		{"of a client with few calls", Rules{}, 20 * ms, 700 * ms, 700 * ms},
		{"of a client with very few calls", Rules{}, 20 * ms, time.Minute, time.Second},
		{"slow failures: twice their latency", Rules{}, 300 * ms, 200 * ms, 600 * ms},
		{"timeouts", Rules{}, time.Minute, 200 * ms, time.Second},
		{"timeouts: one of five calls is a probe", Rules{}, time.Minute, 60 * ms, 300 * ms},
		{"timeouts of a busy client", Rules{}, time.Minute, ms, DefaultCooldown},
		{"Cooldown is longer", Rules{Cooldown: 3 * time.Second}, time.Minute, time.Minute, 3 * time.Second},
		{"MaxCooldown is shorter", Rules{MaxCooldown: 200 * ms}, time.Minute, time.Minute, 200 * ms},
		{"static", Rules{Static: true}, time.Minute, time.Minute, DefaultCooldown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := tt.rules.withDefaults()
			require.Equal(t, tt.want, rules.firstCooldown(tt.took, tt.usual))
		})
	}
}
