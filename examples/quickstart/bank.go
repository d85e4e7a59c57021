package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// order is the body of a request: POST /v1/charges.
type order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
	Currency  string `json:"currency"`
}

// charge is the body of a response: an order that was booked.
type charge struct {
	ID string `json:"id"`
	order
}

// faultPlan has the probabilities and times of a bank's faults.
type faultPlan struct {
	seed                   uint64
	lost, overloaded, held float64
	holdFor                time.Duration
	outageAfter            int // requests
	outage                 time.Duration
}

// bank is a payment API. It executes each Idempotency-Key once. The network to it, and its
// capacity, are faulty.
type bank struct {
	*faulttest.Server // with a log of all requests

	ledger   *ledger
	quota    *faulttest.Quota
	held     atomic.Int64 // requests that were slow
	repeated atomic.Int64 // requests with a known key
}

// openBank starts a bank on a loopback socket. Its script has the faults in the order in which a
// request meets them.
func openBank(ctx context.Context, plan faultPlan) (*bank, error) {
	ledger, err := openLedger(ctx)
	if err != nil {
		return nil, err
	}
	b := &bank{ledger: ledger}
	held := func(w http.ResponseWriter, r *http.Request) {
		b.held.Add(1)
		time.Sleep(plan.holdFor) // the charge follows, even if the client has canceled
		b.charge(w, r)
	}
	charges := b.once(faulttest.Script{
		{Probability: plan.held, Seed: plan.seed + 2, Handler: http.HandlerFunc(held)},
		{Handler: http.HandlerFunc(b.charge)},
	})
	// 200 per second, in windows of 250 ms, so that requests are spread over the second.
	b.quota = &faulttest.Quota{Limit: 50, Window: 250 * time.Millisecond, Dialect: faulttest.Discord, RetryAfterFormat: faulttest.Millis}
	b.quota.Next = faulttest.Script{
		{Probability: plan.lost, Seed: plan.seed, Handler: faulttest.LoseResponse(charges)}, // charged, but the client gets no response
		{
			Probability: plan.overloaded / (1 - plan.lost), Seed: plan.seed + 1, // of the other requests
			Handler: faulttest.Unavailable(50*time.Millisecond, faulttest.Millis),
		},
		{Handler: charges},
	}
	b.Server = &faulttest.Server{Script: faulttest.Script{
		{Match: outage(plan.outageAfter, plan.outage), Handler: faulttest.ResetBeforeRead}, // not read and not executed
		{Handler: b.quota},
	}}
	b.MaxRequests = -1 // the audit needs all requests
	b.Start(nil)
	return b, nil
}

// once executes each key once, and replays the response to later requests. A server needs no
// more than this.
func (b *bank) once(next http.Handler) http.Handler {
	charges := idempotency.NewHandler(b.ledger.records, customer, next)
	charges.Transactional = true // the booking and the record of the key are one transaction
	charges.Optional = true      // each request without a key is executed
	charges.Trace = &idempotency.Trace{Done: func(e *idempotency.Event) {
		if e.Disposition == idempotency.Replayed || e.Disposition == idempotency.InProgress {
			b.repeated.Add(1)
		}
	}}
	return charges
}

// customer returns the owner of the keys. This bank has one customer.
func customer(*http.Request) (string, error) { return "the shop", nil }

// stop waits for the requests in progress, and closes the bank.
func (b *bank) stop() {
	b.Close()
	b.ledger.close()
}

// charge executes an order.
func (b *bank) charge(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Reference == "" || o.Amount <= 0 {
		http.Error(w, "invalid order", http.StatusBadRequest)
		return
	}
	time.Sleep(5 * time.Millisecond) // other work
	c, err := b.ledger.book(r.Context(), o)
	if err != nil {
		http.Error(w, "ledger not available", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(c) //nolint:errchkjson // strings and a number; a write error means that the client has canceled
}

// outage returns a predicate that is true once for the duration, after that number of requests.
func outage(after int, duration time.Duration) func(*http.Request) bool {
	var (
		mu       sync.Mutex
		requests int
		start    time.Time
	)
	return func(*http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if requests++; start.IsZero() && requests > after {
			start = time.Now()
		}
		return !start.IsZero() && time.Since(start) < duration
	}
}

// counts are the numbers of requests in a bank's log.
type counts struct{ requests, lost, overloaded, held, reset, throttled, repeated int }

func (b *bank) count() counts {
	n := counts{requests: b.Total(), held: int(b.held.Load()), repeated: int(b.repeated.Load())}
	_, n.throttled = b.quota.Counts()
	for _, q := range b.Requests() {
		switch {
		case q.Fault == faulttest.ResetAfterRead:
			n.lost++
		case q.Fault == faulttest.ResetBeforeRead:
			n.reset++
		case q.Status == http.StatusServiceUnavailable:
			n.overloaded++
		}
	}
	return n
}

// readCharge reads a response, for both clients.
func readCharge(resp *http.Response) (charge, error) {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return charge{}, &statusError{resp.StatusCode}
	}
	var c charge
	err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&c)
	if err == nil && c.ID == "" {
		err = errors.New("charge without ID")
	}
	return c, err
}

// statusError is the error of a response that is not a charge.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return "bank: status " + strconv.Itoa(e.status) + " " + http.StatusText(e.status)
}
