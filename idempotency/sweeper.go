package idempotency

import (
	"context"
	"fmt"
	"time"
)

// Sweeper deletes expired records in small batches, with pauses that leave the
// database to those who work. Several, on several machines, do not hinder each
// other. The zero value lacks a Store.
type Sweeper struct {
	// Store is the store that is swept.
	Store Store

	// Batch is the most records that are deleted at once. 0 means 500.
	Batch int

	// Every is the time between two sweeps, once nothing is left to sweep. 0 means
	// a minute.
	Every time.Duration

	// OnError is told of sweeps that failed; the next is made in its time. nil: they
	// pass in silence.
	OnError func(error)
}

// idleShare is how many times as long as a batch took the sweeper pauses after it.
const idleShare = 4

// Run sweeps until ctx ends, and returns its error. It starts no goroutine.
func (s *Sweeper) Run(ctx context.Context) error {
	if s.Store == nil || s.Batch < 0 || s.Every < 0 {
		return fmt.Errorf("%w: a Sweeper needs a Store, and no negative numbers", ErrInvalid)
	}
	batch, every := s.Batch, s.Every
	if batch == 0 {
		batch = 500
	}
	if every == 0 {
		every = time.Minute
	}
	for ctx.Err() == nil {
		began := time.Now()
		n, err := s.Store.Sweep(ctx, batch)
		if err != nil && ctx.Err() == nil && s.OnError != nil {
			s.OnError(err)
		}
		pause := every
		if err == nil && n > 0 { // a store that met somebody else returns early, with what it has got
			pause = max(idleShare*time.Since(began), firstPause)
		}
		sleep(ctx, pause)
	}
	return ctx.Err()
}
