package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// WithTx returns an outbox in a transaction of the caller, on this store's DB or another of the
// same file. An intent takes effect with the commit, and is as durable: the connection's
// synchronous should be FULL. The outbox is valid until the transaction ends. It is for
// one goroutine at a time.
//
// Its verbs take the write lock until the transaction ends. Begin the transaction as immediate
// ("_txlock=immediate", as DB does). Otherwise a verb may fail with SQLITE_BUSY.
func (s *Store) WithTx(tx *sql.Tx) driver.Outbox { return outbox{&transaction{tx: tx}} }

type outbox struct{ t *transaction }

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

// apply takes the write lock before it reads the time.
func (o outbox) apply(ctx context.Context, e driver.Event) (result driver.Result, err error) {
	if _, err := o.t.tx.ExecContext(ctx, lockSQL); err != nil {
		return result, err
	}
	now, err := o.t.now(ctx)
	if err != nil {
		return result, err
	}
	if result, err = o.t.apply(ctx, &e, now); err != nil {
		return result, err
	}
	return result, result.Err
}
