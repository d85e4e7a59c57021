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
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// attemptTimeout is what the client gives the service for one attempt.
const attemptTimeout = 500 * time.Millisecond

// accountOfClient is who it says it is.
const accountOfClient = "comp1"

// patience is for one charge, with all the deaths that the service may die.
const patience = time.Minute

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
		Policy: resilienthttp.Policy{AttemptTimeout: attemptTimeout},
		// The service dies every second: the share of retries is far above what is
		// right for one that lives.
		Budget:  &resilienthttp.Budget{Ratio: 1},
		Breaker: &resilienthttp.Breaker{Window: time.Second, Cooldown: 50 * time.Millisecond, MaxCooldown: 200 * time.Millisecond},
		Trace: &resilienthttp.Trace{
			AttemptDone: func(*resilienthttp.Attempt) { c.attempts.Add(1) },
		},
	}}
	return c
}

// charge asks until it knows what became of the order, always with the same key:
// the order's own.
func (c *client) charge(ctx context.Context, o order) (charge, error) {
	ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(ctx, o.Reference), patience)
	defer cancel()
	for {
		receipt, err := c.ask(ctx, o)
		var refused *refusedError
		if err == nil || errors.As(err, &refused) && refused.final() {
			return receipt, err
		}
		c.askedAgain.Add(1)
		select {
		case <-time.After(pause(err)):
		case <-ctx.Done():
			return charge{}, err
		}
	}
}

// pause is until a further call has a chance, as far as the error knows, and a
// little more, so that the workers do not come back as a crowd.
func pause(err error) time.Duration {
	var known time.Duration
	if gaveUp, ok := errors.AsType[*resilienthttp.Error](err); ok {
		known = max(0, time.Until(gaveUp.NotBefore))
	}
	return known + 20*time.Millisecond + rand.N(100*time.Millisecond)
}

func (c *client) ask(ctx context.Context, o order) (charge, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return charge{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return charge{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Account", accountOfClient)
	resp, err := c.http.Do(req)
	if err != nil {
		return charge{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return charge{}, err
	case resp.StatusCode != http.StatusCreated:
		return charge{}, &refusedError{resp.StatusCode, string(answer)}
	case resp.Header.Get("Idempotency-Replayed") != "":
		c.replayed.Add(1)
	}
	var receipt charge
	err = json.Unmarshal(answer, &receipt)
	return receipt, err
}

// refusedError is an answer that is no receipt.
type refusedError struct {
	status int
	body   string
}

func (e *refusedError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// final: asking again would give the same answer.
func (e *refusedError) final() bool {
	return e.status < 500 && e.status != http.StatusConflict && e.status != http.StatusTooManyRequests
}
