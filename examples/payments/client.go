package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// attemptTimeout is the client's timeout of one attempt.
const attemptTimeout = 500 * time.Millisecond

// accountOfClient is the client's account.
const accountOfClient = "comp1"

// chargeTimeout is the maximum time of one charge, while the service dies repeatedly.
const chargeTimeout = 3 * time.Minute

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

// outcome is the client's result of an order.
type outcome struct {
	receipt  bank.Charge
	declined bool  // the account does not cover the amount, and there is no booking
	unknown  bool  // the service does not know the outcome until it is reconciled
	err      error // the last error when the time was over
}

// known reports whether the client needs to ask no more.
func (o outcome) known() bool { return o.err == nil && !o.unknown }

// charge sends the order, always with its own key, until the client or the service
// reports an outcome.
func (c *client) charge(ctx context.Context, o bank.Order) outcome {
	ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(ctx, o.Reference), chargeTimeout)
	defer cancel()
	for {
		receipt, err := c.ask(ctx, o)
		no, answered := asStatus(err)
		switch {
		case err == nil:
			return outcome{receipt: receipt}
		case answered && no.status == http.StatusPaymentRequired:
			return outcome{declined: true}
		case answered && no.problem() == "unknown":
			return outcome{unknown: true}
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

func (c *client) ask(ctx context.Context, o bank.Order) (bank.Charge, error) {
	receipt, replayed, err := c.send(ctx, c.http, o)
	if replayed {
		c.replayed.Add(1)
	}
	return receipt, err
}

// askOnce sends an order in one attempt.
func (c *client) askOnce(ctx context.Context, o bank.Order) (receipt bank.Charge, replayed bool, err error) {
	base := &http.Transport{DisableKeepAlives: true}
	return c.send(resilienthttp.WithIdempotencyKey(ctx, o.Reference), &http.Client{
		Timeout: attemptTimeout, Transport: &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{MaxAttempts: -1}},
	}, o)
}

func (c *client) send(ctx context.Context, by *http.Client, o bank.Order) (receipt bank.Charge, replayed bool, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return receipt, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return receipt, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Account", accountOfClient)
	resp, err := by.Do(req)
	if err != nil {
		return receipt, false, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return receipt, false, err
	case resp.StatusCode != http.StatusCreated:
		return receipt, false, &statusError{resp.StatusCode, string(answer)}
	}
	err = json.Unmarshal(answer, &receipt)
	return receipt, resp.Header.Get("Idempotency-Replayed") != "", err
}

// statusError is a response without a receipt.
type statusError struct {
	status int
	body   string
}

func asStatus(err error) (*statusError, bool) { return errors.AsType[*statusError](err) }

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
