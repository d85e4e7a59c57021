package sqlitestore_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// BenchmarkWithTx is an intent in a transaction of the caller's, beside the same
// transaction with a row of the caller's alone.
func BenchmarkWithTx(b *testing.B) {
	for _, mode := range []string{"row", "row and intent"} {
		b.Run(mode, func(b *testing.B) {
			store := open(b, filepath.Join(b.TempDir(), "bench.db"))
			_, err := store.DB().Exec("CREATE TABLE orders (id TEXT) STRICT")
			require.NoError(b, err)
			i := 0
			for b.Loop() {
				tx, err := store.DB().BeginTx(b.Context(), nil)
				require.NoError(b, err)
				_, err = tx.Exec("INSERT INTO orders VALUES (?)", strconv.Itoa(i))
				require.NoError(b, err)
				if mode != "row" {
					_, err = store.WithTx(tx).Enqueue(b.Context(), order(i))
					require.NoError(b, err)
				}
				require.NoError(b, tx.Commit())
				i++
			}
		})
	}
}

func order(i int) driver.Intent {
	return driver.Intent{
		ID: idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}, Gateway: "psp", Payload: []byte(`{"amount": 100}`),
	}
}
