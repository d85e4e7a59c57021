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

// order is what a client asks: POST /v1/charges.
type order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
	Currency  string `json:"currency"`
}

// charge is what the bank answers: an order that has been booked.
type charge struct {
	ID string `json:"id"`
	order
}

// faultPlan says how bad a bank is: the shares of its requests that go wrong.
type faultPlan struct {
	seed                   uint64
	lost, overloaded, held float64
	holdFor                time.Duration
	darkAfter              int // requests
	darkFor                time.Duration
}

// bank is a payment API as one meets them in real life. It is correct: whoever
// sends an Idempotency-Key is charged once for it. But the way to it is bad.
type bank struct {
	*faulttest.Server // with a log of all requests

	ledger   *ledger
	quota    *faulttest.Quota
	held     atomic.Int64 // charges that were made late
	repeated atomic.Int64 // requests whose key had been seen before
}

// openBank starts a bank on a loopback socket. Its script is a request's way
// through it, with all that can happen on it.
func openBank(ctx context.Context, plan faultPlan) (*bank, error) {
	ledger, err := openLedger(ctx)
	if err != nil {
		return nil, err
	}
	b := &bank{ledger: ledger}
	held := func(w http.ResponseWriter, r *http.Request) {
		b.held.Add(1)
		time.Sleep(plan.holdFor) // and then charges, whether the caller is still there or not
		b.charge(w, r)
	}
	charges := b.once(faulttest.Script{
		{Probability: plan.held, Seed: plan.seed + 2, Handler: http.HandlerFunc(held)},
		{Handler: http.HandlerFunc(b.charge)},
	})
	// 200 a second, counted in quarters lest they all come in its first tenth.
	b.quota = &faulttest.Quota{Limit: 50, Window: 250 * time.Millisecond, Dialect: faulttest.Discord, RetryAfterFormat: faulttest.Millis}
	b.quota.Next = faulttest.Script{
		{Probability: plan.lost, Seed: plan.seed, Handler: faulttest.LoseResponse(charges)}, // charged, and nobody will hear of it
		{
			Probability: plan.overloaded / (1 - plan.lost), Seed: plan.seed + 1, // of the rest
			Handler: faulttest.Unavailable(50*time.Millisecond, faulttest.Millis),
		},
		{Handler: charges},
	}
	b.Server = &faulttest.Server{Script: faulttest.Script{
		{Match: blackout(plan.darkAfter, plan.darkFor), Handler: faulttest.ResetBeforeRead}, // nobody is at home: nothing was read, nothing done
		{Handler: b.quota},
	}}
	b.MaxRequests = -1 // all of them are in the log
	b.Start(nil)
	return b, nil
}

// once carries each key out once, and gives its answer again to whoever asks
// again: this is all that a server needs.
func (b *bank) once(next http.Handler) http.Handler {
	charges := idempotency.NewHandler(b.ledger.records, customer, next)
	charges.Transactional = true // to charge is to book, in the ledger's transaction
	charges.Optional = true      // a request without a key is carried out every time that it comes
	charges.Trace = &idempotency.Trace{Done: func(e *idempotency.Event) {
		if e.Disposition == idempotency.Replayed || e.Disposition == idempotency.InProgress {
			b.repeated.Add(1)
		}
	}}
	return charges
}

// customer is whose keys they are. This bank has one.
func customer(*http.Request) (string, error) { return "the shop", nil }

// stop waits for the requests that are still at work.
func (b *bank) stop() {
	b.Close()
	b.ledger.close()
}

// charge is the work itself.
func (b *bank) charge(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Reference == "" || o.Amount <= 0 {
		http.Error(w, "not an order", http.StatusBadRequest)
		return
	}
	time.Sleep(5 * time.Millisecond) // what its other work would take
	c, err := b.ledger.book(r.Context(), o)
	if err != nil {
		http.Error(w, "the ledger is not available", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(c) //nolint:errchkjson // strings and a number; the error is that of a caller that has gone
}

// blackout is true for a while, once, from the request on that follows so many.
func blackout(after int, while time.Duration) func(*http.Request) bool {
	var (
		mu       sync.Mutex
		requests int
		began    time.Time
	)
	return func(*http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if requests++; began.IsZero() && requests > after {
			began = time.Now()
		}
		return !began.IsZero() && time.Since(began) < while
	}
}

// counts is what a bank's log comes to.
type counts struct{ requests, lost, overloaded, held, dark, throttled, repeated int }

func (b *bank) count() counts {
	n := counts{requests: b.Total(), held: int(b.held.Load()), repeated: int(b.repeated.Load())}
	_, n.throttled = b.quota.Counts()
	for _, q := range b.Requests() {
		switch {
		case q.Fault == faulttest.ResetAfterRead:
			n.lost++
		case q.Fault == faulttest.ResetBeforeRead:
			n.dark++
		case q.Status == http.StatusServiceUnavailable:
			n.overloaded++
		}
	}
	return n
}

// readCharge reads what a bank has answered, for both clients.
func readCharge(resp *http.Response) (charge, error) {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return charge{}, &statusError{resp.StatusCode}
	}
	var c charge
	err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&c)
	if err == nil && c.ID == "" {
		err = errors.New("a charge without an ID")
	}
	return c, err
}

// statusError is an answer that is not a charge.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return "the bank answers " + strconv.Itoa(e.status) + " " + http.StatusText(e.status)
}
