//go:build killed

package restart

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

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
