package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
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
	require.NoError(tb, errOf(db.ExecContext(tb.Context(), query, args...)))
}

// ledger creates the service's own table.
func ledger(tb testing.TB, db *sql.DB) {
	tb.Helper()
	execute(tb, db, "CREATE TABLE IF NOT EXISTS ledger (id TEXT NOT NULL) STRICT")
}

func write(ctx context.Context, tx any, id string) error {
	return errOf(tx.(*sql.Tx).ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id))
}

func count(ctx context.Context, db *sql.DB, id string) (n int, err error) {
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = ?", id).Scan(&n)
	return n, err
}

func claimOf(key string) idempotency.Claim {
	return idempotency.Claim{
		ID:          idempotency.ID{Scope: "tenant", Operation: "POST /charges", Key: key},
		Fingerprint: "v1:a", Owner: rand.Text(), Lease: time.Hour, TTL: 2 * time.Hour,
	}
}

var completed = idempotency.Outcome{Status: idempotency.Completed, Result: idempotency.Result{Code: 201, Body: []byte("{}")}}

func acquire(tb testing.TB, store idempotency.Store, claim idempotency.Claim) idempotency.Lease {
	tb.Helper()
	reservation, err := store.Reserve(tb.Context(), claim)
	require.NoError(tb, err)
	require.Equal(tb, idempotency.DecisionAcquired.String(), reservation.Decision.String())
	return reservation.Record.Lease()
}

func TestOpened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	ledger(t, store.DB())
	storetest.Suite{
		Open:   func(*testing.T) idempotency.Store { return store },
		Again:  func(t *testing.T) idempotency.Store { return open(t, path) },
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
		Open:  func(*testing.T) idempotency.Store { return store },
		Write: write,
		Count: func(ctx context.Context, id string) (int, error) { return count(ctx, other, id) },
	}.Run(t)
}

// fill writes completed, expired records with random keys in one transaction.
func fill(tb testing.TB, store *sqlitestore.Store, rows int) {
	tb.Helper()
	execute(tb, store.DB(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO idempotency_records (scope, operation, key, fingerprint, status, owner, generation,
			started, updated, lease_expires, takeover, expires, code, body)
		SELECT 'tenant', 'POST /charges', hex(randomblob(16)), 'v1:a', 2, 'owner', 1, 1, 1, 1, 0, i, 200, randomblob(100)
		FROM n`, rows)
}

func TestSweep_batches(t *testing.T) {
	store := newStore(t)
	fill(t, store, 1000)
	for _, row := range []struct{ swept, oldest int }{{601, 602}, {399, 0}, {0, 0}} { // the oldest go first
		n, err := store.Sweep(t.Context(), 601)
		require.NoError(t, err)
		assert.Equal(t, row.swept, n)
		var oldest int
		require.NoError(t, store.DB().QueryRow("SELECT coalesce(min(expires), 0) FROM idempotency_records").Scan(&oldest))
		assert.Equal(t, row.oldest, oldest)
	}
}

// TestSweep_amongTransactions: a sweep ends although the lock is never free for long.
func TestSweep_amongTransactions(t *testing.T) {
	store := newStore(t)
	fill(t, store, 200)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	op := benchmarkModes(t, store)["transactional"]
	go func() {
		defer close(ended)
		var keys atomic.Int64
		for ctx.Err() == nil {
			assert.NoError(t, op(benchmarkKey(&keys)))
		}
	}()
	defer func() { cancel(); <-ended }()
	for deadline := time.Now().Add(time.Minute); ; {
		require.NoError(t, errOf(store.Sweep(t.Context(), 100)))
		if n := 0; store.DB().QueryRow("SELECT count(*) FROM idempotency_records WHERE expires <= 200").Scan(&n) == nil && n == 0 {
			return
		}
		require.Less(t, time.Now(), deadline)
	}
}

// TestStore_movedFile: a store does not write to a file that was moved.
func TestStore_movedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be moved or removed")
	}
	for name, move := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"renamed": func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".old")) },
		"replaced": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".old"))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			store := open(t, path)
			done := claimOf("done")
			require.NoError(t, store.Complete(t.Context(), acquire(t, store, done), completed))
			lease := acquire(t, store, claimOf("key"))
			move(t, path)

			require.ErrorIs(t, errOf(store.Reserve(t.Context(), claimOf("another"))), sqlitestore.ErrMoved)
			require.ErrorIs(t, store.Complete(t.Context(), lease, completed), sqlitestore.ErrMoved)
			_, _, err := store.Begin(t.Context(), claimOf("another"), 0)
			require.ErrorIs(t, err, sqlitestore.ErrMoved)
			assert.Equal(t, "done", decisionOf(t, store, done), "a read still works")
		})
	}
}

// TestLoad_damagedRecord: a damaged record is an error.
func TestLoad_damagedRecord(t *testing.T) {
	store := newStore(t)
	claim := claimOf("key")
	require.NoError(t, store.Complete(t.Context(), acquire(t, store, claim), completed))
	for _, damage := range []string{
		"header = x'FF'", "header = x'01'", "header = CAST('{\"A\":\"1\"}' AS BLOB)", "status = 1000", "status = -1",
	} {
		t.Run(damage, func(t *testing.T) {
			execute(t, store.DB(), "UPDATE idempotency_records SET header = NULL, status = 2")
			execute(t, store.DB(), "UPDATE idempotency_records SET "+damage)
			require.Error(t, errOf(store.Load(t.Context(), claim.ID)))
			require.Error(t, errOf(store.Reserve(t.Context(), claim)))
		})
	}
}

// TestStatements_noTimeArgument: the application's clock is not used.
func TestStatements_noTimeArgument(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.Greater(t, len(names), 10)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.NotContains(t, string(source), "time.Now", name)
	}
}

// TestReserve_times: the times of a record are those of SQLite's clock.
func TestReserve_times(t *testing.T) {
	store := newStore(t)
	clock := func() (ms int64) {
		const now = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)"
		require.NoError(t, store.DB().QueryRow(now).Scan(&ms))
		return ms
	}
	before := clock()
	reservation, err := store.Reserve(t.Context(), claimOf("key"))
	require.NoError(t, err)
	after := clock()
	r := reservation.Record
	assert.GreaterOrEqual(t, r.Started.UnixMilli(), before)
	assert.LessOrEqual(t, r.Started.UnixMilli(), after)
	assert.Equal(t, time.Hour, r.LeaseExpires.Sub(r.Started))
	assert.Equal(t, 2*time.Hour, r.Expires.Sub(r.Started))
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
