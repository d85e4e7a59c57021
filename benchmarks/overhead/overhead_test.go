package overhead

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Every peer succeeds with every load.
func TestPeers(t *testing.T) {
	way := InMemory()
	way.Parallel = true
	for _, p := range peers.All() {
		for _, l := range Loads() {
			require.NotPanics(t, func() { newCaller(p, l, way).calls(goroutines) }, "%s, %s", p.Name, l.Name)
		}
	}
}

// The test compares allocations only: times depend on other programs.
func TestMeasure(t *testing.T) {
	named, err := peers.Named("bare," + peers.Ours)
	require.NoError(t, err)
	rows := Measure(Config{Peers: named, Rounds: 3, Batch: time.Millisecond}, Loads()[0], InMemory())
	require.Len(t, rows, 2)
	require.InDelta(t, 1, rows[0].Ratio, 0)
	require.Zero(t, rows[0].Allocs)
	require.Positive(t, rows[1].Low)
	require.LessOrEqual(t, rows[1].Low, rows[1].Ratio)
	require.LessOrEqual(t, rows[1].Ratio, rows[1].High)
	require.Greater(t, rows[1].Allocs, 0.0)
	require.Less(t, rows[1].Allocs, 20.0)

	// A body of any size is streamed, not copied.
	rows = Measure(Config{Peers: named, Rounds: 1, Batch: time.Millisecond}, Load{"POST", http.MethodPost, 1 << 20}, InMemory())
	require.Less(t, rows[1].Bytes, 8192.0)
}

func TestMeasureAdded(t *testing.T) {
	for _, scopes := range []int{1, 10} {
		added, err := MeasureAdded(Config{Rounds: 3, Batch: time.Millisecond}, Loads()[0], scopes)
		require.NoError(t, err)
		require.Positive(t, added.Bare)
	}
	require.InDelta(t, 1.5, Added{Floor: 2, Ours: 3}.Ratio(), 0)
	require.InDelta(t, 3, Added{Ours: 3}.Ratio(), 0, "nothing to divide by")
	require.Positive(t, processorTime())
}

func TestProgram_Size(t *testing.T) {
	programs := Programs()
	least, err := programs[0].Size(t.Context())
	require.NoError(t, err)
	for _, p := range programs[1:] {
		size, err := p.Size(t.Context())
		require.NoError(t, err, p.Name)
		require.Greater(t, size, least, p.Name)
	}
	_, err = Program{Client: "nothing"}.Size(t.Context())
	require.ErrorContains(t, err, "undefined: nothing")
}
