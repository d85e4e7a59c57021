package pgstore

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// D23: a page reads a part of an index, however many intents are in other states, and
// wherever in the list it is. The planner knows nothing of the table.
func TestLists_readFewBuffers(t *testing.T) {
	s := openInternal(t)
	_, err := s.db.pool.Exec(t.Context(), `INSERT INTO durable_intent (id, scope, operation, key, gateway, fingerprint, next_at, later, since,
			batch, "row", created, updated, payload, state, letter)
		SELECT gen_random_uuid(), 'tenant ' || i % 100, 'charge', 'k' || i, 'psp', 'f', at, false, at, '', 0, at, at, repeat('x', 200)::bytea,
			CASE i % 1000 WHEN 1 THEN 4 WHEN 2 THEN 6 ELSE 5 END, 1
		FROM generate_series(0, 99999) i, LATERAL (SELECT now() - (100000 - i) * interval '1 second' AS at) t`)
	require.NoError(t, err)
	_, err = s.db.pool.Exec(t.Context(), `INSERT INTO durable_letter (intent, n, gateway, batch, "row", reason, class, code, doubt, attempts, dead_at)
		SELECT id, 1, gateway, '', 0, 'declined', 2, '', false, 1, created FROM durable_intent WHERE state = 6`)
	require.NoError(t, err)
	middle := func(states ...driver.State) *driver.Record {
		all, err := s.Intents(t.Context(), driver.Filter{States: states}, nil, 51)
		require.NoError(t, err)
		return &all[50]
	}
	unknown, unknownOrDead := []driver.State{driver.StateUnknown}, []driver.State{driver.StateUnknown, driver.StateDead}
	for _, row := range []struct {
		name   string
		filter driver.Filter
		after  *driver.Record
		most   int
	}{
		{"the first page of unknown", driver.Filter{States: unknown}, nil, 60},
		{"a page in the middle", driver.Filter{States: unknown}, middle(unknown...), 60},
		{"a page in the middle, newest first", driver.Filter{States: unknown, NewestFirst: true}, middle(unknown...), 60},
		{"unknown and dead", driver.Filter{States: unknownOrDead}, middle(unknownOrDead...), 120},
		{"all states", driver.Filter{}, middle(), 150},
		{"all states, newest first", driver.Filter{NewestFirst: true}, nil, 150},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, args := sqlquery.PageOfIntents(&row.filter, row.after, 50)
			buffers, plan := explain(t, s, text, args)
			assert.LessOrEqual(t, buffers, row.most, plan)
			t.Logf("%d buffers", buffers)
		})
	}
	t.Run("dead letters, newest first", func(t *testing.T) {
		text, args := sqlquery.DeadLetters(&driver.Filter{NewestFirst: true}, nil, 50)
		buffers, plan := explain(t, s, text, args)
		assert.LessOrEqual(t, buffers, 260, plan) // of each also the intent, through its key
		t.Logf("%d buffers", buffers)
	})
	t.Run("counts of unknown and dead", func(t *testing.T) {
		buffers, plan := explain(t, s, sqlquery.Counts(unknownOrDead), nil)
		assert.LessOrEqual(t, buffers, 250, plan)
		t.Logf("%d buffers", buffers)
	})
}

// explain runs a statement as the store does, and returns how many buffers it reads.
func explain(t *testing.T, s *Store, text string, args []any) (buffers int, plan string) {
	t.Helper()
	require.NoError(t, pgkit.Transact(t.Context(), s.db.pool, settings, func(tx *pgkit.Transaction) error {
		explain := "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + text
		return session{tx.Commit, s.db.is.schema.Fill}.Query(t.Context(), explain, args, func(from sqlquery.Row) error { return from.Scan(&plan) })
	}))
	var tree []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.NewDecoder(strings.NewReader(plan)).Decode(&tree))
	return tree[0].Plan.Hit + tree[0].Plan.Read, plan
}
