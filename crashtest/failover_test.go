package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// A standby that is behind is promoted after the primary is lost. An asynchronous one has lost records that the
// store acknowledged, so their keys are charged twice. A synchronous one has them all, because no charge is
// acknowledged while it is behind.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, synchronous := range []bool{false, true} {
		t.Run(fmt.Sprintf("synchronous %v", synchronous), func(t *testing.T) {
			t.Parallel()
			primary := postgrestest.StartTB(t)
			require.NoError(t, createTables(t.Context(), primary))
			standby, err := primary.Standby(t.Context(), synchronous)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, standby.Stop()) })

			const each, patience = 8, 2 * time.Minute
			wait := patience
			if synchronous {
				wait = 5 * time.Second
			}
			charges := map[string]int{}
			acknowledged := chargeAll(t, primary, charges, 0, each, patience)
			require.Len(t, acknowledged, each)
			for key := range charges {
				charges[key] = 1 // those of before are of calls that a busy machine did not answer
			}
			catchUp(t, primary, standby)
			require.NoError(t, standby.Shutdown(t.Context())) // it is behind from now on
			behind := chargeAll(t, primary, charges, each, 2*each, wait)
			require.NoError(t, primary.Crash())
			require.NoError(t, standby.Restart(t.Context()))
			require.NoError(t, standby.Promote(t.Context()))

			require.Len(t, chargeAll(t, standby, charges, 0, 2*each, patience), 2*each)
			twice := 0
			for _, key := range append(acknowledged, behind...) {
				if charges[key] > 1 {
					twice++
				}
			}
			t.Log("acknowledged:", each+len(behind), "charged twice:", twice)
			if synchronous {
				require.Empty(t, behind, "nothing is acknowledged without the standby")
				require.Zero(t, twice)
			} else {
				require.Len(t, behind, each)
				require.GreaterOrEqual(t, twice, each, "the records are lost with the primary: docs/server-idempotency.md")
			}
		})
	}
}

func createTables(ctx context.Context, server *postgrestest.Server) error {
	pool, err := pgxpool.New(ctx, server.DSN())
	if err != nil {
		return err
	}
	defer pool.Close()
	return pgstore.Migrate(ctx, pool, nil)
}

// catchUp waits until the standby has all that the primary has. Otherwise it may have a claim without its result: nothing
// knows then whether the key was charged, and a person must decide.
func catchUp(t *testing.T, primary, standby *postgrestest.Server) {
	t.Helper()
	ask := func(server *postgrestest.Server, query string, result any, args ...any) error {
		conn, err := pgx.Connect(t.Context(), server.DSN())
		if err != nil {
			return err
		}
		return errors.Join(conn.QueryRow(t.Context(), query, args...).Scan(result), conn.Close(t.Context()))
	}
	var position string
	require.NoError(t, ask(primary, "SELECT pg_current_wal_lsn()::text", &position))
	require.Eventually(t, func() bool {
		there := false
		return ask(standby, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", &there, position) == nil && there
	}, time.Minute, 10*time.Millisecond)
}

// chargeAll charges keys at the same time, and counts the charges. It returns the keys with an acknowledged record. A call
// that was not acknowledged is repeated until the time ends: a busy machine opens few connections in a second.
func chargeAll(t *testing.T, server *postgrestest.Server, charges map[string]int, from, to int, within time.Duration) (acknowledged []string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), server.DSN()+"&pool_max_conns=16")
	require.NoError(t, err)
	defer pool.Close()
	store, err := pgstore.New(t.Context(), pool, &pgstore.Options{NoMigration: true})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	charge := func(key string) error {
		_, err := idempotency.Do(ctx, store, "shop", "charge", key, idempotency.NewFingerprint([]byte(key)), func(context.Context) (idempotency.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			charges[key]++
			return idempotency.Result{}, nil
		})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			acknowledged = append(acknowledged, key)
		}
		return err
	}
	for i := from; i < to; i++ {
		all.Go(func() {
			for charge(fmt.Sprint("order ", i)) != nil {
				if sleep.Context(ctx, 100*time.Millisecond) != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return acknowledged
}
