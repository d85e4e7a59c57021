package pgstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestReplay_readOnlyServer answers completed keys on a server that accepts no writes, and
// rejects new keys before the work begins, whatever the store has predicted.
func TestReplay_readOnlyServer(t *testing.T) {
	for _, server := range []struct {
		name     string
		readOnly func(t *testing.T, server *postgrestest.Server)
	}{
		{"default_transaction_read_only=on", func(t *testing.T, server *postgrestest.Server) {
			executeAt(t, server.DSN(), `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
		}},
		{"replica in recovery", func(t *testing.T, server *postgrestest.Server) {
			var dir string
			require.NoError(t, newPool(t, server.DSN(), nil).QueryRow(t.Context(), `SHOW data_directory`).Scan(&dir))
			executeAt(t, server.DSN(), `COPY (SELECT) TO '`+dir+`/standby.signal'`)
			require.NoError(t, server.Shutdown(t.Context()))
			require.NoError(t, server.Restart(t.Context()))
		}},
	} {
		t.Run(server.name, func(t *testing.T) {
			s := postgrestest.StartTB(t)
			before := make([]*pgstore.Store, len(flavors))
			for i, f := range flavors {
				before[i] = f.store(t, s.DSN())
				_, tx := begin(t, before[i], "completed "+f.name)
				require.NoError(t, tx.Commit(t.Context(), completed))
				for n := range 4 { // so that it predicts new keys
					require.NoError(t, before[i].Release(t.Context(), acquire(t, before[i], newClaim(f.name+strconv.Itoa(n)))))
				}
				acquire(t, before[i], newClaim("running "+f.name))
			}
			server.readOnly(t, s)
			for i, f := range flavors {
				t.Run(f.name, func(t *testing.T) {
					cold := f.store(t, s.DSN())
					for _, store := range []*pgstore.Store{before[i], cold} {
						require.Eventually(t, func() bool { // connections from before a restart, and the reload
							_, _, err := store.Begin(t.Context(), newClaim("new"), time.Minute)
							return err != nil && strings.Contains(err.Error(), "read-only")
						}, patience, 10*time.Millisecond)
						testReadOnly(t, store, f.name)
					}
				})
			}
		})
	}
}

func testReadOnly(t *testing.T, store *pgstore.Store, flavor string) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, store.Check(ctx))
	record, err := store.Load(ctx, newClaim("completed "+flavor).ID)
	require.NoError(t, err)
	assert.Equal(t, completed.Result, record.Result)
	for key, want := range map[string]driver.Decision{"completed ": driver.Done, "running ": driver.DecisionInProgress} {
		for range 4 {
			reservation, err := store.Reserve(ctx, newClaim(key+flavor))
			require.NoError(t, err)
			assert.Equal(t, want, reservation.Decision)
			reservation, tx, err := store.Begin(ctx, newClaim(key+flavor), time.Minute)
			require.NoError(t, err)
			assert.Equal(t, want, reservation.Decision)
			assert.Nil(t, tx)
		}
	}
	for range 4 {
		_, err = store.Reserve(ctx, newClaim("new"))
		assert.ErrorContains(t, err, "read-only")
		_, tx, err := store.Begin(ctx, newClaim("new"), time.Minute)
		assert.ErrorContains(t, err, "pgstore: the server is read-only")
		assert.NotErrorIs(t, err, driver.ErrStoreBusy)
		assert.Nil(t, tx)
	}
}

// executeAt executes statements, in a session that may write.
func executeAt(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	pool := newPool(t, withParameter(t, dsn, "default_transaction_read_only", "off"), nil)
	for _, statement := range statements {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// poolOf makes a store of either kind on a pool of n connections.
func poolOf(tb testing.TB, n int, flavor, dsn string) *pgstore.Store {
	tb.Helper()
	if flavor == "pgx" {
		return newStore(tb, newPool(tb, dsn, func(c *pgxpool.Config) { c.MaxConns = int32(n) }))
	}
	db := newDB(tb, dsn)
	db.SetMaxOpenConns(n)
	store, err := pgstore.NewSQL(tb.Context(), db, nil)
	require.NoError(tb, err)
	return store
}

// TestHandler_sixtyRequestsOnPoolOfFour sends 60 concurrent transactional requests of
// 20 ms, without a deadline: each needs one connection, and none is rejected.
func TestHandler_sixtyRequestsOnPoolOfFour(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			dsn := postgrestest.Open(t)
			store, count := poolOf(t, 4, f.name, dsn), effects(t, dsn)
			pgstore.SetClaimWait(store, patience) // on a busy machine the last of them waits for more than a second
			h := idempotency.NewHandler(store, func(*http.Request) (string, error) { return "tenant", nil },
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tx, err := anyTx(r.Context())
					assert.NoError(t, err)
					assert.NoError(t, insert(r.Context(), tx, "effect"))
					<-time.After(20 * time.Millisecond)
					w.WriteHeader(http.StatusCreated)
				}))
			h.Transactional = true
			atOnce(60, func(i int) {
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/charges", http.NoBody)
				r.Header.Set("Idempotency-Key", strconv.Itoa(i))
				h.ServeHTTP(w, r)
				assert.Equal(t, http.StatusCreated, w.Code, w.Body.String())
			})
			wantRows(t, count, "effect", 60)
		})
	}
}

// TestClaim_poolInUse: a claim waits for a connection for a second, or for a tenth of the
// time until its deadline.
func TestClaim_poolInUse(t *testing.T) {
	t.Parallel()
	for _, f := range flavors {
		for _, row := range []struct {
			name    string
			timeout time.Duration
			wait    time.Duration
		}{
			{"no deadline: 1s", 0, time.Second},
			{"deadline in a minute: 1s", time.Minute, time.Second},
			{"deadline in 9 seconds: 900ms", 9 * time.Second, 900 * time.Millisecond},
		} {
			t.Run(f.name+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				store := poolOf(t, 1, f.name, postgrestest.Open(t))
				_, _ = begin(t, store, "first")
				for name, claim := range map[string]func(ctx context.Context) error{
					"Reserve": func(ctx context.Context) error { _, err := store.Reserve(ctx, newClaim("key")); return err },
					"Begin":   func(ctx context.Context) error { _, _, err := store.Begin(ctx, newClaim("key"), 0); return err },
				} {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if row.timeout > 0 {
						ctx, cancel = context.WithTimeout(ctx, row.timeout)
					}
					began := time.Now()
					err := claim(ctx)
					cancel()
					require.ErrorIs(t, err, driver.ErrStoreBusy, name)
					assert.GreaterOrEqual(t, time.Since(began), row.wait*9/10, name)
				}
			})
		}
	}
}

// TestStore_foreignTable changes the table under a store. Check and each operation return
// an ErrSchema that says what to run, also with a role that cannot write. Package pgkit tests what else may not fit.
func TestStore_foreignTable(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		`DROP TABLE idempotency_records`:                            "does not exist",
		`ALTER TABLE idempotency_records RENAME takeover TO policy`: `no column "takeover"`,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
				require.NoError(t, store.Check(t.Context()))
				executeAt(t, dsn, change)
				readOnly := withParameter(t, dsn, "default_transaction_read_only", "on")
				_, opened := pgstore.New(t.Context(), newPool(t, readOnly, nil), &pgstore.Options{NoMigration: true})
				for _, err := range []error{store.Check(t.Context()), opened} {
					require.ErrorIs(t, err, pgstore.ErrSchema)
					require.ErrorContains(t, err, want)
				}
				_, err := store.Reserve(t.Context(), newClaim("key"))
				require.ErrorIs(t, err, pgstore.ErrSchema)
				_, _, err = store.Begin(t.Context(), newClaim("key"), 0)
				require.ErrorIs(t, err, pgstore.ErrSchema)
				_, err = store.Load(t.Context(), newClaim("key").ID)
				require.ErrorIs(t, err, pgstore.ErrSchema)
				require.ErrorContains(t, err, "run pgstore.Migrate")
			})
		})
	}
}

// wrapper is a driver around pgx's, as otelsql makes it.
type wrapper struct{ raw bool }

func (w wrapper) Open(dsn string) (sqldriver.Conn, error) {
	conn, err := stdlib.GetDefaultDriver().Open(dsn)
	if err != nil {
		return nil, err
	}
	c := wrapped{conn.(*stdlib.Conn)}
	if w.raw {
		return rawConn{c}, nil
	}
	return c, nil
}

type wrapped struct{ *stdlib.Conn }

type rawConn struct{ wrapped }

func (r rawConn) Raw() sqldriver.Conn { return r.wrapped.Conn }

// statements counts what goes through the wrapper.
var (
	statements atomic.Int64
	register   sync.Once
)

func (r rawConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	statements.Add(1)
	return r.wrapped.ExecContext(ctx, query, args)
}

// TestNewSQL_wrappedDriver: a wrapper with the method Raw works, and sees the statements
// of the work. Other drivers are rejected at once.
func TestNewSQL_wrappedDriver(t *testing.T) {
	register.Do(func() {
		sql.Register("wrapped", wrapper{})
		sql.Register("raw", wrapper{raw: true})
	})
	dsn := postgrestest.Open(t)
	count := effects(t, dsn)
	open := func(name string) (*pgstore.Store, error) {
		db, err := sql.Open(name, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		return pgstore.NewSQL(t.Context(), db, nil)
	}
	_, err := open("wrapped")
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.ErrorContains(t, err, "pgstore_test.wrapped (want that of pgx/v5/stdlib")

	store, err := open("raw")
	require.NoError(t, err)
	_, tx := begin(t, store, "key")
	before := statements.Load()
	require.NoError(t, insert(t.Context(), tx.Value(), "key"))
	assert.Equal(t, before+1, statements.Load())
	require.NoError(t, tx.Commit(t.Context(), completed))
	wantRows(t, count, "key", 1)
}

// TestTransaction_valueIsSQLTx uses a *sql.Tx as work does: statements, rows that stay
// open, and a savepoint.
func TestTransaction_valueIsSQLTx(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	store, count := flavors[1].store(t, dsn), effects(t, dsn)
	_, tx := begin(t, store, "key")
	work := tx.Value().(*sql.Tx)
	assert.Same(t, work, tx.Value())
	prepared, err := work.PrepareContext(t.Context(), `INSERT INTO effects (id) VALUES ($1)`) //nolint:sqlclosecheck // It ends with the transaction.
	require.NoError(t, err)
	for range 2 {
		_, err = prepared.ExecContext(t.Context(), "key")
		require.NoError(t, err)
	}
	require.NoError(t, execute(work, `SAVEPOINT a`))
	require.Error(t, execute(work, `SELECT 1/0`))
	require.NoError(t, execute(work, `ROLLBACK TO SAVEPOINT a`))
	rows, err := work.QueryContext(t.Context(), `SELECT generate_series(1, 1000)`) //nolint:rowserrcheck,sqlclosecheck // They stay open.
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.NoError(t, tx.Commit(t.Context(), completed))
	require.ErrorIs(t, execute(work, `SELECT 1`), sql.ErrTxDone)
	wantRows(t, count, "key", 2)
	assert.Nil(t, tx.Value())
	_, tx = begin(t, store, "next")
	require.NoError(t, tx.Commit(t.Context(), completed), "the connection is usable")
}
