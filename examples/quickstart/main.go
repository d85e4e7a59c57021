// Quickstart charges 500 customers through a payment API that fails in five ways, with the zero value of a
// resilienthttp.Transport. The Transport repeats what is safe to repeat. If the result of a call is unknown after all, the
// program repeats the call later, with the same key. Then the ledger of the API must have each customer once.
//
//	go run ./examples/quickstart   # ten seconds; -charges 100 -workers 5 -v
//
// The API loses 10 % of its responses after the charge, responds to 5 % of the requests with 503 and Retry-After, holds 2 % for
// 0.4 s, has a quota (X-RateLimit-…, 429), and resets all connections for three seconds. It executes each Idempotency-Key once.
// The program exits with status 1 unless each customer is charged once.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

func main() {
	charges := flag.Int("charges", 500, "number of charges")
	workers := flag.Int("workers", 20, "number of concurrent workers")
	verbose := flag.Bool("v", false, "log each attempt to stderr")
	flag.Parse()
	transport := &resilienthttp.Transport{}
	if *verbose {
		transport.Trace = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	}
	fmt.Printf("Charging %d customers through an API that loses responses, is overloaded and slow, has a quota, and is away for 3 s …\n", *charges)
	var ledger ledger
	api := &faulttest.Server{Script: faulty(ledger.work(), 3*time.Second)}
	api.MaxRequests = -1 // count all
	api.Start(nil)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	shop := &shop{url: api.URL + "/v1/charges", client: &http.Client{Transport: transport}}
	err := shop.chargeAll(ctx, orders(*charges), *workers)
	stop()
	api.Close() // waits for requests that are held: then the ledger is complete
	err = errors.Join(err, ledger.audit(*charges))
	fmt.Printf("%d customers, each charged once: %v. %d requests, %d calls repeated by the program.\n", *charges, err == nil, api.Total(), shop.repeated.Load())
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// order is the body of a request: POST /v1/charges.
type order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

func orders(n int) []order {
	all := make([]order, n)
	for i := range all {
		all[i] = order{fmt.Sprintf("shop:invoice:%05d", i+1), 100 + rand.Int64N(100_00)}
	}
	return all
}

// shop is an application: an http.Client with a Transport, and the code that repeats a call later.
type shop struct {
	url      string
	client   *http.Client
	repeated atomic.Int64 // calls that the application repeated
}

// chargeAll charges the orders with concurrent workers.
func (s *shop) chargeAll(ctx context.Context, orders []order, workers int) error {
	todo, errs := make(chan order), make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for o := range todo {
				errs[i] = errors.Join(errs[i], s.charge(ctx, o))
			}
		})
	}
	for _, o := range orders {
		todo <- o
	}
	close(todo)
	all.Wait()
	return errors.Join(errs...)
}

// charge calls the API until the result of the order is known.
//
// The Transport retries transient failures. It returns an error if the breaker is open, if the server asks for a long wait, or
// if attempts, budget or time are used up. Then the result is unknown, and the application repeats the call later with the same
// key. The key is made from the order, so another process can repeat the call too.
func (s *shop) charge(ctx context.Context, o order) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // of all calls
	defer cancel()
	ctx = resilienthttp.WithIdempotencyKey(ctx, o.Reference)
	for {
		err := s.call(ctx, o)
		at, again := callAgain(err)
		if !again {
			return err
		}
		s.repeated.Add(1)
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return err
		}
	}
}

// statusError is the error of a response that is not a receipt.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

var errReceipt = errors.New("the receipt is for another order")

// call makes one call, as with any http.Client. It returns an error unless it gets the receipt of the order.
func (s *shop) call(ctx context.Context, o order) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // the Transport spreads its retries over it
	defer cancel()
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return statusError(resp.StatusCode)
	}
	var receipt order
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&receipt)
	if err == nil && receipt != o {
		err = errReceipt
	}
	return err
}

// callAgain reports whether a repeated call can succeed, and when to make it.
func callAgain(err error) (at time.Time, again bool) {
	var noResponse *resilienthttp.Error
	var status statusError
	switch {
	case err == nil || errors.Is(err, errReceipt):
		return time.Time{}, false
	case errors.As(err, &noResponse):
		again = noResponse.Reason != nil // otherwise the error is permanent, for example an invalid certificate
		at = noResponse.NotBefore        // zero if it is unknown
	case errors.As(err, &status): // the Transport has retried these without success
		again = status == http.StatusConflict || status == http.StatusTooManyRequests || status >= 500
	default:
		again = true // the response was truncated
	}
	if at.IsZero() {
		at = time.Now()
	}
	// All workers got the same NotBefore. Jitter prevents that they call at the same time.
	return at.Add(50*time.Millisecond + rand.N(200*time.Millisecond)), again
}

// ledger has the number of charges of each order.
type ledger struct {
	mu      sync.Mutex
	charges map[string]int
}

// work is the endpoint: it executes each key once, and each request without a key.
func (l *ledger) work() http.Handler {
	l.charges = map[string]int{}
	return &faulttest.Idempotent{Latency: 5 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o order
		_ = json.NewDecoder(r.Body).Decode(&o)
		l.mu.Lock()
		l.charges[o.Reference]++
		l.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(o)
	})}
}

// audit returns an error unless each of n orders was charged once.
func (l *ledger) audit(n int) error {
	for reference, charges := range l.charges {
		if charges != 1 {
			return fmt.Errorf("%s was charged %d times", reference, charges)
		}
	}
	if len(l.charges) != n {
		return fmt.Errorf("of %d orders %d were charged", n, len(l.charges))
	}
	return nil
}

// faulty is the API: its faults in the order in which a request meets them, then the endpoint.
func faulty(work http.Handler, away time.Duration) faulttest.Script {
	return faulttest.Script{
		{After: 500 * time.Millisecond, Until: 500*time.Millisecond + away, Handler: faulttest.ResetBeforeRead}, // not executed
		{Handler: &faulttest.Quota{
			Limit: 50, Window: 250 * time.Millisecond, Dialect: faulttest.Discord, RetryAfterFormat: faulttest.Millis,
			Next: faulttest.Script{
				{Probability: 0.10, Seed: 1, Handler: faulttest.LoseResponse(work)}, // charged, but the client gets no response
				{Probability: 0.05, Seed: 2, Handler: faulttest.Unavailable(50*time.Millisecond, faulttest.Millis)},
				{Probability: 0.02, Seed: 3, Handler: faulttest.Reply{Delay: 400 * time.Millisecond, Handler: work}},
				{Handler: work},
			},
		}},
	}
}
