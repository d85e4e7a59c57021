package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func TestGroups_haveEachScenarioOnce(t *testing.T) {
	seen := map[string]string{}
	for _, name := range Groups() {
		some, err := InGroups(name)
		require.NoError(t, err)
		require.NotEmpty(t, some, name)
		for _, s := range some {
			require.Empty(t, seen[s.Name], "%s is in two groups", s.Name)
			seen[s.Name] = name
		}
	}
	require.Equal(t, seen, groupsByScenario())
	all, err := Named("all")
	require.NoError(t, err)
	require.Len(t, seen, len(all)+len(ride()), "all leaves out the ride")
	for _, s := range all {
		require.Contains(t, seen, s.Name)
	}
}

func TestInGroups(t *testing.T) {
	both, err := InGroups("small,ports")
	require.NoError(t, err)
	require.Len(t, both, len(smallFleets())+len(deadPorts()))
	_, err = InGroups("small,unknown")
	require.ErrorContains(t, err, `no group "unknown" (want base, `)
}

// Runs of a bare client are short.
func TestRunAll_returnsResultsInTheOrderOfTheRuns(t *testing.T) {
	bare, err := peers.Named("bare")
	require.NoError(t, err)
	var runs []Config
	for _, rate := range []float64{10, 1000, 100} {
		s := Scenario{Name: "x", During: time.Second, Load: Load{Rate: rate, Clients: 1}}
		runs = append(runs, Config{Scenario: s, Peer: bare[0], Topology: Own, Seed: Seed})
	}
	var rates []float64
	RunAll(t, runs, func(r Result) { rates = append(rates, r.Scenario.Load.Rate) })
	require.Equal(t, []float64{10, 1000, 100}, rates)
}

func TestVerdictText_listsMetThenMissed(t *testing.T) {
	ours := func(name string, targets ...Target) Result {
		r := Result{Config: Config{Scenario: Scenario{Name: name, Targets: targets}, Peer: peers.Peer{Name: peers.Ours}, Topology: Own}}
		r.measure()
		return r
	}
	is := func(v float64) func(Result) float64 { return func(Result) float64 { return v } }
	var rows Rows
	rows.Add(ours("outage", atLeast("a", is(0.5), 0.75, "%.2f"), atMost("b", is(7), 4, "%.0f").goal(), atMost("c", is(1), 2, "%.0f")))
	rows.Add(ours("dead-port-no-deadline", atMost("d", is(never.Seconds()), 12, "%.1f").inSeconds(), atLeast("e", is(2), 1, "%.0f").goal()))
	require.Equal(t, `outage                     own    met            c ≤ 2: 1
dead-port-no-deadline      own    met            e goal ≥ 1: 2
outage                     own    goal missed    b goal ≤ 4: 7, by 3
outage                     own    MISSED         a ≥ 0.75: 0.50, by 0.25
dead-port-no-deadline      own    MISSED         d ≤ 12.0: never
base          1 of 2 targets met, 0 of 1 goals
ports         0 of 1 targets met, 1 of 1 goals
all           1 of 3 targets met, 1 of 2 goals
`, rows.VerdictText())
}
