package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Store keeps intents in a SQLite database. Open and New return one. It is safe for concurrent
// use. Any number of stores, in several processes of one machine, may share a file.
type Store struct {
	kit         *sqlitekit.DB
	write, read preparedStatements
}

var _ driver.Store = (*Store)(nil)

// DB returns the database, for tables of the caller. Close closes the database of Open, and not
// that of New.
func (s *Store) DB() *sql.DB { return s.kit.Work }

// Close closes the store and the database of Open. An open transaction may still be committed.
// Other methods return ErrClosed after it. A second Close does nothing.
func (s *Store) Close() error { return s.kit.Close() }

// transact calls work with a transaction that has the write lock, and its time. Callers that
// hold leases go first.
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

// Apply implements driver.Store. Events that end attempts go before other writes of this
// process.
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

// apply applies one event. The error is the database's.
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

// enqueue inserts the intent, and reads the existing one only if there is one.
func (t *transaction) enqueue(ctx context.Context, e *driver.Event, now time.Time) (result driver.Result, done bool, err error) {
	result.Change, result.Err = driver.Decide(nil, e, now)
	if result.Err == nil && result.Step == driver.StepInsert { // otherwise an equal intent may exist
		done, err = t.insert(ctx, &result.Record)
	}
	return result, done, err
}

// judge applies the decision of Decide to a record.
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
	if err := driver.ValidID(id); err != nil {
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
