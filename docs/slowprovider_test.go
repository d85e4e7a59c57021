package docs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// charged is what has become of 500 charges.
type charged struct {
	paid, doubt, doubled, requests int
	longest                        time.Duration // of those that are paid
}

// chargeAll charges 500 customers, ten a second, with a deadline of 10 s. One of ten backends takes 15 s for each request, and
// then charges. All backends know each other's keys.
func chargeAll(t *testing.T, transport *resilienthttp.Transport) (c charged) {
	var charges faulttest.Idempotent
	var mu sync.Mutex
	quick := usual(&charges)
	slow := after(15*time.Second, &charges)
	backends := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rand.IntN(10) == 0 {
			slow.ServeHTTP(w, r)
			return
		}
		quick.ServeHTTP(w, r)
	})
	bank := faulttest.NewInMemory(t, backends)
	client := &http.Client{Transport: bank.Transport()}
	if transport != nil {
		transport.Base = bank.Transport()
		client.Transport = transport
	}
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(t.Context(), fmt.Sprint("invoice:", i)), 10*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, bank.URL+"/charges", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Idempotency-Key", fmt.Sprint("invoice:", i)) // the bare client sends it too
			begun := time.Now()
			resp, err := client.Do(req)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && resp.StatusCode == http.StatusCreated {
				c.paid++
				c.longest = max(c.longest, time.Since(begun))
			} else if resilienthttp.InDoubt(resp, err) {
				c.doubt++
			}
			if resp != nil {
				_ = resp.Body.Close()
			}
		})
		time.Sleep(time.Second / 10)
	}
	all.Wait()
	time.Sleep(20 * time.Second) // the slow ones end
	for _, n := range charges.Executions() {
		c.doubled += n - 1
	}
	c.requests = bank.Total()
	return c
}

// docs/payments.md has the figures of a run, which this test prints: what a slow backend does to charges with keys.
func TestPayments_slowProvider(t *testing.T) {
	const s = time.Second
	timeout := resilienthttp.Policy{AttemptTimeout: 2 * s}
	for _, row := range []struct {
		name        string
		transport   *resilienthttp.Transport // nil: the bare client
		least, most int                      // charges in doubt
	}{
		{"http.Client", nil, 20, 85},
		{"Transport", &resilienthttp.Transport{}, 20, 85},
		{"AttemptTimeout", &resilienthttp.Transport{Policy: timeout}, 0, 50},
		{"Hedge, MaxRatio 0.05", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s}}, 5, 60},
		{"Hedge, MaxRatio 0.2", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s, MaxRatio: 0.2}}, 0, 20},
		{"both", &resilienthttp.Transport{Policy: timeout, Hedge: &resilienthttp.Hedge{Delay: s, MaxRatio: 0.2}}, 0, 10},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			c := chargeAll(t, row.transport)
			t.Logf("%s: %d paid, %d in doubt, %d requests, %v at most", row.name, c.paid, c.doubt, c.requests, c.longest)
			require.Zero(t, c.doubled)
			require.Equal(t, 500, c.paid+c.doubt)
			require.GreaterOrEqual(t, c.doubt, row.least)
			require.LessOrEqual(t, c.doubt, row.most)
		})
	}
}
