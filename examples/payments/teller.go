package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
)

// bankTimeout is what the service gives a bank for one booking that may be slow.
const bankTimeout = 300 * time.Millisecond

// What the bank says when it has booked nothing, and knows it.
var (
	errNotCovered = errors.New("the account does not cover it")
	errBusy       = errors.New("the bank is busy")
)

// teller is how the service speaks to the bank.
type teller struct {
	http    *http.Client
	timeout time.Duration // of one booking
}

func newTeller(socket string) *teller {
	return &teller{timeout: bankTimeout, http: &http.Client{Transport: &resilienthttp.Transport{
		Base: &http.Transport{DialContext: process.Over(socket), MaxIdleConnsPerHost: 16},
		// The bank knows no keys: what may have reached it is never sent again.
		Policy:      resilienthttp.Policy{MaxAttempts: -1},
		Idempotency: resilienthttp.Idempotency{Disabled: true},
		// Nor is an order refused because others have failed: each is asked once, and
		// what the bank is like is part of the test.
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}}}
}

// book asks for a booking, once. After errNotCovered and errBusy there is none; after
// any other error nobody knows.
func (t *teller) book(ctx context.Context, o bank.Order) (bank.Charge, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	body, err := json.Marshal(o)
	if err != nil {
		return bank.Charge{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bank/bookings", bytes.NewReader(body))
	if err != nil {
		return bank.Charge{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	var c bank.Charge
	err = t.do(req, http.StatusCreated, &c)
	return c, err
}

// bookings asks what was booked under a reference.
func (t *teller) bookings(ctx context.Context, reference string) ([]bank.Charge, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://bank/bookings?reference="+url.QueryEscape(reference), http.NoBody)
	if err != nil {
		return nil, err
	}
	var found []bank.Charge
	err = t.do(req, http.StatusOK, &found)
	return found, err
}

func (t *teller) do(req *http.Request, want int, into any) error {
	resp, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case want:
		return json.NewDecoder(resp.Body).Decode(into)
	case http.StatusPaymentRequired:
		return errNotCovered
	case http.StatusServiceUnavailable:
		return errBusy
	default:
		return fmt.Errorf("the bank: %s", resp.Status)
	}
}
