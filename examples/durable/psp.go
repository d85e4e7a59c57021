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
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
)

// bankTimeout is the timeout of a booking.
const bankTimeout = 300 * time.Millisecond

// newClient returns a client of the bank with that timeout for an attempt.
func newClient(socket string, timeout time.Duration) *http.Client {
	return &http.Client{Transport: &resilienthttp.Transport{
		Base:   &http.Transport{DialContext: process.Dial(socket), MaxIdleConnsPerHost: 32},
		Policy: resilienthttp.Policy{AttemptTimeout: timeout},
	}}
}

// newPSP returns the Gateway of a bank that honours keys.
func newPSP(client *http.Client) durable.HTTP {
	return durable.HTTP{
		Client: client,
		NewRequest: func(s *durable.Send) (*http.Request, error) {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://bank/bookings", bytes.NewReader(s.Payload))
			if err == nil {
				req.Header.Set("Content-Type", "application/json")
			}
			return req, err
		},
		Read: readResponse,
	}
}

// readResponse decodes the body of a response. Its status is classified by durable.HTTP.
func readResponse(resp *http.Response, body []byte) (o durable.Outcome) {
	switch resp.StatusCode {
	case http.StatusCreated:
		var booked bank.Charge
		o.Err = json.Unmarshal(body, &booked)
		o.Reference = booked.ID
	case http.StatusPaymentRequired:
		var no bank.DeclineBody
		if o.Err = json.Unmarshal(body, &no); o.Err == nil {
			o.Code, o.Err = no.Code, errors.New(no.Text)
		}
	default:
		o.Err = fmt.Errorf("bank: %s", resp.Status)
	}
	return o
}

// queryablePSP is the Gateway of a bank without idempotency keys. Its bookings can be queried by our
// reference.
type queryablePSP struct{ durable.HTTP }

var (
	_ durable.Finder    = queryablePSP{}
	_ durable.Protector = queryablePSP{}
)

// KeyPolicy returns that keys do not protect.
func (queryablePSP) KeyPolicy() (keyTTL, visibilityDelay time.Duration) { return -1, 0 }

// Find queries a booking.
func (p queryablePSP) Find(ctx context.Context, s *durable.Send) durable.Outcome {
	found, err := p.bookings(ctx, s.ID.Key)
	switch {
	case err != nil:
		return durable.Outcome{Err: err}
	case len(found) == 0:
		return durable.Outcome{Class: durable.ClassNotFound}
	default:
		return durable.Outcome{Class: durable.ClassSucceeded, Reference: found[0].ID}
	}
}

func (p queryablePSP) bookings(ctx context.Context, reference string) ([]bank.Charge, error) {
	address := "http://bank/bookings?reference=" + url.QueryEscape(reference)
	req, err := http.NewRequestWithContext(resilienthttp.WithSingleAttempt(ctx), http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("bank: %s", resp.Status)
	}
	var found []bank.Charge
	err = json.Unmarshal(body, &found)
	return found, err
}
