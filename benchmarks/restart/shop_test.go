//go:build killed

package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// shops is the environment variable that makes this program a shop: the address to listen on and
// the file of the keys, separated by a space.
const shops = "RESTART_SHOP"

func TestMain(m *testing.M) {
	if address, file, ok := strings.Cut(os.Getenv(shops), " "); ok {
		fmt.Fprintln(os.Stderr, serveShop(address, file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const (
	keyHeader = "Idempotency-Key"
	work      = 20 * time.Millisecond // of a request, half of it before and half after the key is stored
)

// serveShop does the work of each key once. The file has the keys of the work that is done: a line
// that was written is there after the process was killed.
func serveShop(address, file string) error {
	go func() { // the end of the standard input is the end of the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	done := ledger{file: file}
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(work / 2)
		if err := done.once(r.Header.Get(keyHeader)); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		time.Sleep(work / 2)
	}))
}

// ledger is the file of the keys.
type ledger struct {
	mu   sync.Mutex
	file string
}

// once appends the key, unless the file has it. The file is small enough to be read each time.
func (l *ledger) once(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := os.ReadFile(l.file)
	if err != nil || slices.Contains(strings.Fields(string(text)), key) {
		return err
	}
	log, err := os.OpenFile(l.file, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = log.WriteString(key + "\n")
	return errors.Join(err, log.Close())
}

// shop is the process of serveShop.
type shop struct {
	tb            testing.TB
	address, file string
	process       *exec.Cmd
}

func newShop(tb testing.TB) *shop {
	tb.Helper()
	l, err := net.Listen("tcp", loopback()+":0")
	require.NoError(tb, err)
	require.NoError(tb, l.Close())
	s := &shop{tb: tb, address: l.Addr().String(), file: filepath.Join(tb.TempDir(), "keys")}
	require.NoError(tb, os.WriteFile(s.file, nil, 0o600))
	s.start()
	tb.Cleanup(s.kill)
	return s
}

// start returns when the shop listens.
func (s *shop) start() {
	s.process = exec.Command(os.Args[0])
	s.process.Env = append(os.Environ(), shops+"="+s.address+" "+s.file)
	s.process.Stderr = os.Stderr
	_, err := s.process.StdinPipe()
	require.NoError(s.tb, err)
	require.NoError(s.tb, s.process.Start())
	awaitListener(s.tb, s.address)
}

// kill ends the process as kill -9 does.
func (s *shop) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// times counts how often the work of each key was done.
func (s *shop) times() map[string]int {
	text, err := os.ReadFile(s.file)
	require.NoError(s.tb, err)
	times := map[string]int{}
	for key := range strings.FieldsSeq(string(text)) {
		times[key]++
	}
	return times
}

const (
	orders   = 236 // of each library
	interval = time.Second / 8
	deadline = 10 * time.Second
	killedAt = 10 * time.Second
)

// order sends one order.
func (s *shop) order(client peers.Client, key string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address, strings.NewReader("{}"))
	if err != nil {
		return false
	}
	req.Header.Set(keyHeader, key)
	return send(client, req) == nil
}

// buy sends the orders of one library, eight a second, and returns which of them succeeded.
func (s *shop) buy(p peers.Peer) map[string]bool {
	base := resilienthttp.NewBase()
	defer base.CloseIdleConnections()
	client := p.New(peers.Setting{Base: base})
	var (
		orderers sync.WaitGroup
		mu       sync.Mutex
		success  = map[string]bool{}
	)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := range orders {
		orderers.Go(func() {
			key := fmt.Sprintf("%s-%d", p.Name, i)
			ok := s.order(client, key)
			mu.Lock()
			defer mu.Unlock()
			success[key] = ok
		})
		<-tick.C
	}
	orderers.Wait()
	return success
}

// A service sends eight POSTs a second with keys. The process of the server is killed, and starts
// again after a while. The target is that a caller with a longer deadline does not notice it. The
// other libraries run beside, for comparison:
//
//	go test -tags killed -run TestKilled -v ./benchmarks/restart
//
// The build tag keeps the test out of other runs: it takes a minute, and misses its targets as long
// as a call fails at once while the circuit is open.
func TestKilled_ordersAreDoneOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		away time.Duration
		most int // failed orders of this library
	}{{2 * time.Second, 0}, {4 * time.Second, 0}, {8 * time.Second, 2}} {
		t.Run(row.away.String(), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			libraries, err := peers.Named("bare,go-retryablehttp," + peers.Ours)
			require.NoError(t, err)
			results := make([]map[string]bool, len(libraries))
			var buyers sync.WaitGroup
			for i, p := range libraries {
				buyers.Go(func() { results[i] = s.buy(p) })
			}
			time.Sleep(killedAt)
			s.kill()
			time.Sleep(row.away)
			s.start()
			buyers.Wait()
			failed := 0
			for i, p := range libraries {
				failed = s.failed(results[i])
				t.Logf("away for %v: %-16s %d of %d failed", row.away, p.Name, failed, orders)
			}
			require.LessOrEqual(t, failed, row.most, "of the last one")
		})
	}
}

// failed counts the orders without success. It checks that each success was done once, and that
// no other order was done more often.
func (s *shop) failed(results map[string]bool) (failed int) {
	times := s.times()
	for _, key := range slices.Sorted(maps.Keys(results)) {
		if results[key] {
			require.Equal(s.tb, 1, times[key], key)
			continue
		}
		require.LessOrEqual(s.tb, times[key], 1, key)
		failed++
	}
	return failed
}
