package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
)

// Reap implements sqlquery.Transaction.
func (t *transaction) Reap(ctx context.Context, limit int) ([]driver.Change, error) {
	rows, err := t.rows(ctx, loadLost, limit)
	if err != nil {
		return nil, err
	}
	var changes []driver.Change
	for _, r := range rows {
		e := driver.Event{Kind: driver.EventLeaseExpired, Intent: driver.Intent{ID: r.ID}, Worker: r.Worker}
		result, err := t.judge(ctx, r, &e)
		if err != nil {
			return nil, err
		}
		if result.Err == nil {
			changes = append(changes, result.Change)
		}
	}
	return changes, t.exec(ctx, forgetDead)
}

// Sweep implements driver.Store. It deletes a few intents at a time, so that other writers do not
// wait long. The deletions are not flushed to disk. If the write lock is busy, it returns
// early.
func (s *Store) Sweep(ctx context.Context, ttl time.Duration, limit int) (int, error) {
	age := ceil(ttl).Microseconds()
	found, err := sqlquery.Exists(ctx, s.db, findOver, age)
	if err != nil || !found || limit <= 0 {
		return 0, err
	}
	return s.db.kit.Sweep(ctx, limit, func(ctx context.Context, tx *sql.Tx, limit int) (n int, err error) {
		t, err := newTransaction(ctx, tx, nil)
		if err != nil {
			return 0, err
		}
		for _, text := range [...]string{sweepAttempts, sweepLetters, sweepIntents} {
			if n, err = t.affected(ctx, text, t.now.UnixMicro()-age, limit); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}
