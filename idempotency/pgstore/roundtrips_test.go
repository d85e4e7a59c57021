package pgstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

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
			transactional := func(end func(tx driver.Transaction) error) func(key string) {
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
				assert.Equal(t, driver.Done, reservation.Decision)
			}
			replayTransactional := func(string) {
				reservation, _, err := store.Begin(t.Context(), newClaim("completed"), time.Minute)
				require.NoError(t, err)
				assert.Equal(t, driver.Done, reservation.Decision)
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
					row.do(driver.NewOwner())
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
