package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Sweeper finds the dead and deletes what has expired, in small batches, with
// pauses that leave the database to those who work. An execution whose lease is
// over, and which may not be begun again, becomes Unknown, though its client may
// never ask again. Several sweepers, on several machines, do not hinder each other.
// The zero value lacks a Store.
type Sweeper struct {
	// Store is the store that is swept.
	Store Store

	// Trace is told of each operation that has become Unknown, by its hook of that
	// name. nil: nobody is told, but by Store.Unknown.
	Trace *Trace

	// Batch is the most records that are changed or deleted at once. 0 means 500.
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
		more, err := s.sweep(ctx, batch)
		if err != nil && ctx.Err() == nil && s.OnError != nil {
			s.OnError(err)
		}
		wait := every
		if err == nil && more { // a store that met somebody else returns early, with what it has got
			wait = max(idleShare*time.Since(began), firstPause)
		}
		_ = sleep.Jittered(ctx, wait)
	}
	return ctx.Err()
}

// sweep is one batch. The dead come first, and are told of also when there was an
// error after some.
func (s *Sweeper) sweep(ctx context.Context, batch int) (more bool, err error) {
	abandoned, err := s.Store.Reap(ctx, batch)
	for i := range abandoned {
		record := &abandoned[i]
		told := traceEvent{trace: s.Trace, event: Event{ID: record.ID, Generation: record.Generation}}
		told.emit(Unknown, errDied)
	}
	deleted, failed := s.Store.Sweep(ctx, batch)
	if err == nil {
		err = failed // one is enough to tell of; what ails both is mostly the same
	}
	return len(abandoned)+deleted > 0, err
}
