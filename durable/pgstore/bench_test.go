package pgstore_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// BenchmarkWithTx is an intent in a transaction of the caller's, beside the same
// transaction with a row of the caller's alone.
func BenchmarkWithTx(b *testing.B) {
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
