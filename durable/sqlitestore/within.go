package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// WithTx returns an outbox in a transaction of the caller, on this store's DB or another of the
// same file. An intent takes effect with the commit, and is as durable: the connection's
// synchronous should be FULL. The outbox is valid until the transaction ends. It is for
// one goroutine at a time.
//
// Its verbs take the write lock until the transaction ends. Begin the transaction as immediate
// ("_txlock=immediate", as DB does). Otherwise a verb may fail with SQLITE_BUSY.
func (*Store) WithTx(tx *sql.Tx) driver.Outbox {
	return driver.Within(func(ctx context.Context, e driver.Event) (result driver.Result, err error) {
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
