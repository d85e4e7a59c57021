package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// readOnlyCheck sends duplicates and new keys while the database is read-only.
type readOnlyCheck struct {
	client *client

	mu       sync.Mutex
	answered []answer // some orders that were booked
	sent     int      // new keys

	unanswered map[string]bool // new keys without a response
	replayed   int             // duplicates that got their stored result
	rejected   int             // new keys that got 503 from the Handler
	wrong      []error
}

// answer is an order and its receipt.
type answer struct {
	order   bank.Order
	receipt bank.Charge
}

// duplicatesPerStrike is the number of duplicates that are sent at a time.
const duplicatesPerStrike = 8

// add keeps the last booked orders.
func (c *readOnlyCheck) add(o bank.Order, known outcome) {
	if !known.known() || known.declined {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered = append(c.answered, answer{o, known.receipt}); len(c.answered) > duplicatesPerStrike {
		c.answered = c.answered[1:]
	}
}

// wait returns when there is an order to duplicate.
func (c *readOnlyCheck) wait(ctx context.Context) {
	for range 1000 {
		c.mu.Lock()
		n := len(c.answered)
		c.mu.Unlock()
		if n > 0 || sleep.Context(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// run is called while the database is read-only. Each request is sent once. Other
// faults may onLeaseExpired a response, which proves nothing.
func (c *readOnlyCheck) run(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.answered {
		receipt, replayed, err := c.client.askOnce(ctx, known.order)
		switch {
		case err == nil && replayed && receipt == known.receipt:
			c.replayed++
		case err == nil:
			c.failf("a duplicate of %s got another response", known.order.Reference)
		}
	}
	c.sent++
	o := bank.Order{Reference: fmt.Sprintf("read-only:%d", c.sent), Amount: 101}
	_, _, err := c.client.askOnce(ctx, o)
	switch no, answered := asStatus(err); {
	case err == nil:
		c.failf("a new key was executed")
	case !answered:
		c.unanswered[o.Reference] = true
	case no.status == http.StatusServiceUnavailable && !strings.Contains(no.body, ledgerUnavailable):
		c.rejected++
	default:
		c.failf("a new key: %w, want 503 of the Handler", err)
	}
}

// ordered returns the ledger without the new keys that got no response. A process that
// was stopped may execute its request later.
func (c *readOnlyCheck) ordered(ledger []bank.Charge) []bank.Charge {
	return slices.DeleteFunc(ledger, func(booked bank.Charge) bool {
		unanswered := c.unanswered[booked.Reference]
		delete(c.unanswered, booked.Reference) // once
		return unanswered
	})
}

func (c *readOnlyCheck) failf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf("while the database was read-only: "+format, args...))
}

// verdict is called after the run.
func (c *readOnlyCheck) verdict(strikes int) []error {
	errs := c.wrong
	if strikes > 0 && c.replayed == 0 {
		errs = append(errs, errors.New("while the database was read-only: no duplicate got its stored result"))
	}
	if strikes > 0 && c.rejected == 0 {
		errs = append(errs, errors.New("while the database was read-only: no new key was rejected"))
	}
	return errs
}
