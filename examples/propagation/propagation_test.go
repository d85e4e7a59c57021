package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPropagation(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	t.Log("\n" + out.String())
	assert.Regexp(t, `(?m)^stock +27 +\d+ +3 +\d+$`, out.String())
}

func TestChecks(t *testing.T) {
	t.Parallel()
	tiers := func(calls int, left time.Duration) []tierStats {
		return []tierStats{{name: "the caller", calls: 1, left: time.Second}, {name: "stock", calls: calls, left: left}}
	}
	require.NoError(t, check("good", tiers(3, time.Millisecond), 3))
	require.ErrorContains(t, check("calls", tiers(27, time.Millisecond), 3), "27 requests")
	require.Error(t, check("no deadline", tiers(3, -time.Hour), 3))
	require.Error(t, check("own deadline", tiers(3, time.Second), 3))

	stops := func(after time.Duration) []tierStats { return []tierStats{{name: "stock", ended: after}} }
	require.NoError(t, checkStops(stops(time.Second), time.Second))
	require.Error(t, checkStops(stops(hang), time.Second))
	require.Error(t, checkStops(stops(0), time.Second))
}
