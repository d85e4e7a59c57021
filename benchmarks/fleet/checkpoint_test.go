package fleet

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func TestCheckpoint_doesNotRepeatStoredRuns(t *testing.T) {
	bare, err := peers.Named("bare")
	require.NoError(t, err)
	scenarios, err := Named("outage")
	require.NoError(t, err)
	runs := []Config{{Scenario: scenarios[0].Scaled(2 * time.Second), Peer: bare[0], Topology: Shared, Seed: 1}}
	file := filepath.Join(t.TempDir(), "checkpoint.json")

	all := func() []Result {
		k, err := OpenCheckpoint(file)
		require.NoError(t, err)
		results := RunAll(t, runs, k, func(Result) {})
		require.NoError(t, k.Close())
		return results
	}
	first := all()
	require.Positive(t, first[0].Offered)
	again := all()
	require.Equal(t, first[0].Took, again[0].Took, "not run again")
	require.Equal(t, first[0].Load, again[0].Load)
	require.Equal(t, Line(first), Line(again))

	runs[0].Seed = 2
	require.NotEqual(t, first[0].Load, all()[0].Load, "another run")

	require.NoError(t, os.WriteFile(file, []byte("no JSON"), 0o600))
	_, err = OpenCheckpoint(file)
	require.Error(t, err)
	require.NoError(t, (*Checkpoint)(nil).Close())
}
