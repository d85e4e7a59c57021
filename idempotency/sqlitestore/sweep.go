package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

const (
	// sweepBatch is how many records are deleted under the write lock at a time. It
	// takes one or two milliseconds: no longer than a slow flush to disk.
	sweepBatch = 64

	// sweepPatience is how long Sweep waits for the write lock. It can wait until
	// the next time, and must not wait for a transaction of the work.
	sweepPatience = 250 * time.Millisecond

	// sweepPause is how long Sweep stays away after a batch, at least; else as long
	// as that took. Writers of other processes, who see the lock only by trying,
	// need a gap to find it free.
	sweepPause = time.Millisecond

	// sweepShare is how many times as long it is when others of this process write:
	// then too few of them meet a batch for their 99th percentile to show it.
	// Measured by BenchmarkClaimsWhileSweeping: many small batches are worse.
	sweepShare = 10

	// checkpointEvery is after how many records what was deleted is brought from
	// the log into the database's file: before the log is so long that the next
	// claim would have to do it.
	checkpointEvery = 1000
)

// Sweep implements idempotency.Store. It deletes a few records at a time, so that
// claims come in between. What it deletes is not flushed to disk: if it comes
// back, it is swept again. When somebody keeps the write lock, it returns early,
// with what it has got.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	found, err := s.exists(ctx, s.read.findExpired)
	if err != nil || !found || limit <= 0 {
		return 0, err
	}
	swept, err := s.sweepBatches(ctx, limit)
	return swept, unlessLocked(err)
}

// Abandon implements idempotency.Store. It waits no longer than Sweep does, and is
// flushed to disk, for somebody is told of it.
func (s *Store) Abandon(ctx context.Context, limit int) (all []idempotency.Record, err error) {
	found, err := s.exists(ctx, s.read.findDead)
	if err != nil || !found || limit <= 0 {
		return nil, err
	}
	for n := sweepBatch; n == sweepBatch && len(all) < limit && err == nil; {
		var batch []idempotency.Record
		err = s.alone(ctx, &ticket{}, sweepPatience, func(ctx context.Context) error {
			batch, err = readRecords(ctx, s.write.abandonDead, []any{min(sweepBatch, limit-len(all))})
			return err
		})
		all, n = append(all, batch...), len(batch)
	}
	return all, unlessLocked(err)
}

// unlessLocked: that somebody keeps the lock is no failure.
func unlessLocked(err error) error {
	if errors.Is(err, ErrLocked) {
		return nil
	}
	return err
}

func (s *Store) sweepBatches(ctx context.Context, limit int) (swept int, err error) {
	turns := s.turn.count()
	for {
		n, took, err := s.sweepOnce(ctx, min(sweepBatch, limit-swept))
		swept += n
		if err != nil || n == 0 || swept >= limit {
			return swept, err
		}
		if s.logged.Add(int64(n)) >= checkpointEvery {
			s.logged.Store(0)
			s.checkpoint(ctx)
		}
		before := turns
		if turns = s.turn.count(); turns > before+1 { // not this batch alone
			took *= sweepShare
		}
		if err := sleep(ctx, max(sweepPause, took)); err != nil {
			return swept, err
		}
	}
}

// exists looks whether there is anything to do, without a lock.
func (s *Store) exists(ctx context.Context, find statement) (bool, error) {
	n := 0
	err := s.reading(ctx, func(ctx context.Context) (err error) {
		n, err = readRows(ctx, find, nil, func(*sql.Rows) error { return nil })
		return err
	})
	return n > 0, err
}

// sweepOnce is one batch. It took so long under the lock.
func (s *Store) sweepOnce(ctx context.Context, limit int) (n int, took time.Duration, err error) {
	err = s.alone(ctx, &ticket{}, sweepPatience, func(ctx context.Context) error {
		began := time.Now()
		n, err = affected(s.sweeper.sweep.ExecContext(ctx, limit))
		took = time.Since(began)
		return err
	})
	return n, took, err
}

// checkpoint moves what it can from the log to the file, without making anybody
// wait. Whether it could does not matter: the next one, or any other
// connection's, does the rest.
func (s *Store) checkpoint(ctx context.Context) {
	_, _ = s.sweeper.db.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)")
}
