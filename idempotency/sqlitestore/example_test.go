package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "payments.db"))
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.DB().ExecContext(ctx, "CREATE TABLE charges (id TEXT, cents INTEGER)"); err != nil {
		log.Panic(err)
	}

	for range 2 { // the second is a retry
		if err := charge(ctx, store, "ch_1", 4200); err != nil {
			log.Panic(err)
		}
	}
	var charges int
	if err := store.DB().QueryRowContext(ctx, "SELECT count(*) FROM charges").Scan(&charges); err != nil {
		log.Panic(err)
	}
	fmt.Println("charges:", charges)
	// Output:
	// acquired
	// done: charged 4200
	// charges: 1
}

// charge uses a store like idempotency.Handler and Do.
func charge(ctx context.Context, store *sqlitestore.Store, key string, cents int) error {
	reservation, tx, err := store.Begin(ctx, driver.Claim{
		ID:          driver.ID{Scope: "tenant_1", Operation: "charge", Key: key},
		Fingerprint: driver.Fingerprint(fmt.Sprint("v1:", cents)),
		Owner:       driver.NewOwner(),
		Lease:       30 * time.Second,
		TTL:         24 * time.Hour,
	}, 0)
	if err != nil {
		return err
	}
	if reservation.Decision != driver.Acquired {
		fmt.Printf("%v: %s\n", reservation.Decision, reservation.Record.Result.Body)
		return nil
	}
	fmt.Println(reservation.Decision)

	defer tx.Rollback(ctx) //nolint:errcheck // does nothing after Commit
	if _, err := tx.Value().(*sql.Tx).ExecContext(ctx, "INSERT INTO charges VALUES (?, ?)", key, cents); err != nil {
		return err
	}
	return tx.Commit(ctx, driver.Outcome{
		Status: driver.Completed,
		Result: driver.Result{Body: fmt.Appendf(nil, "charged %d", cents)},
	})
}
