package sqlitestore

import (
	"context"
	"errors"
	"time"
)

const (
	// sweepBatch is how many records are deleted under the write lock at a time.
	// It takes a fraction of what a claim's flush to disk takes.
	sweepBatch = 16

	// largeBatch is how many it is when the lock was found only after several
	// trials: who comes so rarely to his turn must make more of it.
	largeBatch = 128

	// sweepPatience is how long Sweep waits for the write lock. It can wait until
	// the next time, and must not wait for a transaction of the work.
	sweepPatience = 250 * time.Millisecond

	// sweepPause is how long Sweep stays away after each batch, at least; else as
	// long as the batch took. Writers of other processes, who see the lock only by
	// trying, need a gap to find it free.
	sweepPause = time.Millisecond

	// checkpointEvery is after how many records what was deleted is brought from
	// the log into the database's file: before the log is so long that the next
	// claim would have to do it.
	checkpointEvery = 256
)

// Sweep implements idempotency.Store. It deletes a few records at a time, so that
// claims come in between. What it deletes is not flushed to disk: if it comes
// back, it is swept again. When somebody keeps the write lock, it returns early,
// with what it has got.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	found, err := s.sweepable(ctx)
	if err != nil || !found || limit <= 0 {
		return 0, err
	}
	swept, err := s.sweepBatches(ctx, limit)
	if errors.Is(err, ErrLocked) {
		err = nil
	}
	return swept, err
}

func (s *Store) sweepBatches(ctx context.Context, limit int) (swept int, err error) {
	logged := 0 // what the log has of it
	defer s.checkpoint(ctx)
	for size := sweepBatch; ; {
		once, err := s.sweepOnce(ctx, min(size, limit-swept))
		swept += once.swept
		if err != nil || once.swept == 0 || swept >= limit {
			return swept, err
		}
		if logged += once.swept; logged >= checkpointEvery {
			s.checkpoint(ctx)
			logged = 0
		}
		size = sweepBatch
		if once.tried > 1 {
			size = largeBatch
		}
		if err := sleep(ctx, max(sweepPause, once.took)); err != nil {
			return swept, err
		}
	}
}

// sweepable looks whether there is anything to sweep, without a lock.
func (s *Store) sweepable(ctx context.Context) (found bool, err error) {
	err = s.reading(ctx, func(ctx context.Context) error {
		var one int
		found, err = readRow(ctx, s.read.sweepable, nil, &one)
		return err
	})
	return found, err
}

// batch is one of a sweep.
type batch struct {
	swept int
	tried int           // to get the lock from other processes
	took  time.Duration // under the lock
}

func (s *Store) sweepOnce(ctx context.Context, limit int) (b batch, err error) {
	k := &ticket{}
	if err := s.queue(ctx, k, sweepPatience); err != nil {
		return b, err
	}
	defer s.turn.leave(k)
	if err := s.file.check(); err != nil {
		return b, err
	}
	err = s.retry(ctx, sweepPatience, func() error {
		began := time.Now()
		b.swept, err = affected(s.sweeper.sweep.ExecContext(context.WithoutCancel(ctx), limit))
		b.tried++
		b.took = time.Since(began)
		return err
	})
	return b, err
}

// checkpoint moves what it can from the log to the file, without making anybody
// wait. Whether it could does not matter: the next one, or any other
// connection's, does the rest.
func (s *Store) checkpoint(ctx context.Context) {
	_, _ = s.sweeper.db.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)")
}
