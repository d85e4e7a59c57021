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

// A cooldown is between Cooldown and MaxCooldown for all rules.
func FuzzCooldown(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), false)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), false)
	f.Add(int64(1), int64(math.MaxInt64), int64(0), int64(math.MaxInt64), false)
	f.Add(int64(time.Second), int64(-1), int64(time.Second), int64(time.Hour), true)
	f.Fuzz(func(t *testing.T, cooldown, most, before, took int64, static bool) {
		r := Rules{Cooldown: time.Duration(cooldown), MaxCooldown: time.Duration(most), Static: static}.withDefaults()
		last := min(time.Duration(max(before, 0)), r.MaxCooldown)
		if last > 0 { // the circuit opens again
			last = max(last, r.Cooldown)
		}
		got := r.cooldown(last, time.Duration(max(took, 0)))
		require.GreaterOrEqual(t, got, r.Cooldown)
		require.LessOrEqual(t, got, r.MaxCooldown)
		require.GreaterOrEqual(t, jittered(got), got)
		require.LessOrEqual(t, jittered(got)-got, got/4)
	})
}

// A failure that took longer never makes for a shorter cooldown.
func TestCooldownGrowsWithLatency(t *testing.T) {
	r := Rules{MaxCooldown: math.MaxInt64}.withDefaults()
	for _, before := range []time.Duration{0, DefaultCooldown, time.Minute} {
		last := time.Duration(0)
		for took := time.Duration(1); took > 0; took *= 2 {
			got := r.cooldown(before, took)
			require.GreaterOrEqual(t, got, last, "%v after %v", took, before)
			last = got
		}
	}
}
