package sqlitestore_test

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/durable/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func BenchmarkStore(b *testing.B) {
	exec := func(b *testing.B, store driver.Store, query string, args ...any) {
		b.Helper()
		_, err := store.(*sqlitestore.Store).DB().Exec(query, args...)
		require.NoError(b, err)
	}
	storetest.Bench{
		Open: func(b *testing.B) driver.Store {
			b.Helper()
			return open(b, filepath.Join(b.TempDir(), "bench.db"))
		},
		Fill: func(b *testing.B, store driver.Store, l storetest.Backlog) {
			b.Helper()
			exec(b, store, `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
				INSERT INTO durable_intent (scope, operation, key, gateway, fingerprint, state, epoch, generation, worker, next_at,
					later, attempts, tries, doubt, ask, class, code, reference, reason, letter, since, batch, row, created, updated,
					payload)
				SELECT printf('tenant %06d', CASE WHEN ?2 AND i >= ?3 THEN ?3 / 2 ELSE i % ?3 END), 'charge', 'old ' || i, ?6,
					'v1:a', 0, 1, 0, '', ?4 + i, ?5, 0, 0, 0, 0, 0, '', '', '', 0, ?4, '', 0, ?4, ?4, x'7b7d' FROM n`,
				l.Rows, l.Lopsided, l.Scopes, time.Now().Add(l.Due).UnixMicro(), l.Due > 0, l.Gateway)
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
