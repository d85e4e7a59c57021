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

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// readOnlyCheck sends duplicates and new keys while the database is read-only.
type readOnlyCheck struct {
	client   *client
	patience time.Duration // with requests that get no response: zero means that each is sent once

	mu       sync.Mutex
	receipts []bank.Charge // of some orders that were booked
	sent     int           // new keys

	unanswered []string // new keys without a response
	replayed   int      // duplicates that got their stored result
	rejected   int      // new keys that got 503 from the Handler
	wrong      []error
}

// The numbers of requests that are sent at a time.
const (
	duplicatesPerStrike = 8
	newKeysPerStrike    = 4
)

// add keeps the last receipts.
func (c *readOnlyCheck) add(known outcome) {
	if known.state != booked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receipts = append(c.receipts, known.receipt); len(c.receipts) > duplicatesPerStrike {
		c.receipts = c.receipts[1:]
	}
}

// wait returns when there is an order to duplicate.
func (c *readOnlyCheck) wait(ctx context.Context) {
	for range 6000 {
		c.mu.Lock()
		n := len(c.receipts)
		c.mu.Unlock()
		if n > 0 || sleep.Context(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// run is called while the database is read-only. Other faults, and a slow machine, may prevent a response, which proves
// nothing. So there are further requests until there is a response of each kind.
func (c *readOnlyCheck) run(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := time.Now().Add(c.patience); ; {
		c.sendDuplicates(ctx)
		c.sendNewKeys(ctx)
		if c.replayed > 0 && c.rejected > 0 || len(c.wrong) > 0 || ctx.Err() != nil || !time.Now().Before(end) {
			return
		}
	}
}

func (c *readOnlyCheck) sendDuplicates(ctx context.Context) {
	for _, known := range c.receipts {
		receipt, replayed, err := c.client.askOnce(ctx, known.Order)
		switch {
		case err == nil && replayed && receipt == known:
			c.replayed++
		case err == nil:
			c.failf("a duplicate of %s got another response", known.Reference)
		}
	}
}

func (c *readOnlyCheck) sendNewKeys(ctx context.Context) {
	for range newKeysPerStrike {
		c.sent++
		o := bank.Order{Reference: fmt.Sprintf("read-only:%d", c.sent), Amount: 101}
		_, _, err := c.client.askOnce(ctx, o)
		switch no, answered := asStatus(err); {
		case err == nil:
			c.failf("a new key was executed")
		case !answered:
			c.unanswered = append(c.unanswered, o.Reference)
		case no.status == http.StatusServiceUnavailable && !strings.Contains(no.body, ledgerUnavailable):
			c.rejected++
		default:
			c.failf("a new key: %w, want 503 of the Handler", err)
		}
	}
}

// ordered returns the ledger without the new keys that got no response. A process that
// was stopped may execute its request later, once.
func (c *readOnlyCheck) ordered(ledger []bank.Charge) []bank.Charge {
	for _, reference := range c.unanswered {
		i := slices.IndexFunc(ledger, func(booked bank.Charge) bool { return booked.Reference == reference })
		if i >= 0 {
			ledger = slices.Delete(ledger, i, i+1)
		}
	}
	return ledger
}

func (c *readOnlyCheck) failf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
}

// verdict is called after the run.
func (c *readOnlyCheck) verdict(strikes int) []error {
	errs := c.wrong
	if strikes > 0 && c.replayed == 0 {
		errs = append(errs, errors.New("no duplicate got its stored result"))
	}
	if strikes > 0 && c.rejected == 0 {
		errs = append(errs, errors.New("no new key was rejected"))
	}
	return errs
}
