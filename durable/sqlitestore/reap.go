package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Reap implements driver.Store. It reads first, without a lock: usually no lease is over.
func (s *Store) Reap(ctx context.Context, limit int) (changes []driver.Change, err error) {
	found, err := s.exists(ctx, findLost)
	if err != nil || !found || limit <= 0 {
		return nil, err
	}
	err = s.transact(ctx, false, func(ctx context.Context, t *transaction, now time.Time) error {
		changes, err = t.reap(ctx, now, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return changes, nil
}

func (t *transaction) reap(ctx context.Context, now time.Time, limit int) ([]driver.Change, error) {
	rows, err := readRows(ctx, t.statement(lost), now.UnixMicro(), limit)
	if err != nil {
		return nil, err
	}
	var changes []driver.Change
	for i := range rows {
		e := driver.Event{Kind: driver.EventLeaseExpired, Intent: driver.Intent{ID: rows[i].ID}, Worker: rows[i].Worker}
		result, err := t.judge(ctx, &rows[i], &e, now)
		if err != nil {
			return nil, err
		}
		if result.Err == nil {
			changes = append(changes, result.Change)
		}
	}
	return changes, t.exec(ctx, forget, now.UnixMicro())
}

// exists reports whether there is anything to do, without a lock.
func (s *Store) exists(ctx context.Context, what statement, args ...any) (found bool, err error) {
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		_, err := sqlitekit.ReadRows(ctx, s.read[what], args, func(rows *sql.Rows) error { return rows.Scan(&found) })
		return err
	})
	return found, err
}

// Sweep implements driver.Store. It deletes a few intents at a time, so that other writers do not
// wait long. The deletions are not flushed to disk. If the write lock is busy, it returns
// early.
func (s *Store) Sweep(ctx context.Context, ttl time.Duration, limit int) (int, error) {
	age := ceil(ttl).Microseconds()
	found, err := s.exists(ctx, findOver, age)
	if err != nil || !found || limit <= 0 {
		return 0, err
	}
	return s.kit.Sweep(ctx, limit, func(ctx context.Context, tx *sql.Tx, limit int) (n int, err error) {
		now, err := (&transaction{tx: tx}).now(ctx)
		if err != nil {
			return 0, err
		}
		for _, text := range [...]string{sweepAttempts, sweepLetters, sweepIntents} {
			if n, err = sqlitekit.Affected(tx.ExecContext(ctx, text, now.UnixMicro()-age, limit)); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}
