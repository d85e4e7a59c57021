package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// resilient is the client to look at: an http.Client with the Transport, and an
// application that knows what to do when even the Transport gives up.
type resilient struct {
	url    string
	client *http.Client

	trace      resilienthttp.Trace // counts:
	openings   atomic.Int64        // of the circuit breaker
	askedAgain atomic.Int64        // by the application
}

// newResilient has the zero value of the Transport. log is for -v, and else nil.
func newResilient(url string, log *resilienthttp.Trace) *resilient {
	r := &resilient{
		url:    url,
		client: &http.Client{Transport: &resilienthttp.Transport{Trace: log}},
	}
	r.trace.BreakerChange = func(change resilienthttp.BreakerChange) {
		if change.To == resilienthttp.StateOpen {
			r.openings.Add(1)
		}
	}
	return r
}

// patience is for one charge, with all that it takes. It is the bound of the loop
// below, and generous: this program is to end well on a slow machine, too.
const patience = 30 * time.Second

// callPatience is for one call of them, with the Transport's retries: while a server is
// gone they are spread over the time that the call has.
const callPatience = 3 * time.Second

// charge asks the bank until it knows what became of the order.
//
// The Transport repeats what a moment may mend. Beyond that it gives the word
// back to the application: the breaker is open, the server asks for a long wait,
// attempts, budget or time are spent. Then nobody knows whether the charge was made,
// and the answer to that is always the same: ask again, later, with the same key.
// That key is the application's own, made from the order and not for the call, so
// that asking again would be safe tomorrow and from another process, too. (There
// the orders that are still open would come from a table, not from a loop.)
func (r *resilient) charge(ctx context.Context, o order) (charge, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx = resilienthttp.WithIdempotencyKey(ctx, o.Reference)
	ctx = resilienthttp.WithTrace(ctx, &r.trace)
	body, err := json.Marshal(o)
	if err != nil {
		return charge{}, err
	}
	for {
		c, err := r.ask(ctx, body)
		if err == nil {
			return c, nil
		}
		at, worthIt := askAgain(err)
		if !worthIt {
			return charge{}, err
		}
		r.askedAgain.Add(1)
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return charge{}, err
		}
	}
}

// ask is one call, as with any http.Client.
func (r *resilient) ask(ctx context.Context, body []byte) (charge, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return charge{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return charge{}, err
	}
	return readCharge(resp)
}

// askAgain tells whether asking again can help, and when.
func askAgain(err error) (at time.Time, worthIt bool) {
	var (
		gaveUp *resilienthttp.Error
		status *statusError
	)
	switch {
	case errors.As(err, &gaveUp):
		// Without a Reason it has failed for good: a certificate, say.
		worthIt = gaveUp.Reason != nil
		at = gaveUp.NotBefore // zero where nothing is known
	case errors.As(err, &status):
		// What the Transport has repeated already, and in vain so far.
		worthIt = status.status == http.StatusConflict || status.status == http.StatusTooManyRequests || status.status >= 500
	default:
		worthIt = true // the answer broke off
	}
	if now := time.Now(); at.Before(now) {
		at = now
	}
	// Everybody was given the same NotBefore: do not come back as a crowd.
	return at.Add(50*time.Millisecond + rand.N(200*time.Millisecond)), worthIt
}
