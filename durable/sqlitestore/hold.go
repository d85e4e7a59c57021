package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// SetHold implements driver.Store.
func (s *Store) SetHold(ctx context.Context, hold driver.Hold) error {
	if err := hold.Validate(); err != nil {
		return err
	}
	return s.transact(ctx, false, func(ctx context.Context, t *transaction, now time.Time) error {
		switch {
		case hold.Provider:
			if err := t.exec(ctx, forgetWaits, now.Add(-forgetAfter).UnixMicro()); err != nil {
				return err
			}
			return t.exec(ctx, setWait, now.UnixMicro(), hold.Gateway, hold.Scope, micros(hold.Until), hold.Note)
		case hold.ReleasedBy == "":
			return t.exec(ctx, setHold, now.UnixMicro(), hold.Gateway, micros(hold.Until), hold.By, hold.Note)
		}
		waits, err := sqlitekit.Affected(t.statement(releaseWaits).ExecContext(ctx, now.UnixMicro(), hold.Gateway))
		if err != nil {
			return err
		}
		n, err := sqlitekit.Affected(t.statement(release).ExecContext(ctx, now.UnixMicro(), hold.Gateway, hold.ReleasedBy))
		if err == nil && n+waits == 0 {
			err = driver.ErrNotFound
		}
		return err
	})
}

// forgetAfter is how long the row of a provider's hold stays after its end.
const forgetAfter = 24 * time.Hour

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
		if err != nil {
			return err
		}
		var now int64
		if _, err := sqlitekit.ReadRows(ctx, s.read[clock], nil, func(rows *sql.Rows) error { return rows.Scan(&now) }); err != nil {
			return err
		}
		waits, err := waiting(ctx, s.read[readWaits], now)
		holds = append(holds, waits...)
		return err
	})
	return holds, err
}

// waiting reads the provider's holds that are in effect.
func waiting(ctx context.Context, statement sqlitekit.Statement, now int64) (holds []driver.Hold, err error) {
	_, err = sqlitekit.ReadRows(ctx, statement, []any{now}, func(rows *sql.Rows) error {
		var since, until int64
		h := driver.Hold{Provider: true}
		err := rows.Scan(&h.Gateway, &h.Scope, &since, &until, &h.Note)
		h.Since, h.Until = timeOf(since), timeOf(until)
		holds = append(holds, h)
		return err
	})
	return holds, err
}
