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

// bankTimeout is the maximum time of a booking.
const bankTimeout = 300 * time.Millisecond

// Errors after which the bank has booked nothing.
var (
	errNotCovered = errors.New("the account does not cover the amount")
	errBusy       = errors.New("the bank is busy")
)

// bankClient is the service's client of the bank.
type bankClient struct {
	http    *http.Client
	timeout time.Duration // of one booking
}

func newBankClient(socket string) *bankClient {
	return &bankClient{timeout: bankTimeout, http: &http.Client{Transport: &resilienthttp.Transport{
		Base: &http.Transport{DialContext: process.Dial(socket), MaxIdleConnsPerHost: 16},
		// The bank does not know keys: a booking that may have reached it is not retried.
		Policy:      resilienthttp.Policy{MaxAttempts: -1},
		Idempotency: resilienthttp.Idempotency{Disabled: true},
		// The breaker must not reject an order: the bank's failures are part of the test.
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}}}
}

// book sends one booking. After errNotCovered and errBusy there is no booking. After
// any other error the outcome is unknown.
func (b *bankClient) book(ctx context.Context, o bank.Order) (bank.Charge, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
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
	err = b.do(req, http.StatusCreated, &c)
	return c, err
}

// bookings returns the bookings with a reference.
func (b *bankClient) bookings(ctx context.Context, reference string) ([]bank.Charge, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://bank/bookings?reference="+url.QueryEscape(reference), http.NoBody)
	if err != nil {
		return nil, err
	}
	var found []bank.Charge
	err = b.do(req, http.StatusOK, &found)
	return found, err
}

func (b *bankClient) do(req *http.Request, want int, into any) error {
	resp, err := b.http.Do(req)
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
