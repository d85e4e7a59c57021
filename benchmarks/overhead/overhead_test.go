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

// The test compares no times: they depend on other programs.
func TestMeasureHosts(t *testing.T) {
	rows := MeasureHosts(2, 50, 20, []int{1, 30})
	require.Len(t, rows, 2)
	require.Equal(t, 30, rows[1].Hosts)
	require.Positive(t, rows[1].Bytes)
}

func TestMeasureCPU(t *testing.T) {
	for _, r := range MeasureCPU(2, 50) {
		require.Positive(t, r.Floor, r.Load.Name)
		require.Positive(t, r.Quotas, r.Load.Name)
	}
	url, stop, err := StartServer(serveFlag)
	require.NoError(t, err)
	defer stop()
	for _, r := range MeasureLoopbackCPU(url, 2, 20) {
		require.Positive(t, r.Bare, r.Load.Name)
		require.Positive(t, r.Ours, r.Load.Name)
	}
	require.InDelta(t, 1.5, CPURow{Bare: 2, Floor: 2, Ours: 3}.OfBare(), 0)
	require.InDelta(t, 1.5, CPURow{Floor: 2, Ours: 3}.OfFloor(), 0)
	require.InDelta(t, 2, CPURow{Ours: 3, Quotas: 6}.OfQuotas(), 0)
	require.Zero(t, CPURow{Ours: 3}.OfBare(), "nothing to divide by")
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
