package pgstore_test

import (
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/durable/storetest"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

func BenchmarkStore(b *testing.B) {
	pools := make(map[driver.Store]*pgxpool.Pool)
	exec := func(b *testing.B, store driver.Store, query string, args ...any) {
		b.Helper()
		_, err := pools[store].Exec(b.Context(), query, args...)
		require.NoError(b, err)
	}
	storetest.Bench{
		Open: func(b *testing.B) driver.Store {
			b.Helper()
			pool := newPool(b, postgrestest.Open(b), nil)
			store := newStore(b, pool)
			pools[store] = pool
			return store
		},
		Fill: func(b *testing.B, store driver.Store, l storetest.Backlog) {
			b.Helper()
			exec(b, store, `INSERT INTO durable_intent (id, scope, operation, key, gateway, fingerprint, next_at, later, since,
					batch, "row", created, updated, payload)
				SELECT encode(substr(sha256(int4send(octet_length(scope)) || convert_to(scope, 'UTF8') ||
						int4send(6) || 'charge' || convert_to('old ' || i, 'UTF8')), 1, 16), 'hex')::uuid,
					scope, 'charge', 'old ' || i, $6, 'v1:a',
					now() + $4::bigint * interval '1 microsecond' + i * interval '1 microsecond', $5, now(), '', 0, now(), now(), '{}'
				FROM generate_series(0, $1::int - 1) AS i, LATERAL (SELECT 'tenant ' ||
					lpad((CASE WHEN $2 AND i >= $3::int THEN $3::int / 2 ELSE i % $3::int END)::text, 6, '0') AS scope) s`,
				l.Rows, l.Lopsided, l.Scopes, l.Due.Microseconds(), l.Due > 0, l.Gateway)
		},
		Unclaim: func(b *testing.B, store driver.Store) {
			b.Helper()
			exec(b, store, "UPDATE durable_intent SET state = 0, worker = '' WHERE state = 2")
		},
	}.Run(b)
}

// BenchmarkWithin is an intent in a transaction of the caller's, beside the same
// transaction with a row of the caller's alone.
func BenchmarkWithin(b *testing.B) {
	for _, mode := range []string{"row", "row and intent"} {
		b.Run(mode, func(b *testing.B) {
			pool := newPool(b, postgrestest.Open(b), nil)
			store := newStore(b, pool)
			_, err := pool.Exec(b.Context(), "CREATE TABLE orders (id text)")
			require.NoError(b, err)
			i := 0
			for b.Loop() {
				tx, err := pool.Begin(b.Context())
				require.NoError(b, err)
				_, err = tx.Exec(b.Context(), "INSERT INTO orders VALUES ($1)", strconv.Itoa(i))
				require.NoError(b, err)
				if mode != "row" {
					_, err = store.WithTx(tx).Enqueue(b.Context(), order(i))
					require.NoError(b, err)
				}
				require.NoError(b, tx.Commit(b.Context()))
				i++
			}
		})
	}
}
