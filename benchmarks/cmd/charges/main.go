// Charges charges 500 customers through an API that loses each tenth response and is away for 4 s: the same program with three
// clients. No client has a loop around it, and the program sets no key. Time is virtual, so it takes a second:
//
//	go run ./benchmarks/cmd/charges
//	go run ./benchmarks/cmd/charges -key   # the program sends a key of its own: the number of the invoice
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/transcript"
)

func main() {
	key := flag.Bool("key", false, "send a key with each charge")
	flag.Parse()
	bubble.Main(func(t *testing.T) error {
		_, _ = fmt.Fprint(os.Stdout, table(t, *key))
		return nil
	})
}

// charge is the program: one call, and its error.
func charge(client peers.Client, url string, key bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"amount": 100}`))
	if err != nil {
		return err
	}
	if key {
		req.Header.Set("Idempotency-Key", req.URL.Path)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return errors.New(resp.Status)
	}
	return nil
}

// README.md names these numbers.
const (
	customers = 500
	perSecond = 50
	deadline  = 10 * time.Second
	away      = 4 * time.Second
)

// result is what the ledger of the API and the callers say.
type result struct {
	ledger  map[string]int  // charges of each customer
	failed  map[string]bool // calls that returned an error
	slowest time.Duration   // of the calls that returned none
	sent    int             // requests to the API
}

// run makes all calls through one client. The API executes each key once, and each request without a key.
func run(library peers.Peer, key bool) result {
	r := result{ledger: map[string]int{}, failed: map[string]bool{}}
	var mu sync.Mutex
	tried := map[string]bool{}
	work := &faulttest.Idempotent{Latency: 20 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		r.ledger[req.URL.Path]++
		w.WriteHeader(http.StatusCreated)
	})}
	tenth := func(req *http.Request) bool { // the first request of each tenth customer
		mu.Lock()
		defer mu.Unlock()
		first := !tried[req.URL.Path]
		tried[req.URL.Path] = true
		return first && strings.HasSuffix(req.URL.Path, "0")
	}
	api := faulttest.NewInMemory(nil, faulttest.Script{
		{After: away, Until: 2 * away, Handler: faulttest.Status(http.StatusServiceUnavailable)},
		{Match: tenth, Handler: faulttest.LoseResponse(work)},
		{Handler: work},
	})
	defer api.Close()
	base := api.Transport()
	defer base.CloseIdleConnections()
	client := library.New(peers.Setting{Base: base})
	var calls sync.WaitGroup
	for i := range customers {
		calls.Go(func() {
			customer, began := fmt.Sprintf("/charges/%d", i), time.Now()
			err := charge(client, api.URL+customer, key)
			mu.Lock()
			defer mu.Unlock()
			if r.failed[customer] = err != nil; err == nil {
				r.slowest = max(r.slowest, time.Since(began))
			}
		})
		<-time.After(time.Second / perSecond)
	}
	calls.Wait()
	r.sent = api.Total()
	return r
}

// count returns how many customers have these charges and this end of their call.
func (r result) count(is func(charges int, failed bool) bool) (n int) {
	for customer, failed := range r.failed {
		if is(r.ledger[customer], failed) {
			n++
		}
	}
	return n
}

// table compares the libraries.
func table(t *testing.T, key bool) string {
	libraries, err := peers.Named("bare,go-retryablehttp," + peers.Ours)
	if err != nil {
		t.Fatal(err)
	}
	titles := []string{fmt.Sprintf("of %d customers", customers)}
	rows := [][]string{{"doubled"}, {"charged once"}, {"not charged"}, {"charged, but the call failed"}, {"requests, about"}, {"a charge takes, at most"}}
	for _, library := range libraries {
		var r result
		slowest := 0.0
		const runs = 10 // their mean: chance moves the slowest of one run by a second
		for range runs {
			r = bubble.Run(t, func() result { return run(library, key) })
			slowest += r.slowest.Seconds() / runs
		}
		titles = append(titles, library.Name)
		for i, cell := range []int{
			r.count(func(charges int, _ bool) bool { return charges > 1 }),
			r.count(func(charges int, _ bool) bool { return charges == 1 }),
			r.count(func(charges int, _ bool) bool { return charges == 0 }),
			r.count(func(charges int, failed bool) bool { return charges > 0 && failed }),
			(r.sent + 50) / 100 * 100, // waits are random, so two runs differ by one or two
		} {
			rows[i] = append(rows[i], strconv.Itoa(cell))
		}
		rows[5] = append(rows[5], fmt.Sprintf("%.0f s", max(math.Exp2(math.Ceil(math.Log2(slowest))), 2))) // a power of two, because the waits are random
	}
	return transcript.Table(titles, rows)
}
