package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Store keeps intents in a SQLite database. Open and New make one. It is safe for
// concurrent use; any number of stores, in any number of processes of one machine, may
// share a file.
type Store struct {
	kit         *sqlitekit.DB
	write, read preparedStatements
}

var _ driver.Store = (*Store)(nil)

// DB is the database, for the work's own tables: the one that New was given, or
// that of Open. It is closed with the store in the latter case only.
func (s *Store) DB() *sql.DB { return s.kit.Work }

// Close ends the store, and with it the database that Open opened, but not the
// one that New was given. A transaction that is open may still be committed; all
// else fails with ErrClosed. Calling it again does nothing.
func (s *Store) Close() error { return s.kit.Close() }

// transact calls work with a transaction, which has the write lock, and its time.
// Those who hold leases go first.
func (s *Store) transact(
	ctx context.Context, holds bool, work func(ctx context.Context, t *transaction, now time.Time) error,
) error {
	return s.kit.Transact(ctx, &sqlitekit.Waiter{HoldsLease: holds}, func(ctx context.Context, tx *sql.Tx) error {
		t := &transaction{tx: tx, prepared: &s.write}
		now, err := t.now(ctx)
		if err != nil {
			return err
		}
		return work(ctx, t, now)
	})
}

// now is the time, by SQLite's clock.
func (t *transaction) now(ctx context.Context) (time.Time, error) {
	var micros int64
	_, err := sqlitekit.ReadRows(ctx, t.statement(clock), nil, func(rows *sql.Rows) error { return rows.Scan(&micros) })
	return timeOf(micros), err
}

// Apply implements durable.Store. Events that end attempts go before what other verbs
// of this process wait to write.
func (s *Store) Apply(ctx context.Context, events []driver.Event) (results []driver.Result, err error) {
	holds := false
	for i := range events {
		if err := driver.ValidEvent(&events[i]); err != nil {
			return nil, err
		}
		holds = holds || events[i].Kind == driver.EventFinish
	}
	if len(events) == 0 {
		return nil, s.kit.Usable(ctx)
	}
	err = s.transact(ctx, holds, func(ctx context.Context, t *transaction, now time.Time) error {
		results = make([]driver.Result, len(events)) // anew for each try
		for i := range events {
			if results[i], err = t.apply(ctx, &events[i], now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// apply is one event. The error is the database's.
func (t *transaction) apply(ctx context.Context, e *driver.Event, now time.Time) (driver.Result, error) {
	if e.Kind == driver.EventEnqueue {
		result, done, err := t.enqueue(ctx, e, now)
		if done || err != nil {
			return result, err
		}
	}
	r, err := readRow(ctx, t.statement(load), e.ID())
	if err != nil {
		return driver.Result{}, err
	}
	if r == nil {
		change, err := driver.Decide(nil, e, now)
		return driver.Result{Change: change, Err: err}, nil
	}
	return t.judge(ctx, r, e, now)
}

// enqueue takes the intent for a new one, which it nearly always is, and looks for
// what is there only if it is not.
func (t *transaction) enqueue(ctx context.Context, e *driver.Event, now time.Time) (result driver.Result, done bool, err error) {
	result.Change, result.Err = driver.Decide(nil, e, now)
	if result.Err == nil && result.Step == driver.StepInsert { // else what is there may still be the same
		done, err = t.insert(ctx, &result.Record)
	}
	return result, done, err
}

// judge does with a record what Decide says.
func (t *transaction) judge(ctx context.Context, r *row, e *driver.Event, now time.Time) (result driver.Result, err error) {
	result.Change, result.Err = driver.Decide(&r.Record, e, now)
	if result.Err == nil && result.Step != driver.StepKeep {
		err = t.write(ctx, r.id, &result.Change)
	}
	return result, err
}

// Heartbeat implements durable.Store.
func (s *Store) Heartbeat(ctx context.Context, worker string, lease time.Duration) (now time.Time, err error) {
	if err := driver.ValidateHeartbeat(worker, lease); err != nil {
		return time.Time{}, err
	}
	err = s.transact(ctx, true, func(ctx context.Context, t *transaction, clock time.Time) error {
		now = clock
		return t.beat(ctx, worker, clock.Add(ceil(lease)))
	})
	return now, err
}

func (t *transaction) beat(ctx context.Context, worker string, until time.Time) error {
	return t.exec(ctx, beat, worker, until.UnixMicro())
}

// Find implements durable.Store.
func (s *Store) Find(ctx context.Context, id idempotency.ID) (driver.Record, error) {
	r, err := s.find(ctx, id, find)
	if err != nil {
		return driver.Record{}, err
	}
	return r.Record, nil
}

func (s *Store) find(ctx context.Context, id idempotency.ID, by statement) (r *row, err error) {
	if err := validID(id); err != nil {
		return nil, err
	}
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		r, err = readRow(ctx, s.read[by], id)
		return err
	})
	if err == nil && r == nil {
		err = driver.ErrNotFound
	}
	return r, err
}
