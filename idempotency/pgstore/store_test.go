package pgstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Open(t)
			suite(t, dsn, f).Run(t)
		})
	}
}

// TestStore_serializableDefault: the database's default isolation does not matter for the
// store's statements. The work is read committed, because the suite does not execute it
// again after a serialization failure.
func TestStore_serializableDefault(t *testing.T) {
	t.Parallel()
	f := flavors[0]
	f.options = &pgstore.Options{Isolation: sql.LevelReadCommitted}
	suite(t, withParameter(t, postgrestest.Open(t), "default_transaction_isolation", "serializable"), f).Run(t)
}

func suite(t *testing.T, dsn string, f flavor) storetest.Suite {
	t.Helper()
	return storetest.Suite{
		Open:  func(t *testing.T) idempotency.Store { return f.store(t, dsn) },
		Again: func(t *testing.T) idempotency.Store { return f.store(t, dsn) },
		Write: insert,
		Count: effects(t, dsn),
	}
}

// fill writes completed records that have expired.
func fill(ctx context.Context, pool *pgxpool.Pool, rows int) error {
	_, err := pool.Exec(ctx, `INSERT INTO idempotency_records (scope, operation, key, fingerprint, status, owner, generation,
			takeover, started, updated, expires, code, header, body)
		SELECT 'fill', 'POST /charges', 'key ' || gen_random_uuid(), 'v1:a', 2, 'owner', 1,
			0, now() - interval '2 hours', now() - interval '2 hours',
			now() - interval '1 hour' + i * interval '1 millisecond', 201, '{}', '\x00'
		FROM generate_series(1, $1) AS i`, rows)
	return err
}

// TestSweep_lockedRecords: locked records are left for the next sweep.
func TestSweep_lockedRecords(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		pool := newPool(t, dsn, nil)
		require.NoError(t, fill(t.Context(), pool, 10))
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, errOf(tx.Exec(t.Context(), `SELECT FROM idempotency_records ORDER BY expires LIMIT 3 FOR KEY SHARE`)))

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, want := range []int{4, 3, 0} {
			n, err := store.Sweep(ctx, 4)
			require.NoError(t, err)
			assert.Equal(t, want, n)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		n, err := store.Sweep(ctx, 4)
		require.NoError(t, err)
		assert.Equal(t, 3, n)
	})
}

func TestExample_chargesEachKeyOnce(t *testing.T) {
	pool := newPool(t, postgrestest.Open(t), nil)
	require.NoError(t, errOf(pool.Exec(t.Context(), "CREATE TABLE charges (id serial, cents integer)")))
	service, err := newService(t.Context(), pool)
	require.NoError(t, err)

	for _, row := range []struct {
		name, key, cents string
		code             int
		body             string
	}{
		{"first request: executed", "invoice:1", "100", http.StatusCreated, "charge 1"},
		{"same key: replayed", "invoice:1", "100", http.StatusCreated, "charge 1"},
		{"same key, another body: rejected", "invoice:1", "999", http.StatusUnprocessableEntity, "mismatch"},
		{"failed statement: rolled back", "invoice:2", "99999999999999", http.StatusServiceUnavailable, "try again"},
		{"not a number: rejected", "invoice:3", "many", http.StatusBadRequest, "cents: want a number"},
		{"no key: rejected", "", "100", http.StatusBadRequest, "key-missing"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("cents="+row.cents))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("acme", "")
		if row.key != "" {
			r.Header.Set("Idempotency-Key", row.key)
		}
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		assert.Equal(t, row.code, w.Code, row.name)
		assert.Contains(t, w.Body.String(), row.body, row.name)
	}
	var charges int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM charges").Scan(&charges))
	assert.Equal(t, 1, charges)
}

