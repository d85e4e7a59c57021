package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestClaim_tableLocked locks the table, as a migration does. A new key costs about a second, also
// on a new connection, and no connection is left in a transaction.
func TestClaim_tableLocked(t *testing.T) {
	t.Parallel()
	for _, f := range flavors {
		for _, row := range []struct {
			mode, timeout string
			warm          bool
			parameter     []string
		}{
			{"EXCLUSIVE", "0", false, nil},
			{"EXCLUSIVE", "0", true, nil},
			{"ACCESS EXCLUSIVE", "0", false, nil},
			{"ACCESS EXCLUSIVE", "0", true, nil},
			{"ACCESS EXCLUSIVE", "1h", true, nil},
			{"ACCESS EXCLUSIVE", "20ms", true, nil},
			{"ACCESS EXCLUSIVE", "0", true, []string{"statement_cache_capacity", "1"}}, // pgx forgets all statements but the last
			{"ACCESS EXCLUSIVE", "0", true, []string{"default_query_exec_mode", "cache_describe"}},
			{"ACCESS EXCLUSIVE", "0", true, []string{"default_query_exec_mode", "describe_exec"}},
			{"ACCESS EXCLUSIVE", "0", true, []string{"default_query_exec_mode", "exec"}},
			{"ACCESS EXCLUSIVE", "0", true, []string{"default_query_exec_mode", "simple_protocol"}},
		} {
			t.Run(fmt.Sprintf("%s/%s/%s/warm %v%v", f.name, row.mode, row.timeout, row.warm, row.parameter), func(t *testing.T) {
				t.Parallel()
				dsn := postgrestest.Open(t)
				with := withParameter(t, dsn, "lock_timeout", row.timeout)
				for i := 0; i < len(row.parameter); i += 2 {
					with = withParameter(t, with, row.parameter[i], row.parameter[i+1])
				}
				store := poolOf(t, 2, f.name, with)
				if row.warm {
					for i := range 4 {
						acquire(t, store, newClaim(fmt.Sprint("warm", i)))
						_, tx := begin(t, store, fmt.Sprint("warmer", i))
						require.NoError(t, tx.Commit(t.Context(), completed))
					}
				}
				running := newClaim("running")
				acquire(t, store, running)
				blocker, err := newPool(t, dsn, nil).Begin(t.Context())
				require.NoError(t, err)
				defer func() { _ = blocker.Rollback(context.Background()) }() // or its pool could not be closed
				require.NoError(t, errOf(blocker.Exec(t.Context(), `LOCK TABLE idempotency_records IN `+row.mode+` MODE`)))

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = store.Reserve(ctx, newClaim("new"))
				require.ErrorIs(t, err, idempotency.ErrStoreBusy)
				require.ErrorContains(t, err, "the table was locked")
				if row.mode == "EXCLUSIVE" { // which permits reads
					again := newClaim("running")
					reservation, err := store.Reserve(ctx, again)
					require.NoError(t, err)
					require.Equal(t, idempotency.DecisionInProgress, reservation.Decision)
				} else {
					_, _, err = store.Begin(ctx, newClaim("new"), time.Minute)
					require.ErrorIs(t, err, idempotency.ErrStoreBusy)
				}

				require.NoError(t, blocker.Rollback(t.Context()))
				acquire(t, store, newClaim("new"))
				_, tx := begin(t, store, "after")
				require.NoError(t, tx.Commit(t.Context(), completed))
			})
		}
	}
}

// TestBegin_lockTimeout: the work has the lock_timeout of its session, not that of the claim.
func TestBegin_lockTimeout(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[string]string{"0": "0", "20ms": "20ms", "5s": "5s", "2h": "2h"} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			store := poolOf(t, 1, "pgx", withParameter(t, postgrestest.Open(t), "lock_timeout", timeout))
			for i := range 3 { // a new connection, and one that the store knows
				_, tx := begin(t, store, fmt.Sprint(i))
				work, ok := tx.Value().(pgx.Tx)
				require.True(t, ok)
				var got string
				require.NoError(t, work.QueryRow(t.Context(), `SHOW lock_timeout`).Scan(&got))
				assert.Equal(t, want, got)
				require.NoError(t, tx.Commit(t.Context(), completed))
				acquire(t, store, newClaim(fmt.Sprint("leased", i)))
			}
		})
	}
}

// TestClaim_statementsRemoved: a statement that the server has removed, or that a migration has changed,
// fails once on a connection at most.
func TestClaim_statementsRemoved(t *testing.T) {
	t.Parallel()
	for _, change := range []string{`DISCARD ALL`, `ALTER TABLE idempotency_records ALTER COLUMN owner TYPE varchar`} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
			store := newStore(t, pool)
			for i := range 4 {
				acquire(t, store, newClaim(fmt.Sprint("warm", i)))
			}
			require.NoError(t, errOf(pool.Exec(t.Context(), change)))
			for i := range 4 { // each statement may fail once
				_, _ = store.Reserve(t.Context(), newClaim(fmt.Sprint("leased", i)))
				if _, tx, err := store.Begin(t.Context(), newClaim(fmt.Sprint("transactional", i)), time.Minute); err == nil {
					_ = tx.Commit(t.Context(), completed)
				}
			}
			acquire(t, store, newClaim("new"))
			_, tx := begin(t, store, "new, transactional")
			require.NoError(t, tx.Commit(t.Context(), completed))
		})
	}
}
