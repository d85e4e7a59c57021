package pgstore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// D20: a claim that finds nothing reads few buffers, whatever waits for its time. One that
// finds something reads in addition what it takes, and what its tenants cost.
func TestClaim_buffers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		rows, tenants int
		due           int // of so many tenants, one each
		most          int
	}{
		{"10,000 tenants in retry, nothing due: at most 200", 10_000, 10_000, 0, 200},
		{"50,000 rows waiting, nothing due: at most 200", 50_000, 100, 0, 200},
		{"10,000 tenants in retry, one due: at most 200", 10_000, 10_000, 1, 200},
		{"10,000 tenants in retry, 100 due: at most 40 each", 10_000, 10_000, 100, 4000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := openInternal(t)
			_, err := s.db.pool.Exec(t.Context(), `INSERT INTO durable_intent (id, scope, operation, key, gateway, fingerprint, state, next_at, later, since,
					batch, "row", created, updated, payload)
				SELECT gen_random_uuid(), 'tenant ' || i % $2, 'charge', i::text, 'psp', 'v1:a', 1,
					now() + interval '1 hour' + i * interval '1 microsecond', true, now(), '', 0, now(), now(), '{}'
				FROM generate_series(0, $1::int - 1) AS i`, row.rows, row.tenants)
			require.NoError(t, err)
			_, err = s.db.pool.Exec(t.Context(), `UPDATE durable_intent SET next_at = now() - interval '1 second'
				WHERE id IN (SELECT DISTINCT ON (scope) id FROM durable_intent ORDER BY scope, id LIMIT $1::int)`, row.due)
			require.NoError(t, err)
			_, err = s.db.pool.Exec(t.Context(), "VACUUM ANALYZE durable_intent")
			require.NoError(t, err)
			claim := claimOf("w")
			promote, _ := explain(t, s, promote, []any{int64(promoteBatch)})
			choose, _ := explain(t, s, choose, limits(&claim))
			t.Logf("promote %d, choose %d", promote, choose)
			assert.LessOrEqual(t, promote+choose, row.most)
			claimed, err := s.Claim(t.Context(), claim)
			require.NoError(t, err)
			assert.Len(t, claimed.Changes, row.due)
			for _, change := range claimed.Changes {
				assert.Equal(t, driver.StateSending, change.Record.State)
			}
		})
	}
}
