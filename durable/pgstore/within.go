package pgstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// WithTx returns an outbox in a transaction of the caller, in the database of the store. An
// intent takes effect with the commit, and is as durable: synchronous_commit should be on. The
// outbox is valid until the transaction ends. It is for one goroutine at a time.
//
// Enqueue waits for other transactions that have enqueued the same intent. After an error that
// is not one of package durable's, roll back and begin anew, as after every error of
// PostgreSQL. That includes deadlocks between transactions that enqueue the same intents in
// different orders. Above the isolation level read committed, the commit may fail with 40001.
func (s *Store) WithTx(tx pgx.Tx) driver.Outbox {
	return s.outbox(pgkit.PGX(tx))
}

// WithSQLTx is WithTx for database/sql, with the driver of pgx/v5/stdlib. It takes more round
// trips, because database/sql cannot send two statements at once.
func (s *Store) WithSQLTx(tx *sql.Tx) driver.Outbox {
	return s.outbox(pgkit.SQL(tx))
}

// outbox applies events in a transaction of the caller. The caller commits it.
func (s *Store) outbox(t pgkit.Sender) driver.Outbox {
	return driver.Within(func(ctx context.Context, e driver.Event) (driver.Result, error) {
		if err := e.Validate(); err != nil {
			return driver.Result{}, err // without a round trip
		}
		a := newApplication(s.joined, []driver.Event{e})
		a.notifies = s.mayNotify(ctx)
		results, last, err := a.run(ctx, t)
		if err == nil {
			err = t.Send(ctx, last...)
		}
		if err != nil {
			return driver.Result{}, pgkit.Ended(ctx, err)
		}
		return results[0], results[0].Err
	})
}
