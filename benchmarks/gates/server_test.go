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

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// serves is the environment variable that makes this program a server. Its value names the
// gate.
const serves = "GATES_SERVE"

func TestMain(m *testing.M) {
	if name := os.Getenv(serves); name != "" {
		serve(gates()[name])
		return
	}
	os.Exit(m.Run())
}

// serve is a server until the end of its standard input, which is when the client ends.
func serve(gate gate) {
	busy := roundsIn(work)
	gated, limit := gate(context.Background(), busy)
	mux := http.NewServeMux()
	mux.Handle("/", resilienthttp.DeadlineHandler{Next: gated})
	mux.Handle("/plain", busy)
	mux.HandleFunc("/limit", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, limit()) })
	server := httptest.NewServer(mux)
	_, _ = fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// open starts a server in a separate process.
func open(b *testing.B, gate string) *client {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), serves+"="+gate)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe() // its end stops the server
	require.NoError(b, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	c := &client{http: &http.Client{Transport: resilienthttp.NewBase()}}
	b.Cleanup(func() {
		c.http.CloseIdleConnections()
		_ = cmd.Wait() // the end of the benchmark's context has killed it
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(b, err)
	c.url = strings.TrimSpace(line)
	return c
}

// limit is the current limit of the gate.
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

// busy is a handler that only computes, for a number of rounds. It ignores the context.
type busy int

func (h busy) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for range h {
		turn()
	}
	w.WriteHeader(http.StatusNoContent)
}

// turn is a round of some microseconds of work.
func turn() {
	var block [4096]byte
	sum := sha256.Sum256(block[:])
	runtime.KeepAlive(sum)
}

// roundsIn is the number of rounds in the time on an idle processor.
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

// BenchmarkTake takes from a quota in memory that is not exhausted, with one key.
func BenchmarkTake(b *testing.B) {
	const limit = 1 << 30
	ctx := context.Background()
	bucket := &admission.Quota{Limit: limit, Window: time.Hour}
	sliding := &admission.Quota{Limit: limit, Window: time.Hour, Sliding: true}
	simple, err := memorystore.New(&memorystore.Config{Tokens: limit, Interval: time.Hour})
	require.NoError(b, err)
	store, err := memstore.NewCtx(65536)
	require.NoError(b, err)
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(limit), MaxBurst: limit - 1})
	require.NoError(b, err)
	for _, row := range []struct {
		name string
		take func() error
	}{
		{"resilienthttp", func() error { _, err := bucket.Take(ctx, "tenant-1", 1); return err }},
		{"resilienthttp, sliding", func() error { _, err := sliding.Take(ctx, "tenant-1", 1); return err }},
		{"go-limiter", func() error { _, _, _, _, err := simple.Take(ctx, "tenant-1"); return err }}, //nolint:dogsled // its signature
		{"throttled", func() error { _, _, err := gcra.RateLimitCtx(ctx, "tenant-1", 1); return err }},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := row.take(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
