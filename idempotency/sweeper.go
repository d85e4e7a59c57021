package idempotency

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Sweeper deletes expired records. It also makes an execution Unknown if its lease is over
// and it may not be repeated. Run one Sweeper in each process; they do not disturb each
// other. Store is required. A Sweeper is safe for concurrent use if its hooks are.
type Sweeper struct {
	// Store is the store that is swept.
	Store Store

	// Trace.Unknown is called for each record that becomes Unknown. nil means none.
	Trace *Trace

	// Every is the time between two sweeps if there is nothing left to sweep. Zero means 1 min.
	Every time.Duration

	// OnError is called after each sweep that failed. nil means that errors are ignored, and the
	// next sweep comes at its time.
	OnError func(error)
}

const (
	batch        = 500 // records that one operation changes
	defaultEvery = time.Minute

	// pauseRatio is the pause after a batch, in multiples of its duration.
	pauseRatio = 4

	// sweepTimeout bounds an operation, which takes milliseconds. A longer one is mostly on a dead connection, which
	// the kernel notices after a quarter of an hour, and behind a pooler not at all.
	sweepTimeout = time.Minute
)

// Run sweeps until ctx ends, and returns its error. It starts no goroutine.
func (s *Sweeper) Run(ctx context.Context) error {
	if s.Store == nil || s.Every < 0 {
		return fmt.Errorf("%w: Sweeper: Store is nil, or Every is negative", ErrInvalid)
	}
	every := cmp.Or(s.Every, defaultEvery)
	for ctx.Err() == nil {
		began := time.Now()
		more, err := s.sweep(ctx)
		if err != nil && ctx.Err() == nil && s.OnError != nil {
			s.OnError(err)
		}
		wait := every
		if err == nil && more {
			wait = max(pauseRatio*time.Since(began), minPause)
		}
		_ = sleep.Jittered(ctx, wait)
	}
	return ctx.Err()
}

// sweep is one batch. Records that became Unknown are reported also if there was an
// error after some of them.
func (s *Sweeper) sweep(ctx context.Context) (more bool, err error) {
	reaping, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	reaped, err := s.Store.Reap(reaping, batch)
	for i := range reaped {
		t := traceEvent{trace: s.Trace, event: Event{Lease: Lease{ID: reaped[i].ID, Generation: reaped[i].Generation}}}
		t.emit(Unknown, errLeaseExpired)
	}
	sweeping, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	deleted, failed := s.Store.Sweep(sweeping, batch)
	if err == nil {
		err = failed // two errors of one store mostly have one cause
	}
	return len(reaped)+deleted > 0, err
}
