package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// SetHold implements driver.Store.
func (s *Store) SetHold(ctx context.Context, hold driver.Hold) error {
	if err := hold.Validate(); err != nil {
		return err
	}
	return s.transact(ctx, false, func(ctx context.Context, t *transaction, now time.Time) error {
		if hold.ReleasedBy == "" {
			return t.exec(ctx, setHold, now.UnixMicro(), hold.Gateway, micros(hold.Until), hold.By, hold.Note)
		}
		n, err := sqlitekit.Affected(t.statement(release).ExecContext(ctx, now.UnixMicro(), hold.Gateway, hold.ReleasedBy))
		if err == nil && n == 0 {
			err = driver.ErrNotFound
		}
		return err
	})
}

// Holds implements driver.Store.
func (s *Store) Holds(ctx context.Context) (holds []driver.Hold, err error) {
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		holds = nil // anew for each try
		_, err := sqlitekit.ReadRows(ctx, s.read[readHolds], nil, func(rows *sql.Rows) error {
			var (
				h     driver.Hold
				since int64
				until sql.NullInt64
			)
			err := rows.Scan(&h.Gateway, &since, &until, &h.By, &h.Note)
			h.Since, h.Until = timeOf(since), timeOrNone(until)
			holds = append(holds, h)
			return err
		})
		return err
	})
	return holds, err
}
