package gates

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// serves is the environment variable that makes this program the server, behind the gate
// that it names.
const serves = "GATES_SERVE"

func TestMain(m *testing.M) {
	if name := os.Getenv(serves); name != "" {
		serve(gates()[name])
		return
	}
	os.Exit(m.Run())
}

// serve is a server until standard input ends, as it does when the client dies.
func serve(gate gate) {
	busy := roundsIn(work)
	gated, limit := gate(context.Background(), busy)
	mux := http.NewServeMux()
	mux.Handle("/", resilienthttp.Deadline{}.Handler(gated))
	mux.Handle("/plain", busy)
	mux.HandleFunc("/limit", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, limit()) })
	server := httptest.NewServer(mux)
	_, _ = fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// open starts a server as a process of its own.
func open(b *testing.B, gate string) *client {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), serves+"="+gate)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe() // it ends with this process, at the latest
	require.NoError(b, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	c := &client{http: &http.Client{Transport: resilienthttp.NewBase()}}
	b.Cleanup(func() {
		c.http.CloseIdleConnections()
		_ = cmd.Wait() // the context of the benchmark is over, which has killed it
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(b, err)
	c.url = strings.TrimSpace(line)
	return c
}

// limit is how many the gate lets in at the moment.
func (s *client) limit(b *testing.B) (n int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/limit", http.NoBody)
	require.NoError(b, err)
	resp, err := s.http.Do(req)
	require.NoError(b, err)
	_, err = fmt.Fscan(resp.Body, &n)
	require.NoError(b, err)
	require.NoError(b, resp.Body.Close())
	return n
}

// busy is a handler that needs nothing but a processor, for so many turns, and does not look
// whether anybody waits for it.
type busy int

func (h busy) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for range h {
		turn()
	}
	w.WriteHeader(http.StatusNoContent)
}

// turn is some microseconds of work.
func turn() {
	var block [4096]byte
	sum := sha256.Sum256(block[:])
	runtime.KeepAlive(sum)
}

// roundsIn is how many turns a processor makes in a time, if nobody else wants it.
func roundsIn(d time.Duration) busy {
	const some = 100
	best := time.Hour
	for range 20 {
		begun := time.Now()
		for range some {
			turn()
		}
		best = min(best, time.Since(begun))
	}
	return busy(max(1, some*d/best))
}
