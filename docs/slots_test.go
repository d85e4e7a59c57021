package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/transcript"
)

// optional makes the optional call of an order's handler: it makes one attempt, and does not wait for an open circuit.
func optional(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	ctx = resilienthttp.WithSingleAttempt(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// shopOfSlots is a server with ten slots that gets 25 orders a second for 24 s. The handler of each order makes an optional GET
// to a server that is away from 4 s to 20 s.
type shopOfSlots struct {
	transport http.RoundTripper
	deadline  time.Duration
	single    bool
}

const (
	slots        = 10
	ordersTotal  = 600
	ordersSecond = 25
)

// lost returns how many orders found no free slot.
func (s shopOfSlots) lost(t *testing.T) int {
	var free, refused atomic.Int64
	free.Store(slots)
	client := &http.Client{Transport: s.transport}
	var all sync.WaitGroup
	for range ordersTotal {
		all.Go(func() {
			defer free.Add(1)
			if free.Add(-1) < 0 {
				refused.Add(1)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), s.deadline)
			defer cancel()
			time.Sleep(latency) // the order
			get := optional
			if !s.single {
				get = repeated
			}
			if resp, err := get(ctx, client, "http://offers.test/offers"); err == nil {
				_ = resp.Body.Close()
			}
		})
		time.Sleep(time.Second / ordersSecond)
	}
	all.Wait()
	return int(refused.Load())
}

// repeated is optional with the retries and waits of the Transport.
func repeated(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// lostOrders returns the number, or a bound that is the same each time.
func lostOrders(runs []int) string {
	most := slices.Max(runs)
	if slices.Min(runs) == most {
		return strconv.Itoa(most)
	}
	return fmt.Sprint("at most ", (most+99)/100*100)
}

// slotsExample has the orders that are lost because their callers hold slots while they wait.
func slotsExample(t *testing.T) string {
	var rows [][]string
	for _, row := range []struct {
		name     string
		bare     bool
		maxWait  time.Duration
		deadline time.Duration
		single   bool
	}{
		{name: "http.Client", bare: true, deadline: 2 * time.Second},
		{name: "Transport", deadline: 2 * time.Second},
		{name: "Transport", deadline: 300 * time.Millisecond},
		{name: "Transport, MaxWait -1", maxWait: -1, deadline: 2 * time.Second},
		{name: "Transport, MaxWait -1", maxWait: -1, deadline: 300 * time.Millisecond},
		{name: "Transport, WithSingleAttempt", deadline: 2 * time.Second, single: true},
	} {
		var lost []int
		for range 20 {
			start := time.Now()
			base := observed(func(*http.Request) (*http.Response, error) {
				if at := time.Since(start); at >= 4*time.Second && at < 20*time.Second {
					return nil, syscall.ECONNREFUSED
				}
				time.Sleep(latency)
				return (&statusOrError{status: http.StatusOK}).RoundTrip(nil)
			})
			s := shopOfSlots{deadline: row.deadline, single: row.single}
			if s.transport = base; !row.bare {
				s.transport = &resilienthttp.Transport{Base: base, Breaker: &resilienthttp.Breaker{MaxWait: row.maxWait}}
			}
			lost = append(lost, s.lost(t))
		}
		rows = append(rows, []string{row.name, transcript.Duration(row.deadline), strconv.Itoa(ordersTotal), lostOrders(lost)})
	}
	return transcript.Table([]string{"client of the optional GET", "deadline", "orders", "lost"}, rows)
}
