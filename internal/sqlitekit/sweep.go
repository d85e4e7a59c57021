package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	// SweepBatch is the number of records that are deleted under one write lock, and of writers in one transaction. That
	// takes one or two milliseconds, no longer than a slow flush to disk.
	SweepBatch = 64

	// SweepTimeout is the maximum time that a sweep waits for the write lock. A sweep
	// can continue the next time, and must not wait for an application's transaction.
	SweepTimeout = 250 * time.Millisecond

	// sweepRatio is the ratio of pause to batch while other writers of this process are
	// active. It keeps batches out of their 99th percentile. Smaller batches are worse.
	sweepRatio = 10

	// checkpointEvery is the number of swept records after which the write-ahead log is
	// copied to the file, before it is so long that the next writer has to do it.
	checkpointEvery = 1000
)

// Batch deletes up to limit records, and returns their number.
type Batch func(ctx context.Context, tx *sql.Tx, limit int) (int, error)

// Sweep deletes up to limit records. It calls batch, which deletes up to its limit and returns the number, until batch
// deletes nothing. Each call has a transaction of its own on Sweeper, so that other writers can write in between.
// Deletions are not flushed to disk: a record that reappears is swept again. If the write lock is not free, Sweep
// returns early without an error.
func (d *DB) Sweep(ctx context.Context, limit int, batch Batch) (swept int, err error) {
	grants := d.grants.Load()
	for swept < limit {
		n, took := 0, time.Duration(0) // under the lock
		err := d.Exclusive(ctx, &Waiter{}, SweepTimeout, func(ctx context.Context) error {
			began := time.Now()
			defer func() { took = time.Since(began) }()
			return transact(ctx, d.Sweeper, func(ctx context.Context, tx *sql.Tx) (err error) {
				n, err = batch(ctx, tx, min(SweepBatch, limit-swept))
				return err
			})
		})
		if err != nil {
			return swept, UnlessLocked(err)
		}
		if swept += n; n == 0 || swept >= limit {
			return swept, nil
		}
		if d.logged.Add(int64(n)) >= checkpointEvery {
			d.logged.Store(0)
			d.checkpoint(ctx, "PASSIVE")
		}
		before := grants
		if grants = d.grants.Load(); grants > before+1 { // more than this batch
			took *= sweepRatio
		}
		// Writers of other processes find the lock only by trying, and need a gap.
		if err := sleep.Context(ctx, max(firstPause, took)); err != nil {
			return swept, err
		}
	}
	return swept, ctx.Err()
}

// UnlessLocked returns nil for an ErrLocked, and any other err. It is for callers that can try again later.
func UnlessLocked(err error) error {
	if errors.Is(err, ErrLocked) {
		return nil
	}
	return err
}

// checkpoint copies as much of the write-ahead log as it can without waiting for other connections. A
// later checkpoint of any connection copies the rest.
func (d *DB) checkpoint(ctx context.Context, mode string) {
	_, _ = d.Sweeper.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint("+mode+")")
}
