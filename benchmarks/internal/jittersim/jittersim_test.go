package jittersim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func noBackoff(int, time.Duration) time.Duration { return 0 }

func TestMean(t *testing.T) {
	first := Mean(3, 20, noBackoff)
	require.Equal(t, first, Mean(3, 20, noBackoff), "seeded")

	one := Run(1, noBackoff, 1)
	require.InDelta(t, 1, one.Calls, 0, "one client writes once")
	require.Positive(t, one.Time)
}

// Without a backoff there are n rounds with one successful write each.
func TestRun_oneClientSucceedsPerRound(t *testing.T) {
	const clients = 50
	o := Run(clients, noBackoff, 7)
	require.LessOrEqual(t, o.Calls, float64(clients*(clients+1)/2))
	require.Greater(t, o.Calls, float64(clients*(clients+1)/2)/3)
}

func TestQueue(t *testing.T) {
	var q queue
	for _, at := range []time.Duration{5, 3, 8, 1, 9, 2, 7, 4, 6, 0} {
		q.push(message{at: at})
	}
	for want := range time.Duration(10) {
		require.Equal(t, want, q.pop().at)
	}
	require.Empty(t, q)
}
