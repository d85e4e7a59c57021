package pgstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
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
	for key, want := range map[string]idempotency.Decision{"completed ": idempotency.DecisionDone, "running ": idempotency.DecisionInProgress} {
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
		assert.ErrorContains(t, errOf(store.Reserve(ctx, newClaim("new"))), "read-only")
		_, tx, err := store.Begin(ctx, newClaim("new"), time.Minute)
		assert.ErrorContains(t, err, "pgstore: the server is read-only")
		assert.NotErrorIs(t, err, idempotency.ErrStoreBusy)
		assert.Nil(t, tx)
	}
}

// executeAt executes statements, in a session that may write.
func executeAt(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	pool := newPool(t, withParameter(t, dsn, "default_transaction_read_only", "off"), nil)
	for _, statement := range statements {
		require.NoError(t, errOf(pool.Exec(t.Context(), statement)), statement)
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
					require.ErrorIs(t, err, idempotency.ErrStoreBusy, name)
					require.ErrorContains(t, err, "the pool had no connection within", name)
					assert.GreaterOrEqual(t, time.Since(began), row.wait*9/10, name)
				}
			})
		}
	}
}

// TestClaim_serverSilent: of a pool without connections, the same error says that the server may be the cause.
func TestClaim_serverSilent(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, silent.Close()) })
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			var down atomic.Bool
			config, err := pgxpool.ParseConfig(postgrestest.Open(t))
			require.NoError(t, err)
			dial := config.ConnConfig.DialFunc
			config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				if down.Load() {
					network, address = "tcp", silent.Addr().String()
				}
				return dial(ctx, network, address)
			}
			var store *pgstore.Store
			if f.name == "pgx" {
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				require.NoError(t, err)
				t.Cleanup(pool.Close)
				store = newStore(t, pool)
				pool.Reset()
			} else {
				db := stdlib.OpenDB(*config.ConnConfig)
				t.Cleanup(func() { assert.NoError(t, db.Close()) })
				db.SetMaxIdleConns(-1)
				store, err = pgstore.NewSQL(t.Context(), db, nil)
				require.NoError(t, err)
			}
			down.Store(true)
			err = errOf(store.Reserve(t.Context(), newClaim("key")))
			require.ErrorIs(t, err, idempotency.ErrStoreBusy)
			require.ErrorContains(t, err, "or the server does not answer")
		})
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
				require.ErrorIs(t, errOf(store.Reserve(t.Context(), newClaim("key"))), pgstore.ErrSchema)
				_, _, err := store.Begin(t.Context(), newClaim("key"), 0)
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
	require.ErrorIs(t, err, idempotency.ErrInvalid)
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
		require.NoError(t, errOf(prepared.ExecContext(t.Context(), "key")))
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

// crash is a point of an operation's life at which the server is killed.
type crash struct {
	name string

	// before runs while the server is alive. It returns a call for the dead server, which
	// must fail, and a check for the time after the restart.
	before func(t *testing.T, c *crashed) (dead func(ctx context.Context) error, after func(t *testing.T))
}

// crashed is a store of a server that is killed, with its old connections.
type crashed struct {
	store *pgstore.Store
	count func(ctx context.Context, id string) (int, error)
}

var crashes = []crash{
	{"before Reserve", beforeReserve},
	{"between effect and Complete", beforeComplete},
	{"during Renew", duringRenew},
	{"before Release", beforeRelease},
	{"before Begin", beforeBegin},
	{"in transactional work", inTransactionalWork},
	{"after transactional work", afterTransactionalWork},
}

// TestStore_serverKilled kills the server (SIGKILL). Calls fail with an error, and what was
// confirmed exists after the restart.
func TestStore_serverKilled(t *testing.T) {
	server := postgrestest.StartTB(t)
	count := effects(t, server.DSN())
	type running struct {
		name  string
		dead  func(ctx context.Context) error
		after func(t *testing.T)
	}
	var all []running
	var stores []*pgstore.Store
	for _, f := range flavors {
		store := f.store(t, server.DSN())
		stores = append(stores, store)
		for _, c := range crashes {
			t.Run("alive/"+f.name+"/"+c.name, func(t *testing.T) {
				dead, after := c.before(t, &crashed{store, count})
				all = append(all, running{f.name + "/" + c.name, dead, after})
			})
		}
	}
	require.NoError(t, server.Crash())
	require.Eventually(t, func() bool {
		_, err := count(context.Background(), "")
		return err != nil
	}, patience, time.Millisecond)
	for _, store := range stores {
		// The processes of connections outlive the server for a moment.
		failed := 0
		require.Eventually(t, func() bool {
			_, err := store.Load(context.Background(), newClaim("absent").ID)
			if failed++; errors.Is(err, idempotency.ErrNotFound) {
				failed = 0
			}
			return failed > 5
		}, patience, time.Millisecond)
	}
	for _, r := range all {
		t.Run("dead/"+r.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := r.dead(ctx)
			require.Error(t, err)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, idempotency.ErrLeaseLost, "the database did not say so")
			assert.NotErrorIs(t, err, idempotency.ErrNotFound, "the database did not say so")
		})
	}
	require.NoError(t, server.Restart(t.Context()))
	for _, r := range all {
		t.Run("back/"+r.name, r.after)
	}
}

