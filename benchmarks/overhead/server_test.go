package overhead

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

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
