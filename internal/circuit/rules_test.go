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
		{"all written out", zero, zero},
		{"all set", Rules{0.5, 5, time.Minute, 2 * time.Second, time.Hour, 7, true}, Rules{0.5, 5, time.Minute, 2 * time.Second, time.Hour, 7, true}},
		{"all negative", Rules{-1, -1, -1, -1, -1, -1, false}, Rules{-1, 1, DefaultWindow, window.MinLength, window.MinLength, 1, false}},
		{"all tiny", Rules{1e-9, 1, 1, 1, 1, 1, false}, Rules{1e-9, 1, window.MinLength, tick, tick, 1, false}},
		{"a ratio above one", Rules{FailureRatio: math.Inf(1)}, Rules{FailureRatio: 1}.withDefaults()},
		{"a cooldown above the default maximum", Rules{Cooldown: time.Hour}, Rules{MaxCooldown: time.Hour, Cooldown: time.Hour}.withDefaults()},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, tt.rules.withDefaults()) })
	}
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
		{"timeouts", Rules{}, time.Minute, 200 * ms, time.Second},
		{"timeouts: one of five calls is a probe", Rules{}, time.Minute, 60 * ms, 300 * ms},
		{"timeouts of a busy client", Rules{}, time.Minute, ms, DefaultCooldown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := tt.rules.withDefaults()
			require.Equal(t, tt.want, rules.firstCooldown(tt.took, tt.usual))
		})
	}
}