func beforeReserve(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	claim := newClaim(t.Name())
	reserve := func(ctx context.Context) error { return errOf(c.store.Reserve(ctx, claim)) }
	return reserve, func(t *testing.T) {
		assert.ErrorIs(t, errOf(c.store.Load(t.Context(), claim.ID)), idempotency.ErrNotFound)
		acquire(t, c.store, claim)
	}
}

func beforeComplete(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	complete := func(ctx context.Context) error { return c.store.Complete(ctx, lease, completed) }
	return complete, func(t *testing.T) {
		assert.Equal(t, idempotency.StatusInProgress, statusOf(t, c.store, lease.ID), "the reservation was durable")
		require.NoError(t, complete(t.Context()), "the execution lives, and its lease still holds")
		assert.Equal(t, idempotency.Completed, statusOf(t, c.store, lease.ID))
	}
}

func duringRenew(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	renew := func(ctx context.Context) error { return c.store.Renew(ctx, lease, time.Hour) }
	require.NoError(t, renew(t.Context()))
	return renew, func(t *testing.T) {
		require.NoError(t, renew(t.Context()))
		require.NoError(t, c.store.Complete(t.Context(), lease, completed))
	}
}

func beforeRelease(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	release := func(ctx context.Context) error { return c.store.Release(ctx, lease) }
	return release, func(t *testing.T) {
		require.NoError(t, release(t.Context()))
		assert.Equal(t, idempotency.FailedRetryable, statusOf(t, c.store, lease.ID))
	}
}

func beforeBegin(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	claim := newClaim(t.Name())
	begin := func(ctx context.Context) error {
		_, tx, err := c.store.Begin(ctx, claim, time.Minute)
		if err != nil {
			return err
		}
		return tx.Commit(ctx, completed)
	}
	return begin, func(t *testing.T) {
		require.NoError(t, begin(t.Context()))
		assert.Equal(t, idempotency.Completed, statusOf(t, c.store, claim.ID))
	}
}

func inTransactionalWork(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	record, tx := begin(t, c.store, t.Name())
	require.NoError(t, insert(t.Context(), tx.Value(), record.Key))
	commit := func(ctx context.Context) error { return tx.Commit(ctx, completed) }
	return commit, func(t *testing.T) {
		require.NoError(t, tx.Rollback(t.Context()), "nothing is left to roll back")
		wantRows(t, c.count, record.Key, 0)
		absent(t, c.store, record.ID)
		_, tx := begin(t, c.store, record.Key)
		require.NoError(t, tx.Commit(t.Context(), completed), "the operation is free")
	}
}

func afterTransactionalWork(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	record, tx := begin(t, c.store, t.Name())
	require.NoError(t, insert(t.Context(), tx.Value(), record.Key))
	require.NoError(t, tx.Commit(t.Context(), completed))
	load := func(ctx context.Context) error { return errOf(c.store.Load(ctx, record.ID)) }
	return load, func(t *testing.T) {
		assert.Equal(t, idempotency.Completed, statusOf(t, c.store, record.ID))
		wantRows(t, c.count, record.Key, 1)
	}
}

// TestBegin_limit: the server ends a transaction that is idle for longer than the limit.
func TestBegin_limit(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		record, tx := idle(t, store, time.Second)
		pool := newPool(t, dsn, nil)
		require.Eventually(t, func() bool {
			var n int
			err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE application_name = current_setting('application_name') AND state = 'idle in transaction'`).Scan(&n)
			return err == nil && n == 0
		}, patience, 5*time.Millisecond)
		require.Error(t, tx.Commit(t.Context(), completed))
		wantRows(t, count, record.Key, 0)
		absent(t, store, record.ID)
	})
}

// idle begins transactional work, which writes and then does nothing. If a slow machine
// needs longer than the limit for that, it begins again with more time.
func idle(t *testing.T, store *pgstore.Store, limit time.Duration) (idempotency.Record, idempotency.Transaction) {
	t.Helper()
	reservation, tx, err := store.Begin(t.Context(), newClaim("limit "+limit.String()), limit)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // otherwise the pool does not close
	err = insert(t.Context(), tx.Value(), reservation.Record.Key)
	if err == nil {
		return reservation.Record, tx
	}
	require.Less(t, limit, patience, "%v", err)
	return idle(t, store, 4*limit)
}

// TestConnection_dialEndsWithItsDeadline (I14) opens a connection for each operation. A dial with a deadline fails at that time, and
// the timer of its context is late: database/sql returns the error of the dial, and the context has none.
func TestConnection_dialEndsWithItsDeadline(t *testing.T) {
	config, err := pgx.ParseConfig(postgrestest.Open(t))
	require.NoError(t, err)
	var early atomic.Int32
	dial, slow := config.DialFunc, false
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		deadline, limited := ctx.Deadline()
		if !slow || !limited {
			return dial(ctx, network, address)
		}
		for time.Now().Before(deadline) { // a sleep would let the context's timer fire
		}
		if ctx.Err() == nil {
			early.Add(1)
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store, err := pgstore.NewSQL(t.Context(), db, nil)
	require.NoError(t, err)
	lease := acquire(t, store, newClaim("leased"))
	pgstore.SetClaimWait(store, 20*time.Millisecond)
	db.SetMaxIdleConns(-1)
	slow = true
	for range 5 {
		require.NoError(t, store.Renew(context.Background(), lease, time.Hour), "a lease has the reserved connection")
		require.ErrorIs(t, errOf(store.Reserve(context.Background(), newClaim("new"))), idempotency.ErrStoreBusy)
	}
	t.Logf("%d of 10 dials failed before their context", early.Load())
}
