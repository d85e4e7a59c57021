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

// resilient is an http.Client with a Transport, and the code of an application that repeats a call
// later if the Transport has no more attempts.
type resilient struct {
	url    string
	client *http.Client

	trace       resilienthttp.Trace
	openings    atomic.Int64 // of the circuit breaker
	calledAgain atomic.Int64 // calls that the application repeated
}

// newResilient returns a client with the zero value of the Transport. log may be nil.
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

// chargeTimeout limits one charge with all its calls. It is long enough for a slow machine.
const chargeTimeout = 30 * time.Second

// callTimeout limits one call. The Transport spreads its retries over this time.
const callTimeout = 3 * time.Second

// charge calls the bank until the result of the order is known.
//
// The Transport retries transient failures. It returns an error if the breaker is open, if the
// server asks for a long wait, or if attempts, budget or time are used up. Then the result of the
// charge is unknown, and the application repeats the call later with the same key. The key is
// made from the order, so the call can also be repeated by another process. (In a service the
// open orders come from a table: see package durable.)
func (r *resilient) charge(ctx context.Context, o order) (charge, error) {
	ctx, cancel := context.WithTimeout(ctx, chargeTimeout)
	defer cancel()
	ctx = resilienthttp.WithIdempotencyKey(ctx, o.Reference)
	ctx = resilienthttp.WithTrace(ctx, &r.trace)
	body, err := json.Marshal(o)
	if err != nil {
		return charge{}, err
	}
	for {
		c, err := r.call(ctx, body)
		if err == nil {
			return c, nil
		}
		at, again := callAgain(err)
		if !again {
			return charge{}, err
		}
		r.calledAgain.Add(1)
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return charge{}, err
		}
	}
}

// call makes one call, as with any http.Client.
func (r *resilient) call(ctx context.Context, body []byte) (charge, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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

// callAgain reports whether a repeated call can succeed, and when to make it.
func callAgain(err error) (at time.Time, again bool) {
	var (
		noResponse *resilienthttp.Error
		status     *statusError
	)
	switch {
	case errors.As(err, &noResponse):
		// Without a Reason the error is permanent, for example an invalid certificate.
		again = noResponse.Reason != nil
		at = noResponse.NotBefore // zero if it is unknown
	case errors.As(err, &status):
		// The Transport has retried these statuses without success.
		again = status.status == http.StatusConflict || status.status == http.StatusTooManyRequests || status.status >= 500
	default:
		again = true // the response was truncated
	}
	if now := time.Now(); at.Before(now) {
		at = now
	}
	// All workers got the same NotBefore. Jitter prevents that they call at the same time.
	return at.Add(50*time.Millisecond + rand.N(200*time.Millisecond)), again
}
