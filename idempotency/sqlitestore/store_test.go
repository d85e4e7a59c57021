package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

func open(tb testing.TB, path string) *sqlitestore.Store {
	tb.Helper()
	store, err := sqlitestore.Open(tb.Context(), path)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	return store
}

func newStore(tb testing.TB) *sqlitestore.Store {
	tb.Helper()
	return open(tb, filepath.Join(tb.TempDir(), "test.db"))
}

// openWork opens a database like an application, with more query parameters.
func openWork(tb testing.TB, path, query string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_pragma=journal_mode(WAL)&"+query)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

func execute(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	_, err := db.ExecContext(tb.Context(), query, args...)
	require.NoError(tb, err)
}

// ledger creates the service's own table.
func ledger(tb testing.TB, db *sql.DB) {
	tb.Helper()
	execute(tb, db, "CREATE TABLE IF NOT EXISTS ledger (id TEXT NOT NULL) STRICT")
}

func write(ctx context.Context, tx any, id string) error {
	_, err := tx.(*sql.Tx).ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
	return err
}

func count(ctx context.Context, db *sql.DB, id string) (n int, err error) {
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = ?", id).Scan(&n)
	return n, err
}

func claimOf(key string) driver.Claim {
	return driver.Claim{
		ID:          driver.ID{Scope: "tenant", Operation: "POST /charges", Key: key},
		Fingerprint: "v1:a", Owner: driver.NewOwner(), Lease: time.Hour, TTL: 2 * time.Hour,
	}
}

var completed = driver.Outcome{Status: driver.Completed, Result: driver.Result{Code: 201, Body: []byte("{}")}}

func acquire(tb testing.TB, store driver.Store, claim driver.Claim) driver.Lease {
	tb.Helper()
	reservation, err := store.Reserve(tb.Context(), claim)
	require.NoError(tb, err)
	require.Equal(tb, driver.Acquired.String(), reservation.Decision.String())
	return reservation.Record.Lease()
}

func TestOpened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	ledger(t, store.DB())
	storetest.Suite{
		Open:   func(*testing.T) driver.Store { return store },
		Again:  func(t *testing.T) driver.Store { return open(t, path) },
		Queues: true,
		Write:  write,
		Count:  func(ctx context.Context, id string) (int, error) { return count(ctx, store.DB(), id) },
	}.Run(t)
}

// TestNew runs the suite with a pool of one connection, with deferred transactions and
// without a busy timeout.
func TestNew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	db := openWork(t, path, "")
	db.SetMaxOpenConns(1)
	ledger(t, db)
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	other := openWork(t, path, "") // a transaction may hold the only connection of db
	storetest.Suite{
		Open:  func(*testing.T) driver.Store { return store },
		Write: write,
		Count: func(ctx context.Context, id string) (int, error) { return count(ctx, other, id) },
	}.Run(t)
}
