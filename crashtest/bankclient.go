package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
	"github.com/resilienthttp/resilienthttp/durable"
)

// bankTimeout is the maximum time of a booking.
const bankTimeout = 300 * time.Millisecond

// errBusy means that the bank has booked nothing. So does a *declinedError.
var errBusy = errors.New("the bank is busy")

// declinedError is a decline of the bank.
type declinedError struct{ bank.DeclineBody }

func (e *declinedError) Error() string { return e.Text }

// bankClient is a service's client of the bank.
type bankClient struct{ http *http.Client }

// newBankClient returns a client with the Transport, and sets its Base.
func newBankClient(socket string, t *resilienthttp.Transport) *bankClient {
	t.Base = &http.Transport{DialContext: process.Dial(socket), MaxIdleConnsPerHost: 32}
	return &bankClient{&http.Client{Transport: t}}
}

// keylessBank is a Transport for a bank that does not know keys: a booking that may have reached it is
// not retried.
func keylessBank() *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Policy:      resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: bankTimeout},
		Idempotency: resilienthttp.Idempotency{Disabled: true},
		// The breaker must not reject an order: the bank's failures are part of the test.
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}
}

func bookingRequest(ctx context.Context, order []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bank/bookings", bytes.NewReader(order))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

func readBooking(status int, body []byte) (c bank.Charge, err error) {
	switch status {
	case http.StatusCreated:
		err = json.Unmarshal(body, &c)
		return c, err
	case http.StatusPaymentRequired:
		no := new(declinedError)
		if err := json.Unmarshal(body, &no.DeclineBody); err != nil {
			return c, err
		}
		return c, no
	case http.StatusServiceUnavailable:
		return c, errBusy
	default:
		return c, fmt.Errorf("bank: status %d", status)
	}
}

// book sends one booking. After errBusy and a *declinedError there is no booking. After any other error
// the outcome is unknown.
func (b *bankClient) book(ctx context.Context, o bank.Order) (bank.Charge, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return bank.Charge{}, err
	}
	req, err := bookingRequest(ctx, order)
	if err != nil {
		return bank.Charge{}, err
	}
	status, _, body, err := fetch(b.http, req)
	if err != nil {
		return bank.Charge{}, err
	}
	return readBooking(status, body)
}

// bookings returns the bookings with a reference.
func (b *bankClient) bookings(ctx context.Context, reference string) (found []bank.Charge, err error) {
	address := "http://bank/bookings?reference=" + url.QueryEscape(reference)
	req, err := http.NewRequestWithContext(resilienthttp.WithSingleAttempt(ctx), http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	status, _, body, err := fetch(b.http, req)
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("bank: status %d", status)
	}
	err = json.Unmarshal(body, &found)
	return found, err
}

// fetch sends a request, and reads the whole response.
func fetch(client *http.Client, req *http.Request) (status int, header http.Header, body []byte, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}

// gateway returns the Gateway to a bank that honours keys.
func (b *bankClient) gateway() durable.HTTP {
	return durable.HTTP{
		Client: b.http,
		NewRequest: func(s *durable.Send) (*http.Request, error) {
			return bookingRequest(context.Background(), s.Payload)
		},
		Read: func(resp *http.Response, body []byte) durable.Outcome {
			c, err := readBooking(resp.StatusCode, body)
			o := durable.Outcome{Reference: c.ID, Err: err}
			if no, ok := errors.AsType[*declinedError](err); ok {
				o.Code = no.Code
			}
			return o
		},
	}
}

// queryable is the Gateway to a bank without idempotency keys. Its bookings can be queried by our
// reference.
type queryable struct {
	durable.HTTP
	bank *bankClient
}

var (
	_ durable.Finder    = queryable{}
	_ durable.Protector = queryable{}
)

// KeyPolicy returns that keys do not protect.
func (queryable) KeyPolicy() (keyTTL, visibilityDelay time.Duration) { return -1, 0 }

// Find queries a booking.
func (q queryable) Find(ctx context.Context, s *durable.Send) durable.Outcome {
	found, err := q.bank.bookings(ctx, s.ID.Key)
	switch {
	case err != nil:
		return durable.Outcome{Err: err}
	case len(found) == 0:
		return durable.Outcome{Class: durable.ClassNotFound}
	default:
		return durable.Outcome{Class: durable.ClassSucceeded, Reference: found[0].ID}
	}
}
