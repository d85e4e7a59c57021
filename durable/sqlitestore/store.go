package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
)

// Store keeps intents in a SQLite database. Open and New return one. It is safe for concurrent
// use. Any number of stores, in several processes of one machine, may share a file.
type Store struct {
	verbs

	db *database
}

type verbs = sqlquery.Verbs

var _ durable.Store = (*Store)(nil)

// DB returns the database, for tables of the caller. Close closes the database of Open, and not
// that of New.
func (s *Store) DB() *sql.DB { return s.db.kit.Work }

// Close closes the store and the database of Open. An open transaction may still be committed.
// Other methods return ErrClosed after it. A second Close does nothing.
func (s *Store) Close() error { return s.db.kit.Close() }

// Apply implements durable.Store. Events that end attempts go before other writes of this
// process.
func (s *Store) Apply(ctx context.Context, events []durable.Event) (results []durable.Result, err error) {
	holds := false
	for i := range events {
		if err := durable.ValidEvent(&events[i]); err != nil {
			return nil, err
		}
		holds = holds || events[i].Kind == durable.EventFinish
	}
	if len(events) == 0 {
		return nil, s.db.kit.Usable(ctx)
	}
	err = s.db.transact(ctx, holds, func(ctx context.Context, t *transaction) error {
		results, err = t.Apply(ctx, events)
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// apply applies one event. The error is the database's.
func (t *transaction) apply(ctx context.Context, e *durable.Event) (durable.Result, error) {
	if e.Kind == durable.EventEnqueue {
		result, done, err := t.enqueue(ctx, e)
		if done || err != nil {
			return result, err
		}
	}
	r, err := t.row(ctx, load, e.ID())
	if err != nil {
		return durable.Result{}, err
	}
	if r == nil {
		change, err := durable.Decide(nil, e, t.now)
		return durable.Result{Change: change, Err: err}, nil
	}
	return t.judge(ctx, r, e)
}

// enqueue inserts the intent, and reads the existing one only if there is one.
func (t *transaction) enqueue(ctx context.Context, e *durable.Event) (result durable.Result, done bool, err error) {
	result.Change, result.Err = durable.Decide(nil, e, t.now)
	if result.Err == nil && result.Step == durable.StepInsert { // otherwise an equal intent may exist
		done, err = t.insert(ctx, &result.Record)
	}
	return result, done, err
}

// judge applies the decision of Decide to a record.
func (t *transaction) judge(ctx context.Context, r *row, e *durable.Event) (result durable.Result, err error) {
	result.Change, result.Err = durable.Decide(&r.Record, e, t.now)
	if result.Err == nil && result.Step != durable.StepKeep {
		err = t.write(ctx, r.id, &result.Change)
	}
	return result, err
}

// Heartbeat implements durable.Store.
func (s *Store) Heartbeat(ctx context.Context, worker string, lease time.Duration) (now time.Time, err error) {
	if err := durable.ValidateHeartbeat(worker, lease); err != nil {
		return time.Time{}, err
	}
	err = s.db.transact(ctx, true, func(ctx context.Context, t *transaction) error {
		now = t.now
		return t.exec(ctx, beat, worker, now, now.Add(ceil(lease)))
	})
	return now, err
}

// ceil is a duration in microseconds, rounded up: no lease is shorter than requested.
func ceil(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// Reap implements sqlquery.Transaction.
func (t *transaction) Reap(ctx context.Context, limit int) ([]durable.Change, error) {
	if err := t.exec(ctx, sqlquery.RestartLeases); err != nil {
		return nil, err
	}
	rows, err := t.rows(ctx, loadLost, limit)
	if err != nil {
		return nil, err
	}
	var changes []durable.Change
	for _, r := range rows {
		e := durable.Event{Kind: durable.EventLeaseExpired, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker}
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

// Sweep implements durable.Store. It deletes a few intents at a time, so that other writers do not
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

// WithTx returns an outbox in a transaction of the caller, on this store's DB or another of the
// same file. An intent takes effect with the commit, and is as durable: the connection's
// synchronous should be FULL. The outbox is valid until the transaction ends. It is for
// one goroutine at a time.
//
// Its verbs take the write lock until the transaction ends. Begin the transaction as immediate
// ("_txlock=immediate", as DB does). Otherwise a verb may fail with SQLITE_BUSY.
func (*Store) WithTx(tx *sql.Tx) durable.Outbox {
	return durable.Within(func(ctx context.Context, e durable.Event) (result durable.Result, err error) {
		if _, err := tx.ExecContext(ctx, lockSQL); err != nil { // before it reads the time
			return result, err
		}
		t, err := newTransaction(ctx, tx, nil)
		if err == nil {
			result, err = t.apply(ctx, &e)
		}
		if err != nil {
			return result, err
		}
		return result, result.Err
	})
}
