package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
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

			const each = 8
			charges := map[string]int{}
			acknowledged := repeatAll(t, primary, charges, each)
			clear(charges)                                    // of calls that a busy machine did not answer
			require.NoError(t, standby.Shutdown(t.Context())) // it is behind from now on
			behind := chargeAll(t, primary, charges, each, 2*each)
			require.NoError(t, primary.Crash())
			require.NoError(t, standby.Restart(t.Context()))
			require.NoError(t, standby.Promote(t.Context()))

			repeatAll(t, standby, charges, 2*each)
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

// repeatAll charges keys until all are acknowledged: a busy machine may need longer than one attempt has.
func repeatAll(t *testing.T, server *postgrestest.Server, charges map[string]int, to int) (acknowledged []string) {
	t.Helper()
	for range 6 {
		if acknowledged = chargeAll(t, server, charges, 0, to); len(acknowledged) == to {
			break
		}
	}
	require.Len(t, acknowledged, to)
	return acknowledged
}

// chargeAll charges keys at the same time, and counts the charges. It returns the keys with an acknowledged record.
func chargeAll(t *testing.T, server *postgrestest.Server, charges map[string]int, from, to int) (acknowledged []string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), server.DSN()+"&pool_max_conns=16")
	require.NoError(t, err)
	defer pool.Close()
	store, err := pgstore.New(t.Context(), pool, &pgstore.Options{NoMigration: true})
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := from; i < to; i++ {
		all.Go(func() {
			key := fmt.Sprint("order ", i)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := idempotency.Do(ctx, store, "shop", "charge", key, idempotency.NewFingerprint([]byte(key)), func(context.Context) (idempotency.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				charges[key]++
				return idempotency.Result{}, nil
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acknowledged = append(acknowledged, key)
			}
		})
	}
	all.Wait()
	return acknowledged
}
