package fleet

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// What other libraries have is kept from one time to the next, and forgotten where
// the scenario has changed since.
func TestBeside(t *testing.T) {
	root := t.TempDir()
	docs, file := filepath.Join(root, "docs"), filepath.Join(root, "benchmarks", "fleet", "peers.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	c := Config{Scenario: Scenario{Name: "trouble", During: time.Second}, Topology: Shared}
	add := func(peer string, succeeded int) {
		c.Peer = peers.Peer{Name: peer}
		var rows Rows
		rows.Add(Result{Config: c, Offered: 100, Succeeded: succeeded})
		require.NoError(t, Remember(docs, &rows, []Tally{{Peer: peer, Trials: 7}}))
	}
	for peer, succeeded := range map[string]int{"azcore": 90, "failsafe-go": 95, "naive": 99} {
		add(peer, succeeded)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	b, err := parsed(text)
	require.NoError(t, err)
	name, had := b.best(c)
	require.Equal(t, "failsafe-go", name, "naive is not one of the defaults")
	require.InDelta(t, 0.95, had.Success, 1e-9)
	require.Equal(t, 7, b.Tallies["azcore"].Trials)

	c.Scenario.Note = "told in other words"
	name, _ = b.best(c)
	require.Equal(t, "failsafe-go", name)
	c.Scenario.Load.Rate = 7
	name, _ = b.best(c)
	require.Empty(t, name)
}

// What is kept can be read.
func TestReadBeside(t *testing.T) {
	_, err := ReadBeside()
	require.NoError(t, err)
}
