package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/storetest"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func open(tb testing.TB, path string) *sqlitestore.Store {
	tb.Helper()
	store, err := sqlitestore.Open(tb.Context(), path)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	return store
}

// within commits if work returns nil.
func within(t *testing.T, s durable.Store, work func(durable.Outbox) error) error {
	t.Helper()
	store := s.(*sqlitestore.Store)
	tx, err := store.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	if err := work(store.WithTx(tx)); err != nil {
		require.NoError(t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

// TestOpened has two handles, as two processes have.
func TestOpened(t *testing.T) {
	t.Parallel()
	paths := make(map[durable.Store]string)
	storetest.Suite{
		Open: func(t *testing.T) durable.Store {
			path := filepath.Join(t.TempDir(), "test.db")
			store := open(t, path)
			paths[store] = path
			return store
		},
		Again:  func(t *testing.T, first durable.Store) durable.Store { return open(t, paths[first]) },
		WithTx: within,
	}.Run(t)
}

// besideOne is a store in a database of the work's, which has a pool of one connection.
func besideOne(t *testing.T) (*sql.DB, *sqlitestore.Store) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(t.TempDir(), "work.db"))+"?_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return db, store
}

// TestNew runs the suite in a database of the caller, with a pool of one connection, deferred
// transactions and no busy timeout.
func TestNew(t *testing.T) {
	t.Parallel()
	storetest.Suite{
		Open: func(t *testing.T) durable.Store {
			_, store := besideOne(t)
			return store
		},
		WithTx: within,
	}.Run(t)
}

// TestBeatBesideThePool: heartbeats do not wait for the connection of the pool, or for the
// writers that wait to enqueue.
func TestBeatBesideThePool(t *testing.T) {
	t.Parallel()
	db, store := besideOne(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()

	ctx, cancel := context.WithCancel(t.Context())
	var enqueuing sync.WaitGroup
	for i := range 50 {
		enqueuing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				in := durable.Intent{ID: idempotency.ID{Scope: "s", Operation: "o", Key: fmt.Sprint(i, n)}, Gateway: "psp"}
				_, err := store.Apply(ctx, []durable.Event{{Kind: durable.EventEnqueue, Intent: in}})
				assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
			}
		})
	}
	const lease = 3 * time.Minute // a heartbeat that waits for the pool would fail after a third of it
	for range 10 {
		limited, cancel := context.WithTimeout(ctx, lease/3)
		_, err := store.Heartbeat(limited, "w", lease)
		cancel()
		require.NoError(t, err)
	}
	cancel()
	enqueuing.Wait()
}
