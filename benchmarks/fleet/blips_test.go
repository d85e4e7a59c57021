package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Each kind of failure affects about a quarter of the calls.
func TestBlips_useEachClientOnce(t *testing.T) {
	rows := map[int]int{}
	for _, s := range blips() {
		rows[s.Row]++
		clients, paths := map[int]bool{}, map[string]int{}
		n := 0
		for _, c := range s.schedule(Seed, s.Load.Clients) {
			if c.at >= s.Before && c.at < s.Before+s.During {
				require.Less(t, c.at, s.Before+s.During/20+1, "the call starts with the outage")
				clients[c.client] = true
				paths[c.path]++
				n++
			}
		}
		require.Equal(t, s.Load.Clients, n, s.Name)
		require.Len(t, clients, n, s.Name)
		require.Len(t, paths, 4, s.Name)
		for path, calls := range paths {
			require.InDelta(t, n/4, calls, 0.2*float64(n)/4, "%s, %s", s.Name, path)
		}
	}
	require.Equal(t, map[int]int{35: 8, 36: 10}, rows)
}

// A bare client's calls fail during the outage, with all four failures, and not before or
// after it.
func TestBlips_failOnlyDuringTheOutage(t *testing.T) {
	bare, err := peers.Named("bare")
	require.NoError(t, err)
	r := Run(t, Config{Scenario: blip(35, time.Second, callDeadline, false), Peer: bare[0], Topology: Own, Seed: Seed})
	require.Zero(t, r.During.Succeeded)
	require.Equal(t, r.Offered-r.During.Calls, r.Succeeded)
	require.Greater(t, r.After.Calls, 1200)
	require.InDelta(t, 0.75, shown(Row{{Config: r.Config, During: Share{Calls: 4, Succeeded: 3}}}), 0, "the plot shows the calls during the outage")
}

func TestBlips_measureEachKindOfFailure(t *testing.T) {
	for _, s := range blips() {
		r := Result{Config: Config{Scenario: s}}
		for i := range 20 {
			r.calls = append(r.calls, &Call{at: s.Before, path: "/reset", success: i > 0, latency: time.Duration(i) * time.Second})
		}
		measured := map[string]float64{}
		for _, g := range s.Targets {
			measured[g.What] = g.Measure(r)
		}
		require.InDelta(t, 0.95, measured["success, reset"], 1e-9)
		if s.During <= 2*time.Second {
			require.Len(t, measured, 8)
			require.InDelta(t, 19, measured["p95 of successful calls, reset, s"], 1e-9)
		}
	}
}

func TestMetSuccess_countsOnlyItsPathDuringTheOutage(t *testing.T) {
	r := Result{Config: Config{Scenario: Scenario{Before: 10, During: 10}}, calls: []*Call{
		{at: 9, path: "/a", success: true, latency: time.Hour}, {at: 10, path: "/b", success: true, latency: time.Hour},
		{at: 10, path: "/a", success: true, latency: time.Second}, {at: 19, path: "/a", success: true, latency: 2 * time.Second},
		{at: 19, path: "/a", latency: time.Hour}, {at: 20, path: "/a", success: true, latency: time.Hour}, {at: 12, path: "/c"},
	}}
	require.InDelta(t, 2.0/3, metSuccess("/a")(r), 1e-9)
	require.InDelta(t, 2, metQuantile("/a", 0.95)(r), 1e-9)
	require.InDelta(t, never.Seconds(), metQuantile("/c", 0.95)(r), 1e-9, "none succeeded")
}

func TestDeadPorts_measureTheTimeUntilTheError(t *testing.T) {
	naive, err := peers.Named("naive")
	require.NoError(t, err)
	for _, s := range deadPorts() {
		r := Run(t, Config{Scenario: s, Peer: naive[0], Topology: Own, Seed: Seed})
		require.Equal(t, 300, r.Offered)
		require.Zero(t, r.Succeeded)
		require.InDelta(t, 0.3, r.Targets[s.Targets[0].What], 1e-9, "three pauses")
		for _, target := range Verdicts(Row{r}, nil, 0) {
			require.True(t, target.Reached, target.What)
		}
	}
}
