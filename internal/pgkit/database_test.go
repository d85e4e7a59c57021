package pgkit

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestReadCommitted is the same through a pool and through database/sql, in a database
// whose default is stricter.
func TestReadCommitted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		open func(t *testing.T, dsn string) Database
	}{
		{"a pool", func(t *testing.T, dsn string) Database {
			pool, err := pgxpool.New(t.Context(), dsn)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return Pool(pool)
		}},
		{"database/sql", func(t *testing.T, dsn string) Database {
			db, err := sql.Open("pgx", dsn)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			return DB(db)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := row.open(t, postgrestest.Open(t)+"&default_transaction_isolation=serializable")
			send := func(through Sender, text string) error {
				return through.Send(t.Context(), &Statement{Text: text})
			}
			ask := func(through Sender, text string) (answer string) {
				require.NoError(t, through.Send(t.Context(), &Statement{
					Text: text, Scan: func(r Row) error { return r.Scan(&answer) },
				}))
				return answer
			}
			require.NoError(t, send(db, "CREATE TABLE one (a integer)"))

			broken := errors.New("broken")
			require.ErrorIs(t, db.ReadCommitted(t.Context(), func(through Sender) error {
				require.NoError(t, send(through, "INSERT INTO one VALUES (1)"))
				return broken
			}), broken)
			assert.Equal(t, "0", ask(db, "SELECT count(*)::text FROM one"), "what failed was rolled back")

			calls := 0
			require.NoError(t, db.ReadCommitted(t.Context(), func(through Sender) error {
				assert.Equal(t, "read committed", ask(through, "SELECT current_setting('transaction_isolation')"))
				require.NoError(t, send(through, "INSERT INTO one VALUES (2)"))
				if calls++; calls == 1 {
					return errorOf(DeadlockDetected)
				}
				return nil
			}))
			assert.Equal(t, 2, calls)
			assert.Equal(t, "1", ask(db, "SELECT count(*)::text FROM one"), "each try is a transaction of its own")
		})
	}
}
