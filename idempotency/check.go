package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// checkPause is the time between two checks of a store that fails them.
const checkPause = time.Second

// storeCheck calls Store.Check before the first claim, and until it succeeds at most
// once in checkPause.
type storeCheck struct {
	ok   atomic.Bool
	turn chan struct{} // holds one value while no check runs

	// The last check, guarded by turn.
	ended time.Time
	err   error
}

func newStoreCheck() *storeCheck {
	c := &storeCheck{turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// passed returns nil if the store can be used. Callers that come during a check wait
// for it.
func (c *storeCheck) passed(ctx context.Context, store Store) error {
	if c.ok.Load() {
		return nil
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { c.turn <- struct{}{} }()
	if c.ok.Load() || c.err != nil && time.Since(c.ended) < checkPause {
		return c.err
	}
	checking, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := store.Check(checking)
	switch {
	case err != nil && ctx.Err() != nil: // this caller has left; the next one checks
		return context.Cause(ctx)
	case errors.Is(err, driver.ErrStoreBusy): // this says nothing about the store's tables
		return err
	case err != nil:
		err = fmt.Errorf("idempotency: check the store: %w", err)
	}
	c.err, c.ended = err, time.Now()
	c.ok.Store(err == nil)
	return err
}
