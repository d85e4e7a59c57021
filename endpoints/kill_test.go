package endpoints_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
)

// regionLedger is the name of the variable that makes the test binary a region: its value is the file to
// which the region appends the key of each POST before it responds.
const regionLedger = "ENDPOINTS_TEST_LEDGER"

func TestMain(m *testing.M) {
	if ledger := os.Getenv(regionLedger); ledger != "" {
		err := serveRegion(ledger, os.Getenv("ENDPOINTS_TEST_ADDRESS"))
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveRegion is a server that knows its own keys, and not those of the other region.
func serveRegion(ledger, address string) error {
	known := map[string]bool{}
	for _, key := range keysIn(ledger) {
		known[key] = true
	}
	file, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	fmt.Println("listening on", listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			mu.Lock()
			defer mu.Unlock()
			if key := r.Header.Get("Idempotency-Key"); !known[key] {
				known[key] = true
				_, _ = fmt.Fprintln(file, key)
				time.Sleep(3 * time.Millisecond) // work that a kill interrupts after its effect
			}
		}
		w.WriteHeader(http.StatusOK)
	}))
}

func keysIn(ledger string) []string {
	content, _ := os.ReadFile(ledger)
	return strings.Fields(string(content))
}

// startRegion starts a process, and returns when it listens.
func startRegion(t *testing.T, ledger, address string) (*exec.Cmd, string) {
	t.Helper()
	region := exec.Command(os.Args[0])
	region.Env = append(os.Environ(), regionLedger+"="+ledger, "ENDPOINTS_TEST_ADDRESS="+address)
	region.Stderr = os.Stderr
	out, err := region.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, region.Start())
	t.Cleanup(func() { _ = region.Process.Kill(); _ = region.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return region, strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// N1, N3: two real processes, of which the first is killed with SIGKILL again and again. No GET fails.
// No POST is done twice, and one that fails says so.
func TestTransport_kill9(t *testing.T) {
	dir := t.TempDir()
	ledgers := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	first, firstAt := startRegion(t, ledgers[0], "127.0.0.1:0")
	_, secondAt := startRegion(t, ledgers[1], "127.0.0.1:0")
	tr := &endpoints.Transport{Endpoints: []endpoints.Endpoint{
		{Name: "a", URL: parse(t, "http://"+firstAt)}, {Name: "b", URL: parse(t, "http://"+secondAt)},
	}}
	defer tr.CloseIdleConnections()
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	paid, failed, at := map[string]bool{}, 0, map[string]int{}
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key, method := fmt.Sprintf("%d-%d", caller, i), http.MethodGet
				if caller%2 == 0 {
					method = http.MethodPost
				}
				ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(context.Background(), key), time.Minute)
				req, err := http.NewRequestWithContext(ctx, method, "http://"+firstAt+"/"+key, strings.NewReader("x"))
				if !assert.NoError(t, err) {
					cancel()
					return
				}
				resp, err := tr.RoundTrip(req)
				mu.Lock()
				switch {
				case err == nil:
					attempts := resilienthttp.Attempts(resp)
					at[attempts[len(attempts)-1].Endpoint]++
					if method == http.MethodPost {
						paid[key] = true
					}
					_ = resp.Body.Close()
				case method == http.MethodPost:
					failed++
				default:
					t.Errorf("a GET failed: %v", resilienthttp.Explain(resp, err))
				}
				mu.Unlock()
				cancel()
				time.Sleep(time.Millisecond)
			}
		})
	}
	for range 3 {
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, first.Process.Kill()) // SIGKILL
		_ = first.Wait()
		time.Sleep(300 * time.Millisecond)
		first, _ = startRegion(t, ledgers[0], firstAt)
	}
	close(stop)
	callers.Wait()
	done := map[string]int{}
	for _, ledger := range ledgers {
		for _, key := range keysIn(ledger) {
			done[key]++
		}
	}
	for key, times := range done {
		assert.Equal(t, 1, times, "POST %s", key)
	}
	for key := range paid {
		assert.Equal(t, 1, done[key], "POST %s had a response", key)
	}
	t.Logf("%d POSTs done, %d failed; responses from %v", len(done), failed, at)
	assert.NotZero(t, at["a"])
	assert.NotZero(t, at["b"])
}
