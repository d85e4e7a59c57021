package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

func newLeases(t *testing.T) (*pgxpool.Pool, *Store) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), postgrestest.Open(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := New(t.Context(), pool, nil)
	require.NoError(t, err)
	return pool, store
}

// claimed makes a record in progress. It died at a time from now, unless that is 0.
func claimed(t *testing.T, pool *pgxpool.Pool, store idempotency.Store, key string, died time.Duration) idempotency.Lease {
	t.Helper()
	claim := idempotency.Claim{ID: idempotency.ID{Key: key}, Owner: rand.Text(), Lease: time.Hour, TTL: 24 * time.Hour}
	reservation, err := store.Reserve(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionAcquired, reservation.Decision)
	if died != 0 {
		_, err := pool.Exec(t.Context(), `UPDATE idempotency_records SET lease_expires = now() + $1 WHERE key = $2`, died, key)
		require.NoError(t, err)
	}
	return reservation.Record.Lease()
}

func wantReaped(t *testing.T, store idempotency.Store, want ...string) {
	t.Helper()
	var keys []string
	records, err := store.Reap(t.Context(), 10)
	require.NoError(t, err)
	for _, r := range records {
		keys = append(keys, r.Key)
	}
	assert.ElementsMatch(t, want, keys)
}

// TestComplete_writesNoIndex: the end of an execution is a HOT update, in each way.
func TestComplete_writesNoIndex(t *testing.T) {
	t.Parallel()
	pool, store := newLeases(t)
	for name, end := range map[string]func(s idempotency.Store, lease idempotency.Lease) error{
		"completed": func(s idempotency.Store, lease idempotency.Lease) error {
			return s.Complete(t.Context(), lease, idempotency.Outcome{Status: idempotency.Completed, Result: idempotency.Result{Body: []byte("body")}})
		},
		"failed": func(s idempotency.Store, lease idempotency.Lease) error {
			return s.Complete(t.Context(), lease, idempotency.Outcome{Status: idempotency.FailedFinal})
		},
		"released": func(s idempotency.Store, lease idempotency.Lease) error { return s.Release(t.Context(), lease) },
	} {
		for _, within := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", within the caller's transaction ", within), func(t *testing.T) {
				t.Parallel()
				lease := claimed(t, pool, store, rand.Text(), 0)
				tx, err := pool.Begin(t.Context())
				require.NoError(t, err)
				defer tx.Rollback(context.Background()) //nolint:errcheck // It reads only, or is to be undone.
				var through idempotency.Store = store.WithTx(tx)
				if !within { // the statement of the pool, where statistics can be read at once
					through = &Store{operations: operations{is: store.is, schema: store.schema, predictor: store.predictor, caller: store.WithTx(tx).caller}}
				}
				counts := func() (updates, hot int) {
					require.NoError(t, tx.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables
						WHERE relid = 'idempotency_records'::regclass`).Scan(&updates, &hot))
					return updates, hot
				}
				updates, hot := counts() // earlier transactions of the connection may count too
				require.NoError(t, end(through, lease))
				after, hotAfter := counts()
				assert.Equal(t, 1, after-updates)
				assert.Equal(t, 1, hotAfter-hot)
			})
		}
	}
}

// TestReap_findsAllThatDied (I12): reaping begins where the last one has ended, and still finds what it could not mark then.
func TestReap_findsAllThatDied(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(t *testing.T, pool *pgxpool.Pool, store *Store)
	}{
		{"one that died long ago, at first", func(t *testing.T, pool *pgxpool.Pool, store *Store) {
			claimed(t, pool, store, "a", -time.Hour)
			wantReaped(t, store, "a")
			wantReaped(t, store)
		}},
		{"one with a locked row", func(t *testing.T, pool *pgxpool.Pool, store *Store) {
			claimed(t, pool, store, "a", -time.Hour)
			claimed(t, pool, store, "b", -2*time.Hour)
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `SELECT FROM idempotency_records WHERE key = 'a' FOR UPDATE`)
			require.NoError(t, err)
			wantReaped(t, store, "b")
			require.NoError(t, tx.Rollback(t.Context()))
			wantReaped(t, store, "a")
		}},
		{"those beyond the limit", func(t *testing.T, pool *pgxpool.Pool, store *Store) {
			for i := range 12 {
				claimed(t, pool, store, fmt.Sprint(i), -time.Duration(12-i)*time.Minute)
			}
			n := 0
			for {
				records, err := store.Reap(t.Context(), 5)
				require.NoError(t, err)
				if n += len(records); len(records) == 0 {
					break
				}
			}
			require.Equal(t, 12, n)
		}},
		{"a claim that was committed a moment after another reaping", func(t *testing.T, pool *pgxpool.Pool, store *Store) {
			wantReaped(t, store)
			claimed(t, pool, store, "a", -5*time.Second)
			wantReaped(t, store, "a")
		}},
		{"one that was renewed before", func(t *testing.T, pool *pgxpool.Pool, store *Store) {
			lease := claimed(t, pool, store, "a", -time.Second)
			require.NoError(t, store.Renew(t.Context(), lease, time.Microsecond))
			wantReaped(t, store, "a")
		}},
		{"after the clock was set back", func(t *testing.T, pool *pgxpool.Pool, store *Store) {
			wantReaped(t, store)
			_, err := pool.Exec(t.Context(), `UPDATE idempotency_records SET started = now() + interval '1 hour' WHERE key = ''`)
			require.NoError(t, err)
			claimed(t, pool, store, "a", -time.Second)
			wantReaped(t, store, "a")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pool, store := newLeases(t)
			row.do(t, pool, store)
		})
	}
}

// TestReap_readsWhatIsNew: neither reaping nor a list of what is unknown reads the executions that have ended before, however
// many they are, and whether or not the table was analyzed.
func TestReap_readsWhatIsNew(t *testing.T) {
	t.Parallel()
	pool, store := newLeases(t)
	const ended = 20_000
	_, err := pool.Exec(t.Context(), `INSERT INTO idempotency_records
		(started, updated, expires, generation, status, takeover, scope, operation, key, fingerprint, owner, lease_expires)
		SELECT now() - interval '1 hour', now(), now() + interval '1 day', 1, 2, 0, 'scope', 'operation', i::text, '', '', now() - interval '1 hour'
		FROM generate_series(1, $1) AS i`, ended)
	require.NoError(t, err)
	for _, key := range []string{"a", "b", "c"} {
		require.NoError(t, store.Complete(t.Context(), claimed(t, pool, store, key, 0), idempotency.Outcome{Status: idempotency.Unknown}))
	}
	wantReaped(t, store)
	claimed(t, pool, store, "dead", -time.Second)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			_, err := pool.Exec(t.Context(), `ANALYZE idempotency_records`)
			require.NoError(t, err)
		}
		for name, statement := range map[string]struct {
			text string
			args []any
		}{
			"reap":         {store.is.reap, []any{10}},
			"reaped":       {store.is.reaped, nil},
			"unknownOfAll": {store.is.unknownOfAll, []any{"", "", "", 100}},
			"unknownOf":    {store.is.unknownOf, []any{"scope", "", "", 100}},
		} {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `SET LOCAL plan_cache_mode = force_generic_plan`)
			require.NoError(t, err)
			var plan []byte
			require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+statement.text, statement.args...).Scan(&plan))
			require.NoError(t, tx.Rollback(t.Context()))
			assert.Less(t, rowsRead(t, plan), 20, "%s, analyzed %v: %s", name, analyzed, plan)
		}
	}
	wantReaped(t, store, "dead")
}

// rowsRead returns how many rows the scans of a plan have read.
func rowsRead(t *testing.T, text []byte) int {
	t.Helper()
	var plan any
	require.NoError(t, json.Unmarshal(text, &plan))
	total := 0.0
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case []any:
			for _, each := range node {
				walk(each)
			}
		case map[string]any:
			if kind, _ := node["Node Type"].(string); strings.Contains(kind, "Scan") {
				removed, _ := node["Rows Removed by Filter"].(float64)
				total += node["Actual Rows"].(float64) + removed
			}
			for _, each := range node {
				walk(each)
			}
		}
	}
	walk(plan)
	return int(total)
}
