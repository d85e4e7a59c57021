package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// named returns libraries by their names.
func named(t *testing.T, names string) []peers.Peer {
	t.Helper()
	found, err := peers.Named(names)
	require.NoError(t, err)
	return found
}

// configOf is that of a run of one library.
func configOf(t *testing.T, s Scenario, peer string, topology Topology) Config {
	t.Helper()
	return Config{Scenario: s, Peer: named(t, peer)[0], Topology: topology, Seed: Seed}
}

// short runs ten virtual seconds of a scenario.
func short(t *testing.T, scenario, peer string, topology Topology) Result {
	t.Helper()
	return scaled(t, 10*time.Second, scenario, peer, topology)
}

func scaled(t *testing.T, length time.Duration, scenario, peer string, topology Topology) Result {
	t.Helper()
	scenarios, err := Named(scenario)
	require.NoError(t, err)
	r := Run(t, configOf(t, scenarios[0].scaledTo(length), peer, topology))
	t.Logf("\n%s\n%s", Header(), Line(Row{r}))
	return r
}

// These results of bare and naive clients verify the model.
func TestModel(t *testing.T) {
	r := short(t, "healthy", "bare", Own)
	require.Equal(t, r.Offered, r.Succeeded)
	require.Equal(t, r.Offered, r.Attempts)
	require.InDelta(t, 10*Rate, r.Offered, 400, "four standard deviations")
	require.Equal(t, defaultService, r.P50)

	r = short(t, "outage", "bare", Shared)
	require.InDelta(t, 0.75, r.Success(), 0.01)

	r = short(t, "outage", "naive", Shared)
	require.InDelta(t, 4, r.WorstDuring, 0.3)

	r = short(t, "brownout", "naive", Own)
	require.False(t, r.Recovered, "timeouts are shorter than the queue that retries keep full")

	r = short(t, "quota", "bare", Own)
	require.Equal(t, r.Offered-r.Succeeded, r.TooMany)

	r = short(t, "tail", "bare", Shared)
	require.Equal(t, r.Offered, r.Succeeded, "attempts of the tail scenario have no timeout")
	require.Equal(t, 20*time.Millisecond, r.P50)
	require.Equal(t, time.Second, r.P99)
}

// The main results of this library, in ten virtual seconds of each scenario.
func TestOurs(t *testing.T) {
	for _, topology := range []Topology{Shared, Own} {
		r := short(t, "errors", peers.Ours, topology)
		require.Equal(t, r.Offered, r.Succeeded)
		require.LessOrEqual(t, r.AttemptsPerCall(), 1.013)
	}

	r := short(t, "outage", peers.Ours, Shared)
	require.LessOrEqual(t, r.WorstSecond, 2.5, "calls that waited, beside new ones")
	require.Less(t, r.AttemptsPerCall(), 1.1)
	require.GreaterOrEqual(t, r.Success(), 0.95, "0.75 without waits: the outage is shorter than the calls' time")
	require.True(t, r.Recovered)
	require.LessOrEqual(t, r.Recovery, time.Second)

	r = short(t, "brownout", peers.Ours, Shared)
	require.Less(t, r.AttemptsPerCall(), 1.1)
	require.Greater(t, r.Success(), 0.6, "0.51 without retries, 0.14 with naive ones")
	require.True(t, r.Recovered)

	r = short(t, "quota", peers.Ours, Shared)
	require.Zero(t, r.TooManyLater)
	require.GreaterOrEqual(t, r.QuotaUsed, 0.98)
}

// The command writes these results after a few short runs.
func TestResults_haveAllSections(t *testing.T) {
	var rows Rows
	for _, scenario := range []string{"outage", "quota", "tail", "brownout"} {
		for _, topology := range []Topology{Shared, Own} {
			for _, peer := range []string{"bare", peers.Ours, peers.OursHedged} {
				rows.Add(scaled(t, 2*time.Second, scenario, peer, topology))
			}
		}
	}
	text := LibraryResults(&rows) + TargetResults(&rows) + ScenarioResults(&rows, []Tally{{Peer: peers.Ours, Trials: 100, Harmed: 2, Worst: -0.03, Mean: 0.05}})
	for _, want := range []string{"| **resilienthttp** |", "## Outage", "## Quota", "## Tail", "Mean success of all rows", "100 random combinations", "8 of 8 rows"} {
		require.Contains(t, text, want)
	}
	_, reasons, _ := strings.Cut(TargetResults(&rows), "## Reasons")
	said := map[string]bool{}
	for line := range strings.Lines(reasons) {
		_, reason, ok := strings.Cut(line, ": ")
		require.False(t, said[reason], line)
		said[reason] = ok
	}
}

// scaledTo returns the scenario with all times scaled to the length.
func (s Scenario) scaledTo(length time.Duration) Scenario {
	scale := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * float64(length) / float64(s.Length())).Round(time.Second / 10)
	}
	s.Server, s.Load = s.Server.scaled(scale), s.Load.scaled(scale)
	s.Before, s.During, s.After = scale(s.Before), scale(s.During), scale(s.After)
	return s
}

// scaled returns the server with scaled times of its faults.
func (s Server) scaled(scale func(time.Duration) time.Duration) Server {
	faults, staff, paces := make([]Fault, len(s.Faults)), make([]Staff, len(s.Staff)), slices.Clone(s.Paces)
	for i, f := range s.Faults {
		f.From, f.To = scale(f.From), scale(f.To)
		faults[i] = f
	}
	for i, p := range s.Staff {
		p.From, p.To = scale(p.From), scale(p.To)
		staff[i] = p
	}
	for i := range paces {
		paces[i].From, paces[i].To = scale(paces[i].From), scale(paces[i].To)
	}
	s.Faults, s.Staff, s.Paces = faults, staff, paces
	return s
}

// scaled returns the load with scaled times of its surges.
func (l Load) scaled(scale func(time.Duration) time.Duration) Load {
	l.Surges = slices.Clone(l.Surges)
	for i := range l.Surges {
		l.Surges[i].From, l.Surges[i].To = scale(l.Surges[i].From), scale(l.Surges[i].To)
	}
	return l
}
