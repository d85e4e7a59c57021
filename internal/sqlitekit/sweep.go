package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

const (
	// SweepBatch is how many records are deleted under the write lock at a time. It
	// takes one or two milliseconds: no longer than a slow flush to disk.
	SweepBatch = 64

	// SweepPatience is how long a sweep waits for the write lock. It can wait until
	// the next time, and must not wait for a transaction of the work.
	SweepPatience = 250 * time.Millisecond

	// sweepPause is how long a sweep stays away after a batch, at least; else as long
	// as that took. Writers of other processes, who see the lock only by trying,
	// need a gap to find it free.
	sweepPause = time.Millisecond

	// sweepShare is how many times as long it is when others of this process write:
	// then too few of them meet a batch for their 99th percentile to show it.
	// Measured by idempotency/sqlitestore's BenchmarkClaimsWhileSweeping: many small
	// batches are worse.
	sweepShare = 10

	// checkpointEvery is after how many records what was deleted is brought from
	// the log into the database's file: before the log is so long that the next
	// writer would have to do it.
	checkpointEvery = 1000
)

// Sweep deletes up to limit records, by batch, which is told how many at most and
// returns how many it has deleted. It is called again, in transactions of their own on
// Sweeper, so that writers come in between, until it deletes nothing. What it deletes is
// not flushed to disk: if it comes back, it is swept again. When somebody keeps the
// write lock, Sweep returns early, with what it has got.
func (d *DB) Sweep(
	ctx context.Context, limit int, batch func(ctx context.Context, tx *sql.Tx, limit int) (int, error),
) (swept int, err error) {
	turns := d.turn.count()
	for swept < limit {
		n, took, err := d.sweepOnce(ctx, min(SweepBatch, limit-swept), batch)
		swept += n
		if err != nil || n == 0 || swept >= limit {
			return swept, UnlessLocked(err)
		}
		if d.logged.Add(int64(n)) >= checkpointEvery {
			d.logged.Store(0)
			d.checkpoint(ctx)
		}
		before := turns
		if turns = d.turn.count(); turns > before+1 { // not this batch alone
			took *= sweepShare
		}
		if err := sleep(ctx, max(sweepPause, took)); err != nil {
			return swept, err
		}
	}
	return swept, ctx.Err()
}

// sweepOnce is one batch. It took so long under the lock.
func (d *DB) sweepOnce(
	ctx context.Context, limit int, batch func(context.Context, *sql.Tx, int) (int, error),
) (n int, took time.Duration, err error) {
	err = d.Alone(ctx, &Ticket{}, SweepPatience, func(ctx context.Context) error {
		began := time.Now()
		defer func() { took = time.Since(began) }()
		return transact(ctx, d.Sweeper, func(ctx context.Context, tx *sql.Tx) error {
			n, err = batch(ctx, tx, limit)
			return err
		})
	})
	if err != nil {
		n = 0
	}
	return n, took, err
}

// UnlessLocked is err, save that somebody keeps the lock: for who can come again, that
// is no failure.
func UnlessLocked(err error) error {
	if errors.Is(err, ErrLocked) {
		return nil
	}
	return err
}

// checkpoint moves what it can from the log to the file, without making anybody
// wait. Whether it could does not matter: the next one, or any other
// connection's, does the rest.
func (d *DB) checkpoint(ctx context.Context) {
	_, _ = d.Sweeper.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)")
}
