package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// timeLimit is the maximum time of an order, while the service dies repeatedly, and of the work after
// the orders.
const timeLimit = 3 * time.Minute

// attemptTimeout is the timeout of one attempt of a client. On a slow machine a connection to PostgreSQL takes 20 ms of CPU, and each
// attempt that is given up costs one.
const attemptTimeout = 2 * time.Second

// client sends orders through a Transport.
type client struct {
	url      string
	http     *http.Client
	attempts atomic.Int64
	replayed atomic.Int64 // stored responses
	repeated atomic.Int64 // calls after a failed call
}

func newClient(url string) *client {
	c := &client{url: url}
	c.http = &http.Client{Transport: &resilienthttp.Transport{
		Policy: resilienthttp.Policy{
			AttemptTimeout: attemptTimeout,
			// The default would send the last retry shortly before the deadline. Here the
			// service recovers soon.
			Backoff: resilienthttp.FullJitter(50*time.Millisecond, 500*time.Millisecond),
		},
		// The service dies every second, and needs many retries. A timeout must not use
		// all tokens.
		Budget:  &resilienthttp.Budget{Ratio: 1, Burst: 20},
		Breaker: &resilienthttp.Breaker{Window: time.Second, Cooldown: 50 * time.Millisecond, MaxCooldown: 200 * time.Millisecond},
		Trace: &resilienthttp.Trace{
			AttemptDone: func(*resilienthttp.Attempt) { c.attempts.Add(1) },
		},
	}}
	return c
}

// order sends the order, always with its own key, until the service reports an outcome. cancel means that
// the customer cancels it during the shop's transaction.
func (c *client) order(ctx context.Context, o bank.Order, cancel bool) outcome {
	ctx, done := context.WithTimeout(resilienthttp.WithIdempotencyKey(ctx, o.Reference), timeLimit)
	defer done()
	for {
		receipt, replayed, err := c.send(ctx, o, cancel)
		if replayed {
			c.replayed.Add(1)
		}
		no, answered := errors.AsType[*statusError](err)
		switch {
		case err == nil:
			return outcome{state: booked, receipt: receipt}
		case answered && no.status == http.StatusPaymentRequired:
			return outcome{state: declined}
		case answered && no.status == http.StatusGone:
			return outcome{state: canceled}
		case answered && no.problem() == "unknown":
			return outcome{}
		case answered && no.final():
			return outcome{err: err}
		}
		c.repeated.Add(1)
		if sleep.Context(ctx, untilNext(err)) != nil {
			return outcome{err: err}
		}
	}
}

// untilNext is the time until the next call may succeed, by the error, with jitter.
func untilNext(err error) time.Duration {
	var known time.Duration
	if gaveUp, ok := errors.AsType[*resilienthttp.Error](err); ok {
		known = max(0, time.Until(gaveUp.NotBefore))
	}
	return known + 20*time.Millisecond + rand.N(100*time.Millisecond)
}

func (c *client) send(ctx context.Context, o bank.Order, cancel bool) (receipt bank.Charge, replayed bool, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return receipt, false, err
	}
	url := fmt.Sprintf("%s/orders?cancel=%t", c.url, cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return receipt, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	status, header, answer, err := fetch(c.http, req)
	switch {
	case err != nil:
		return receipt, false, err
	case status != http.StatusCreated:
		return receipt, false, &statusError{status, string(answer)}
	}
	err = json.Unmarshal(answer, &receipt)
	return receipt, header.Get("Idempotency-Replayed") != "", err
}

// statusError is a response without a receipt.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// problem returns the kind of a problem of the Handler, or "".
func (e *statusError) problem() string {
	var problem struct{ Type string }
	_ = json.Unmarshal([]byte(e.body), &problem) // The body may be another.
	_, kind, _ := strings.Cut(problem.Type, "#")
	return kind
}

// final reports whether a retry would get the same response.
func (e *statusError) final() bool {
	return e.status < 500 && e.status != http.StatusConflict && e.status != http.StatusTooManyRequests
}
