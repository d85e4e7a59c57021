package pgstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// WithTx gives an outbox in a transaction of the caller's, who begins it, in the
// database of the store, and ends it. What is enqueued is there when that commits, and
// lasts as that does: synchronous_commit should be on. The outbox lives as long as the
// transaction, and like that it is for one goroutine at a time.
//
// Who enqueues what another transaction has enqueued and not committed waits for its
// end. An error that is not one of package durable's ends the transaction, as every
// error of PostgreSQL's does: roll back and begin anew. So it is after a deadlock, which
// two transactions come to that enqueue the same intents in different orders. Isolation
// levels above read committed find out at the end, with PostgreSQL's code 40001.
func (s *Store) WithTx(tx pgx.Tx) driver.Outbox { return outbox{joined{pgkit.PGX(tx)}, s.joined} }

// WithSQLTx is Within for database/sql, with the driver of pgx/v5/stdlib. It takes more
// round trips, for database/sql cannot send two statements at once.
func (s *Store) WithSQLTx(tx *sql.Tx) driver.Outbox { return outbox{joined{pgkit.SQL(tx)}, s.joined} }

// joined is a transaction of the caller's, who commits it.
type joined struct{ pgkit.Sender }

// Commit implements ending.
func (j joined) Commit(ctx context.Context, statements ...*pgkit.Statement) error {
	return j.Send(ctx, statements...)
}

type outbox struct {
	t  joined
	is *statements
}

// Enqueue implements durable.Outbox.
func (o outbox) Enqueue(ctx context.Context, in driver.Intent) (driver.Receipt, error) {
	result, err := o.apply(ctx, driver.Event{Kind: driver.EventEnqueue, Intent: in})
	if err != nil {
		return driver.Receipt{}, err
	}
	return result.Receipt(), nil
}

// Cancel implements durable.Outbox.
func (o outbox) Cancel(ctx context.Context, id idempotency.ID) error {
	_, err := o.apply(ctx, driver.Event{Kind: driver.EventCancel, Intent: driver.Intent{ID: id}})
	return err
}

func (o outbox) apply(ctx context.Context, e driver.Event) (*driver.Result, error) {
	if err := e.Validate(); err != nil {
		return nil, err // without a word to the database
	}
	a := &application{is: o.is, events: []driver.Event{e}}
	a.collect()
	results, err := a.run(ctx, o.t)
	if err != nil {
		return nil, pgkit.Ended(ctx, err)
	}
	return &results[0], results[0].Err
}
