package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
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

	openings   atomic.Int64 // of the circuit breaker
	askedAgain atomic.Int64 // by the application
}

func newResilient(url string, logger *slog.Logger) *resilient {
	r := &resilient{url: url}
	transport := &resilienthttp.Transport{
		// All of this can be left out: nobody is charged twice without it, or
		// forgotten. It is here because something is known about this bank, and
		// makes customers wait for less.
		Policy: resilienthttp.Policy{
			// It answers within milliseconds or not at all: the default of 30 s
			// would make one held request hold a customer.
			AttemptTimeout: 250 * time.Millisecond,
		},
		Budget: &resilienthttp.Budget{
			// Every sixth request to this bank fails on its best day, and so do the
			// repeats. The default, a tenth of the calls, is meant for better ones.
			Ratio: 0.5,
		},
		Breaker: &resilienthttp.Breaker{
			// With a hundred requests a second, two seconds of them tell enough. Ten,
			// the default, would hide for too long that the bank has gone.
			Window: 2 * time.Second,
			// Customers are waiting: look at least every second whether it is back.
			Cooldown:    500 * time.Millisecond,
			MaxCooldown: time.Second,
			// One answer says that it is back. Three in a row, the default, may be
			// more than such a bank can do.
			Probes: 1,
			OnChange: func(change resilienthttp.BreakerChange) {
				if change.To == resilienthttp.StateOpen {
					r.openings.Add(1)
				}
			},
		},
	}
	if logger != nil {
		transport.Trace = resilienthttp.LogTrace(logger)
	}
	r.client = &http.Client{Transport: transport}
	return r
}

// patience is for one charge, with all that it takes. It is the bound of the loop
// below, and generous: this program is to end well on a slow machine, too.
const patience = 30 * time.Second

// charge asks the bank until it knows what became of the order.
//
// The Transport repeats what a moment may mend. Beyond that it gives the word
// back to the application: the breaker is open, the server asks for a long wait,
// attempts or budget are spent. Then nobody knows whether the charge was made,
// and the answer to that is always the same: ask again, later, with the same key.
// That key is the application's own, made from the order and not for the call, so
// that asking again would be safe tomorrow and from another process, too. (There
// the orders that are still open would come from a table, not from a loop.)
func (r *resilient) charge(ctx context.Context, o order) (charge, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx = resilienthttp.WithIdempotencyKey(ctx, o.Reference)
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
		// Without a Reason it has failed for good (a certificate, say), and after
		// the deadline the customer has gone.
		worthIt = gaveUp.Reason != nil && !errors.Is(err, resilienthttp.ErrDeadline)
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
