package overhead

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
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
	rows := Measure(named, 3, time.Millisecond, Loads()[0], InMemory())
	require.Len(t, rows, 2)
	require.InDelta(t, 1, rows[0].Ratio, 0)
	require.Zero(t, rows[0].Allocs)
	require.Positive(t, rows[1].Low)
	require.LessOrEqual(t, rows[1].Low, rows[1].Ratio)
	require.LessOrEqual(t, rows[1].Ratio, rows[1].High)
	require.Greater(t, rows[1].Allocs, 0.0)
	require.Less(t, rows[1].Allocs, 20.0)

	// A body of any size is streamed, not copied.
	rows = Measure(named, 1, time.Millisecond, Load{"POST", http.MethodPost, 1 << 20}, InMemory())
	require.Less(t, rows[1].Bytes, 8192.0)
}

// Each time of a table is positive.
func requireTimes(t *testing.T, table *report.Table, rows ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")[2:]
	require.Len(t, lines, len(rows))
	for i, line := range lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		require.Equal(t, rows[i], cells[0])
		took, err := time.ParseDuration(cells[1])
		require.NoError(t, err)
		require.Positive(t, took, line)
	}
}

func TestAdded(t *testing.T) {
	requireTimes(t, Added(3, time.Millisecond, 1, 10), "GET, scopes: 1", "GET, scopes: 10", "POST 64 B, scopes: 1", "POST 64 B, scopes: 10")
	require.Equal(t, "1.50", ratio(3, 2))
	require.Equal(t, "–", ratio(3, 0), "nothing to divide by")
	require.Positive(t, processorTime())
}

func TestHosts(t *testing.T) {
	table := Hosts(2, 50, 20, 1, 30)
	require.Regexp(t, `\| 1 \| .*\n\| 30 \| .* \| [1-9]\d* \|\n$`, table.String(), "hosts, and bytes of each")
}

func TestCPU(t *testing.T) {
	requireTimes(t, MemoryCPU(2, 50), "GET", "POST 64 B")
	url, stop, err := StartServer(serveFlag)
	require.NoError(t, err)
	defer stop()
	requireTimes(t, LoopbackCPU(url, 2, 20), "GET", "POST 64 B")
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

// serveFlag makes this test binary the server, like -serve of the command.
const serveFlag = "-serve"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveFlag {
		if err := Serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Over loopback, the server is another process.
func TestLoopback(t *testing.T) {
	url, stop, err := StartServer(serveFlag)
	require.NoError(t, err)
	named, err := peers.Named("bare," + peers.Ours)
	require.NoError(t, err)
	for _, l := range Loads() {
		way := Loopback(url)
		for _, way.Parallel = range []bool{false, true} {
			rows := Measure(named, 2, time.Millisecond, l, way)
			require.Len(t, rows, 2)
			require.Positive(t, rows[1].Ratio, l.Name)
		}
	}

	resp, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	stop()
	_, err = http.Get(url)
	require.Error(t, err)
}

func TestStartServer_errors(t *testing.T) {
	_, _, err := StartServer("-test.list=^$") // this program, without Serve
	require.ErrorContains(t, err, "the server has not said where it is")
}
