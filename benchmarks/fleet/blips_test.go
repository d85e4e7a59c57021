package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// TestBlips_eachCallIsOfAnotherClient: and each kind of failure meets about a quarter.
func TestBlips_eachCallIsOfAnotherClient(t *testing.T) {
	rows := map[int]int{}
	for _, s := range blips() {
		rows[s.Row]++
		clients, paths := map[int]bool{}, map[string]int{}
		n := 0
		for _, c := range s.schedule(Seed, s.Load.Clients) {
			if c.at >= s.Before && c.at < s.Before+s.During {
				require.Less(t, c.at, s.Before+s.During/20+1, "it meets all of it")
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

// TestBlips_failEachInItsWay: a bare client's calls fail in the blip, all four kinds, and
// none before or after it.
func TestBlips_failEachInItsWay(t *testing.T) {
	bare, err := peers.Named("bare")
	require.NoError(t, err)
	r := Run(t, Config{Scenario: blip(35, time.Second, patience, false), Peer: bare[0], Topology: Own, Seed: Seed})
	require.Zero(t, r.During.Succeeded)
	require.Equal(t, r.Offered-r.During.Calls, r.Succeeded)
	require.Greater(t, r.After.Calls, 1200)
	require.InDelta(t, 0.75, shown(Row{{Config: r.Config, During: Share{Calls: 4, Succeeded: 3}}}), 0, "the plot shows those")
}

// TestBlips_goals: the success and the latency of each kind, and the tail of a short blip.
func TestBlips_goals(t *testing.T) {
	for _, s := range blips() {
		r := Result{Config: Config{Scenario: s}}
		for i := range 20 {
			r.calls = append(r.calls, &call{at: s.Before, path: "/reset", success: i > 0, latency: time.Duration(i) * time.Second})
		}
		measured := map[string]float64{}
		for _, g := range s.Goals {
			measured[g.What] = g.Measure(r)
		}
		require.InDelta(t, 0.95, measured["success, met by a reset"], 1e-9)
		if s.During <= 2*time.Second {
			require.Len(t, measured, 8)
			require.InDelta(t, 19, measured["p95 of success, met by a reset, s"], 1e-9)
		}
	}
}

func TestAtPath(t *testing.T) {
	r := Result{Config: Config{Scenario: Scenario{Before: 10, During: 10}}, calls: []*call{
		{at: 9, path: "/a", success: true, latency: time.Hour}, {at: 10, path: "/b", success: true, latency: time.Hour},
		{at: 10, path: "/a", success: true, latency: time.Second}, {at: 19, path: "/a", success: true, latency: 2 * time.Second},
		{at: 19, path: "/a", latency: time.Hour}, {at: 20, path: "/a", success: true, latency: time.Hour}, {at: 12, path: "/c"},
	}}
	require.InDelta(t, 2.0/3, metSuccess("/a")(r), 1e-9)
	require.InDelta(t, 2, metQuantile("/a", 0.95)(r), 1e-9)
	require.InDelta(t, never.Seconds(), metQuantile("/c", 0.95)(r), 1e-9, "none succeeded")
}

// TestDeadPorts_saysWhenTheErrorCame: by the calls that failed.
func TestDeadPorts_saysWhenTheErrorCame(t *testing.T) {
	naive, err := peers.Named("naive")
	require.NoError(t, err)
	for _, s := range deadPorts() {
		r := Run(t, Config{Scenario: s, Peer: naive[0], Topology: Own, Seed: Seed})
		require.Equal(t, 300, r.Offered)
		require.Zero(t, r.Succeeded)
		require.InDelta(t, 0.3, r.Goals[s.Goals[0].What], 1e-9, "three pauses")
		for _, target := range Targets(Row{r}, nil, 0) {
			require.True(t, target.Reached, target.What)
		}
	}
}
