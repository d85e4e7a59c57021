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

// attemptTimeout is what the client gives the service for one attempt.
const attemptTimeout = 500 * time.Millisecond

// accountOfClient is who it says it is.
const accountOfClient = "comp1"

// patience is for one charge, with all the deaths that the service may die.
const patience = 3 * time.Minute

// client charges through a Transport.
type client struct {
	url        string
	http       *http.Client
	attempts   atomic.Int64
	replayed   atomic.Int64 // answers that had been given before
	askedAgain atomic.Int64 // calls after a call that had failed
}

func newClient(url string) *client {
	c := &client{url: url}
	c.http = &http.Client{Transport: &resilienthttp.Transport{
		Policy: resilienthttp.Policy{
			AttemptTimeout: attemptTimeout,
			// The default would place the last retry shortly before the deadline. Here the
			// service is back soon.
			Backoff: resilienthttp.FullJitter(50*time.Millisecond, 500*time.Millisecond),
		},
		// The service dies every second: this needs many more retries than one that is
		// alive. A timeout must not take all tokens.
		Budget:  &resilienthttp.Budget{Ratio: 1, MinTokens: 20},
		Breaker: &resilienthttp.Breaker{Window: time.Second, Cooldown: 50 * time.Millisecond, MaxCooldown: 200 * time.Millisecond},
		Trace: &resilienthttp.Trace{
			AttemptDone: func(*resilienthttp.Attempt) { c.attempts.Add(1) },
		},
	}}
	return c
}

// outcome is what a client knows of its order.
type outcome struct {
	receipt bank.Charge
	refused bool  // the account does not cover it, and it was not booked
	unknown bool  // the service said that nobody knows: a reconciler will
	err     error // whatever else ended its patience; nil if it knows
}

// settled: there is nothing more to ask.
func (o outcome) settled() bool { return o.err == nil && !o.unknown }

// charge asks until it knows what became of the order, or that nobody does, always
// with the same key: the order's own.
func (c *client) charge(ctx context.Context, o bank.Order) outcome {
	ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(ctx, o.Reference), patience)
	defer cancel()
	for {
		receipt, err := c.ask(ctx, o)
		no, answered := errors.AsType[*refusedError](err)
		switch {
		case err == nil:
			return outcome{receipt: receipt}
		case answered && no.status == http.StatusPaymentRequired:
			return outcome{refused: true}
		case answered && no.problem() == "unknown":
			return outcome{unknown: true}
		case answered && no.final():
			return outcome{err: err}
		}
		c.askedAgain.Add(1)
		if sleep.Context(ctx, untilNext(err)) != nil {
			return outcome{err: err}
		}
	}
}

// untilNext is until a further call has a chance, as far as the error knows, and a
// little more, so that the workers do not come back as a crowd.
func untilNext(err error) time.Duration {
	var known time.Duration
	if gaveUp, ok := errors.AsType[*resilienthttp.Error](err); ok {
		known = max(0, time.Until(gaveUp.NotBefore))
	}
	return known + 20*time.Millisecond + rand.N(100*time.Millisecond)
}

func (c *client) ask(ctx context.Context, o bank.Order) (bank.Charge, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return bank.Charge{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return bank.Charge{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Account", accountOfClient)
	resp, err := c.http.Do(req)
	if err != nil {
		return bank.Charge{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return bank.Charge{}, err
	case resp.StatusCode != http.StatusCreated:
		return bank.Charge{}, &refusedError{resp.StatusCode, string(answer)}
	case resp.Header.Get("Idempotency-Replayed") != "":
		c.replayed.Add(1)
	}
	var receipt bank.Charge
	err = json.Unmarshal(answer, &receipt)
	return receipt, err
}

// refusedError is an answer that is no receipt.
type refusedError struct {
	status int
	body   string
}

func (e *refusedError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// problem is the kind of what the service's Handler says by itself, or "".
func (e *refusedError) problem() string {
	var problem struct{ Type string }
	_ = json.Unmarshal([]byte(e.body), &problem) // or it is no problem
	_, kind, _ := strings.Cut(problem.Type, "#")
	return kind
}

// final: asking again would give the same answer.
func (e *refusedError) final() bool {
	return e.status < 500 && e.status != http.StatusConflict && e.status != http.StatusTooManyRequests
}
