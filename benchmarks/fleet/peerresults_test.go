package fleet

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func TestPeerResults_ignoreScenariosThatChanged(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "benchmarks", "fleet", "peers.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	c := Config{Scenario: Scenario{Name: "a", During: time.Second}, Topology: Shared}
	add := func(peer string, succeeded int) {
		c.Peer = peers.Peer{Name: peer}
		var rows Rows
		rows.Add(Result{Config: c, Offered: 100, Succeeded: succeeded})
		require.NoError(t, StorePeerResults(root, &rows, []Tally{{Peer: peer, Trials: 7}}))
	}
	for peer, succeeded := range map[string]int{"azcore": 90, "failsafe-go": 95, "naive": 99} {
		add(peer, succeeded)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	b, err := parsed(text)
	require.NoError(t, err)
	name, best := b.best(c)
	require.Equal(t, "failsafe-go", name, "naive is not one of the defaults")
	require.InDelta(t, 0.95, best.Success, 1e-9)
	require.Equal(t, 7, b.Tallies["azcore"].Trials)

	c.Scenario.Note = "another description"
	name, _ = b.best(c)
	require.Equal(t, "failsafe-go", name)
	c.Scenario.Load.Rate = 7
	name, _ = b.best(c)
	require.Empty(t, name)
}

// Results of changed scenarios do not count; -remember measures them again.
func TestReadPeerResults_areOfTheCurrentScenarios(t *testing.T) {
	b, err := ReadPeerResults()
	require.NoError(t, err)
	current, all := 0, 0
	scenarios, err := Named("all")
	require.NoError(t, err)
	for _, s := range scenarios {
		for _, topology := range []Topology{Shared, Own} {
			if !s.RunsIn(topology) {
				continue
			}
			for _, peer := range peers.Defaults() {
				stored, ok := b.Runs[Config{Scenario: s, Peer: peers.Peer{Name: peer}, Topology: topology}.String()]
				if ok {
					all++
				}
				if ok && stored.Model == s.fingerprint() {
					current++
				}
			}
		}
	}
	require.Equal(t, all, current)
}

func TestFingerprint_dependsOnTheModel(t *testing.T) {
	old := Scenario{Name: "a", Server: Server{Faults: []Fault{{Response: Response{Err: ErrReset}}}}, Load: Load{Paths: []Part{{"/a", 0.5}}}}
	for name, tt := range map[string]struct {
		change func(*Scenario)
		same   bool
	}{
		"no change: the same":                      {func(*Scenario) {}, true},
		"a note, a reason, a row: the same":        {func(s *Scenario) { s.Note, s.Reason, s.Row = "x", "y", 7 }, true},
		"targets: the same":                        {func(s *Scenario) { s.Targets = []Target{recoversWithin(1)} }, true},
		"a rate: another":                          {func(s *Scenario) { s.Load.Rate = 7 }, false},
		"the same value in another field: another": {func(s *Scenario) { s.Before, s.During = s.During, 1 }, false},
		"an error: another":                        {func(s *Scenario) { s.Server.Faults = []Fault{{Response: Response{Err: ErrRefused}}} }, false},
		"a share: another":                         {func(s *Scenario) { s.Load.Paths = []Part{{"/a", 0.6}} }, false},
		"one fault more: another": {func(s *Scenario) {
			s.Server.Faults = append(s.Server.Faults, Fault{})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := old
			tt.change(&s)
			require.Equal(t, tt.same, s.fingerprint() == old.fingerprint())
		})
	}
	require.NotEqual(t, Scenario{Before: 1}.fingerprint(), Scenario{During: 1}.fingerprint())
}
