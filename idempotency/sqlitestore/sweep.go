package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
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
	return s.kit.Sweep(ctx, limit, func(ctx context.Context, tx *sql.Tx, limit int) (int, error) {
		return sqlitekit.Affected(tx.ExecContext(ctx, sweepSQL, limit))
	})
}

// Abandon implements idempotency.Store. It waits no longer than Sweep does, and is
// flushed to disk, for somebody is told of it.
func (s *Store) Reap(ctx context.Context, limit int) (all []driver.Record, err error) {
	found, err := s.exists(ctx, s.read.findDead)
	if err != nil || !found || limit <= 0 {
		return nil, err
	}
	for n := sqlitekit.SweepBatch; n == sqlitekit.SweepBatch && len(all) < limit && err == nil; {
		var batch []driver.Record
		err = s.alone(ctx, &ticket{}, sqlitekit.SweepPatience, func(ctx context.Context) error {
			batch, err = readRecords(ctx, s.write.abandonDead, []any{min(sqlitekit.SweepBatch, limit-len(all))})
			return err
		})
		all, n = append(all, batch...), len(batch)
	}
	return all, sqlitekit.UnlessLocked(err)
}

// exists looks whether there is anything to do, without a lock.
func (s *Store) exists(ctx context.Context, find sqlitekit.Statement) (bool, error) {
	n := 0
	err := s.kit.Reading(ctx, func(ctx context.Context) (err error) {
		n, err = sqlitekit.ReadRows(ctx, find, nil, func(*sql.Rows) error { return nil })
		return err
	})
	return n > 0, err
}
