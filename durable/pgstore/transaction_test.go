package pgstore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// TestTransact writes all or nothing.
func TestTransact(t *testing.T) {
	t.Parallel()
	db := openInternal(t).db
	require.NoError(t, errOf(db.pool.Exec(t.Context(), "CREATE TABLE n (n integer UNIQUE)")))
	insert := func(n int) *pgkit.Statement {
		return &pgkit.Statement{Text: "INSERT INTO n VALUES ($1)", Args: []any{n}}
	}
	broken := errors.New("broken")
	for _, row := range []struct {
		name string
		work func(tx *ownTransaction) error
		rows int
		want error
	}{
		{"committed", func(tx *ownTransaction) error { return tx.Commit(t.Context(), insert(1), insert(2)) }, 2, nil},
		{"in two trips", func(tx *ownTransaction) error {
			return errors.Join(tx.Send(t.Context(), insert(3)), tx.Commit(t.Context(), insert(4)))
		}, 2, nil},
		{"not committed", func(tx *ownTransaction) error { return tx.Send(t.Context(), insert(5)) }, 0, nil},
		{"given up", func(tx *ownTransaction) error { return errors.Join(tx.Send(t.Context(), insert(6)), broken) }, 0, broken},
		{"failed", func(tx *ownTransaction) error {
			if err := tx.Commit(t.Context(), insert(7), insert(7), insert(8)); !pgkit.HasCode(err, "23505") {
				return err
			}
			return broken
		}, 0, broken},
		{"nothing", func(*ownTransaction) error { return nil }, 0, nil},
	} {
		count := func() (n int) {
			require.NoError(t, db.pool.QueryRow(t.Context(), "SELECT count(*) FROM n").Scan(&n))
			return n
		}
		n := count()
		require.ErrorIs(t, db.transact(t.Context(), row.work), row.want, row.name)
		assert.Equal(t, row.rows, count()-n, row.name)
	}
}

// TestTransact_keepsConnection expects the connection of a failed transaction back in
// the pool once in three tries: the rollback gets a second, and a machine may stall.
func TestTransact_keepsConnection(t *testing.T) {
	t.Parallel()
	db := openInternal(t).db
	var before, after int
	for range 3 {
		err := db.transact(t.Context(), func(tx *ownTransaction) error {
			return tx.Send(t.Context(), &pgkit.Statement{Text: "SELECT pg_backend_pid()", Scan: func(from pgkit.Row) error { return from.Scan(&before) }},
				&pgkit.Statement{Text: "SELECT 1 / 0"})
		})
		require.True(t, pgkit.HasCode(err, "22012"), "%v", err)
		require.NoError(t, db.pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&after))
		if after == before {
			return
		}
	}
	assert.Equal(t, before, after)
}
