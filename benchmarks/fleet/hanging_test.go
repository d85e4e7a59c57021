package fleet

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// judge runs a scenario with this library and a bare client, and returns the missed targets.
func judge(t *testing.T, s Scenario, seed uint64) (missed []Verdict) {
	t.Helper()
	libraries, err := peers.Named(peers.Ours + ",bare")
	require.NoError(t, err)
	var rows Rows
	for _, p := range libraries {
		rows.Add(Run(t, Config{Scenario: s, Peer: p, Topology: Shared, Seed: seed}))
	}
	for _, v := range rows.VerdictsOf(rows.results[rows.keys[0]]) {
		if by, err := strconv.ParseFloat(v.MissedBy, 64); !v.Reached && (v.What != "success, vs bare" || err != nil || by > findsEnd) {
			missed = append(missed, v)
		}
	}
	return missed
}

// findsEnd are the calls of some two seconds: a probe a second finds the end of the hang, and slow start follows.
const findsEnd = 0.02

// L2: the circuit of a server that only hangs opens, and callers are then held for a small part of
// their timeout. These draws are fixed; `fleet -hangs` has fresh ones. The client's jitter is not
// seeded: a draw must miss a target twice to fail.
func TestHanging_targets(t *testing.T) {
	if testing.Short() {
		t.Skip("a dozen runs")
	}
	for _, s := range append(hanging(), DrawnHangs(gateSeed, gateHangs)...) {
		missed := judge(t, s, Seed)
		if len(missed) > 0 {
			missed = judge(t, s, Seed)
		}
		require.Empty(t, missed, "-scenario=%s: %s", s.Name, s.Note)
	}
}

const (
	gateSeed  = 1
	gateHangs = 8
)

// A bare client misses each target of a hanging server.
func TestHanging_bareClientMissesThem(t *testing.T) {
	libraries, err := peers.Named("bare")
	require.NoError(t, err)
	for _, s := range hanging() {
		r := Run(t, Config{Scenario: s, Peer: libraries[0], Topology: Shared, Seed: Seed})
		require.InDelta(t, never.Seconds(), failsAtOnce(r), 0.1, s.Name)
		require.InDelta(t, 1, r.Targets[s.Targets[1].What], 0.01, s.Name)
	}
}

// A name repeats its draw. The draws are different, and within the ranges of the row.
func TestDrawnHangs(t *testing.T) {
	seen := map[string]bool{}
	short := 0
	for _, s := range DrawnHangs(7, 90) {
		again, err := Named(s.Name)
		require.NoError(t, err)
		require.Len(t, again, 1)
		require.Equal(t, s.Note, again[0].Note)
		seen[s.Note] = true
		if s.Targets == nil {
			short++
		}
		timeout := s.Load.Deadline
		if timeout < 0 {
			timeout = s.Server.AttemptTimeout
		}
		require.GreaterOrEqual(t, timeout, time.Second)
		require.LessOrEqual(t, timeout, time.Minute+time.Millisecond)
		require.GreaterOrEqual(t, s.Load.Rate, 2.0)
		require.LessOrEqual(t, s.Load.Rate, 200.0)
	}
	require.Len(t, seen, 90)
	require.Equal(t, 30, short)
	for _, name := range []string{"hang-7", "hang-x-1", "hang-7-17x", "hang--7-1", "hang-7--1"} {
		_, err := Named(name)
		require.Error(t, err, name)
	}
}
