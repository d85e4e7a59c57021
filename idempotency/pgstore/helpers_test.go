package pgstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// newPool makes a pool for dsn. configure changes its configuration, if it is not nil.
func newPool(tb testing.TB, dsn string, configure func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(tb, err)
	config.MaxConns = 16
	if configure != nil {
		configure(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

func newDB(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(tb, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	tb.Cleanup(func() { assert.NoError(tb, db.Close()) })
	return db
}

func newStore(tb testing.TB, pool *pgxpool.Pool) *pgstore.Store {
	tb.Helper()
	store, err := pgstore.New(tb.Context(), pool, nil)
	require.NoError(tb, err)
	return store
}

// patience limits waits for events that must happen, on a slow machine too.
const patience = time.Minute

// flavor is one of the two constructors.
type flavor struct {
	name    string
	open    func(tb testing.TB, dsn string, options *pgstore.Options) (*pgstore.Store, error)
	options *pgstore.Options
}

func (f *flavor) store(tb testing.TB, dsn string) *pgstore.Store {
	tb.Helper()
	store, err := f.open(tb, dsn, f.options)
	require.NoError(tb, err)
	return store
}

var flavors = []flavor{
	{name: "pgx", open: func(tb testing.TB, dsn string, options *pgstore.Options) (*pgstore.Store, error) {
		return pgstore.New(context.Background(), newPool(tb, dsn, nil), options)
	}},
	{name: "database/sql", open: func(tb testing.TB, dsn string, options *pgstore.Options) (*pgstore.Store, error) {
		return pgstore.NewSQL(context.Background(), newDB(tb, dsn), options)
	}},
}

// eachFlavor runs a test for both constructors concurrently, each with its own schema.
// Tests that look at the whole server must not use it.
func eachFlavor(t *testing.T, test func(t *testing.T, dsn string, store *pgstore.Store)) {
	t.Helper()
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Open(t)
			test(t, dsn, f.store(t, dsn))
		})
	}
}

func newClaim(key string) idempotency.Claim {
	return idempotency.Claim{
		ID:          idempotency.ID{Scope: "tenant", Operation: "POST /charges", Key: key},
		Fingerprint: "v1:a", Owner: rand.Text(),
		Lease: time.Hour, TTL: 24 * time.Hour,
	}
}

func acquire(tb testing.TB, store idempotency.Store, claim idempotency.Claim) idempotency.Lease {
	tb.Helper()
	reservation, err := store.Reserve(context.Background(), claim)
	require.NoError(tb, err)
	require.Equal(tb, idempotency.DecisionAcquired, reservation.Decision)
	return reservation.Record.Lease()
}

func statusOf(tb testing.TB, store idempotency.Store, id idempotency.ID) idempotency.Status {
	tb.Helper()
	record, err := store.Load(context.Background(), id)
	require.NoError(tb, err)
	return record.Status
}

var completed = idempotency.Outcome{
	Status: idempotency.Completed,
	Result: idempotency.Result{Code: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{"id":"ch_1"}`)},
}

// tracer calls its functions for each statement, also of a batch, with its arguments, and with its error.
type tracer struct {
	statement func(args []any)
	ended     func(err error)
}

func (tr tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.statement(data.Args)
	return ctx
}

func (tr tracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	tr.ended(data.Err)
}

func (tr tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		tr.statement(q.Arguments)
	}
	return ctx
}

func (tr tracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	tr.ended(data.Err)
}

func (tr tracer) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	tr.ended(data.Err)
}

// insert writes a row of the work through either kind of transaction.
func insert(ctx context.Context, tx any, id string) error {
	const statement = `INSERT INTO effects (id) VALUES ($1)`
	switch tx := tx.(type) {
	case pgx.Tx:
		_, err := tx.Exec(ctx, statement, id)
		return err
	case *sql.Tx:
		_, err := tx.ExecContext(ctx, statement, id)
		return err
	default:
		return fmt.Errorf("got a %T, want a transaction", tx)
	}
}

// effects makes the table for insert, and returns a function that counts the committed
// rows of an id.
func effects(tb testing.TB, dsn string) func(ctx context.Context, id string) (int, error) {
	tb.Helper()
	pool := newPool(tb, dsn, nil)
	require.NoError(tb, errOf(pool.Exec(context.Background(), `CREATE TABLE effects (id text NOT NULL)`)))
	return func(ctx context.Context, id string) (n int, err error) {
		err = pool.QueryRow(ctx, `SELECT count(*) FROM effects WHERE id = $1`, id).Scan(&n)
		return n, err
	}
}

// wantRows compares the number of committed rows of an id, which count returns.
func wantRows(tb testing.TB, count func(ctx context.Context, id string) (int, error), id string, want int) {
	tb.Helper()
	n, err := count(context.Background(), id)
	require.NoError(tb, err)
	assert.Equal(tb, want, n, id)
}

// code returns the code of PostgreSQL's error, or "".
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// withParameter sets a parameter for the DSN's connections.
func withParameter(tb testing.TB, dsn, name, value string) string {
	tb.Helper()
	if !strings.Contains(dsn, "://") {
		return dsn + " " + name + "=" + value
	}
	return dsn + "&" + name + "=" + value
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