// TestStore_searchPath (I10): whatever search_path the work or the caller sets, the records are in the tables that New has found. Duplicates
// get the first result. The tenant's schema has no tables of the store, or its own.
func TestStore_searchPath(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"SET LOCAL", "SET"} {
		for _, own := range []bool{false, true} {
			for _, within := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, tenant has tables %v, within the caller's transaction %v", set, own, within), func(t *testing.T) {
					t.Parallel()
					eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
						admin := newPool(t, dsn, nil)
						var home string
						require.NoError(t, admin.QueryRow(t.Context(), "SELECT current_schema()").Scan(&home))
						tenant := home + "_42"
						require.NoError(t, errOf(admin.Exec(t.Context(), "CREATE SCHEMA "+tenant)))
						t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "DROP SCHEMA "+tenant+" CASCADE") })
						if own {
							require.NoError(t, pgstore.Migrate(t.Context(), admin, &pgstore.Options{Schema: tenant}))
						}
						move := set + " search_path = " + tenant
						db := newDB(t, dsn)
						executions := 0
						do := func(id idempotency.ID) error {
							var using idempotency.Store = store
							commit := func() error { return nil }
							if within {
								tx, err := db.BeginTx(t.Context(), nil)
								require.NoError(t, err)
								defer tx.Rollback() //nolint:errcheck // It has committed, if the test passes.
								require.NoError(t, execute(tx, move))
								using, commit = store.WithSQLTx(tx), tx.Commit
							}
							x := idempotency.Executor{Store: using, Options: idempotency.Options{Transactional: true}}
							_, err := x.Do(t.Context(), id, "", func(ctx context.Context) (idempotency.Result, error) {
								executions++
								tx, err := anyTx(ctx)
								if err != nil {
									return idempotency.Result{}, err
								}
								return completed.Result, execute(tx, move)
							})
							return errors.Join(err, commit())
						}
						id := idempotency.ID{Scope: "tenant", Key: "key"}
						for range 3 {
							require.NoError(t, do(id))
						}
						require.Equal(t, 1, executions)
						for range 3 {
							id.Key = rand.Text()
							require.NoError(t, do(id))
						}
						require.NoError(t, store.Complete(t.Context(), acquire(t, store, newClaim("leased")), completed))
						require.NoError(t, store.Check(t.Context()))
						require.NoError(t, errOf(store.Sweep(t.Context(), 10)))
						var records int
						require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM "+home+".idempotency_records").Scan(&records))
						require.Equal(t, 5, records)
					})
				})
			}
		}
	}
}

// tripCounter counts round trips: the first write after a read is one.
type tripCounter struct{ trips atomic.Int64 }

type countedConn struct {
	net.Conn

	counter *tripCounter
	waiting atomic.Bool // for data of the server
}

func (c *countedConn) Write(b []byte) (int, error) {
	if c.waiting.CompareAndSwap(false, true) {
		c.counter.trips.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.waiting.Store(false)
	}
	return n, err
}

func (c *tripCounter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &countedConn{Conn: conn, counter: c}, err
}

// TestStore_roundTrips counts the round trips of the store, and of the work's one
// statement, once the statements are prepared.
func TestStore_roundTrips(t *testing.T) {
	t.Parallel()
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Open(t)
			_ = effects(t, dsn)
			var counter tripCounter
			store := countedStore(t, f.name, dsn, &counter)
			transactional := func(end func(tx idempotency.Transaction) error) func(key string) {
				return func(key string) {
					_, tx := begin(t, store, key)
					require.NoError(t, insert(t.Context(), tx.Value(), key))
					require.NoError(t, end(tx))
				}
			}
			leased := func(key string) {
				require.NoError(t, store.Complete(t.Context(), acquire(t, store, newClaim(key)), completed))
			}
			replay := func(string) {
				reservation, err := store.Reserve(t.Context(), newClaim("completed"))
				require.NoError(t, err)
				assert.Equal(t, idempotency.DecisionDone, reservation.Decision)
			}
			replayTransactional := func(string) {
				reservation, _, err := store.Begin(t.Context(), newClaim("completed"), time.Minute)
				require.NoError(t, err)
				assert.Equal(t, idempotency.DecisionDone, reservation.Decision)
			}
			transactional(commit)("completed")
			for _, row := range []struct {
				name string
				do   func(key string)
				want int64
			}{
				{"new keys, transactional: 2 and the work's own", transactional(commit), 3},
				{"new keys, transactional, recorded without the work: 2 and the work's own", transactional(recordAlone), 3},
				{"new keys, leased: 2", leased, 2},
				{"completed keys, leased: 1", replay, 1},
				{"completed keys, transactional: 1", replayTransactional, 1},
			} {
				for i := range 6 { // the first ones prepare statements, and change the prediction
					counter.trips.Store(0)
					row.do(rand.Text())
					if i >= 3 {
						assert.Equal(t, row.want, counter.trips.Load(), row.name)
					}
				}
			}
		})
	}
}

func countedStore(t *testing.T, flavor, dsn string, counter *tripCounter) *pgstore.Store {
	t.Helper()
	if flavor == "pgx" {
		return newStore(t, newPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.DialFunc = 1, counter.dial }))
	}
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	config.DialFunc = counter.dial
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store, err := pgstore.NewSQL(t.Context(), db, nil)
	require.NoError(t, err)
	return store
}
