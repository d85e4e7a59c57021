package pgstore

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

func openInternal(t *testing.T) *Store {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), postgrestest.Open(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s, err := New(t.Context(), pool, nil)
	require.NoError(t, err)
	return s
}

// TestPlans holds what every claim reads to the index of what is due, with a table that
// the planner knows nothing of: nothing is read through, and nothing sorted.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := openInternal(t)
	for _, row := range []struct {
		name, text, index string
		args              int
		cond              string
	}{
		{"choose", choose, "durable_intent_due", 10, "((gateway"},
		{"choose more", chooseMore, "durable_intent_due", 6, "((gateway"},
		{"due queries", dueQueries, "durable_intent_query", 2, "(gateway"},
		{"lock", lock, "durable_intent_pkey", 1, "(id"},
		{"take", take, "durable_intent_pkey", len(taken), "(id"},
		{"settle", settle, "durable_intent_pkey", len(settled), "(id"},
		{"update", update, "durable_intent_pkey", len(updated), "(id"},
		{"keep", keepAttempts, "durable_intent_pkey", 1, "(id"},
		{"begin", beginAttempts, "durable_intent_pkey", len(begun), "(id"},
		{"end", endAttempts, "durable_intent_pkey", len(ended), "(id"},
		{"promote", promote, "durable_intent_later", 1, "(next_at <="},
		{"due suspects", dueSuspects, "durable_intent_later", 0, "(next_at <="},
		{"take a suspect", lockSuspects, "durable_intent_later", 0, "(next_at <="},
		{"sweep", sweep, "durable_intent_over", 2, "(updated <"},
		{"lose", lockLost, "durable_intent_held", 2, "(worker"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var plan []string
			err := s.db.transact(t.Context(), func(tx *ownTransaction) error {
				plan = nil
				// Of a prepared statement it is the plan for all arguments.
				nulls := ""
				if row.args > 0 {
					nulls = "(NULL" + strings.Repeat(", NULL", row.args-1) + ")"
				}
				err := tx.Send(t.Context(), &pgkit.Statement{Text: "PREPARE this AS " + s.db.is.of(row.text)})
				if err != nil {
					return err
				}
				err = tx.Send(t.Context(), &pgkit.Statement{Text: "EXPLAIN (COSTS OFF) EXECUTE this" + nulls, Scan: func(from pgkit.Row) error {
					plan = append(plan, "")
					return from.Scan(&plan[len(plan)-1])
				}}, &pgkit.Statement{Text: "DEALLOCATE this"})
				if err != nil {
					return err
				}
				return tx.Commit(t.Context())
			})
			require.NoError(t, err)
			all := strings.Join(plan, "\n")
			assert.Contains(t, all, row.index)
			assert.Contains(t, all, "Index Cond: "+row.cond)
			for _, line := range plan {
				if strings.Contains(line, " on durable_intent") && !strings.HasSuffix(line, " on durable_intent t") {
					assert.Contains(t, line, "using "+row.index, all)
				}
			}
			assert.NotContains(t, all, "Sort")
			assert.NotContains(t, all, "Seq Scan")
		})
	}
}

// TestScheduledIntents_areKeptApart: claims do not read scheduled intents until they are due.
// Stats counts them.
func TestScheduledIntents_areKeptApart(t *testing.T) {
	t.Parallel()
	s := openInternal(t)
	var events []durable.Event
	for _, key := range []string{"past", "soon", "later"} {
		e := enqueue("a", key)
		e.Intent.NotBefore = time.Now().Add(2 * time.Hour)
		events = append(events, e)
	}
	require.NoError(t, each(s.Apply(t.Context(), append(events, enqueue("a", "now")))))
	apart := func() (keys string) {
		require.NoError(t, s.db.pool.QueryRow(t.Context(),
			"SELECT coalesce(string_agg(key, ' ' ORDER BY key), '') FROM durable_intent WHERE later").Scan(&keys))
		return keys
	}
	assert.Equal(t, "later past soon", apart())
	for key, due := range map[string]time.Duration{"past": -time.Hour, "soon": -time.Minute} {
		_, err := s.db.pool.Exec(t.Context(), "UPDATE durable_intent SET next_at = clock_timestamp() + $1::bigint * interval '1 microsecond' WHERE key = $2",
			due.Microseconds(), key)
		require.NoError(t, err)
	}
	stats, err := s.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[durable.State]int{durable.StatePending: 4}, stats.States)
	assert.Equal(t, 3, stats.Due)
	assert.WithinDuration(t, time.Now().Add(-time.Hour), stats.Oldest, time.Minute)
	claimed, err := s.Claim(t.Context(), claimOf("w"))
	require.NoError(t, err)
	require.Len(t, claimed.Changes, 3)
	assert.Equal(t, "past", claimed.Changes[0].Record.ID.Key)
	assert.Equal(t, "later", apart())
	checkBooks(t, s)
}

// TestSettings are the transaction's alone: what is committed is flushed, unless the
// session asks for more.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := openInternal(t)
	show := func(through pgkit.Sender) (got string) {
		require.NoError(t, through.Send(t.Context(), &pgkit.Statement{
			Text: `SELECT concat_ws(' ', current_setting('synchronous_commit'), current_setting('enable_seqscan'),
				current_setting('transaction_isolation'))`,
			Scan: func(from pgkit.Row) error { return from.Scan(&got) },
		}))
		return got
	}
	for session, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		config := s.db.pool.Config()
		config.ConnConfig.RuntimeParams["synchronous_commit"] = session
		config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		require.NoError(t, (&database{pool: pool}).transact(t.Context(), func(tx *ownTransaction) error {
			assert.Equal(t, want+" off read committed", show(tx), session)
			return tx.Commit(t.Context())
		}))
		assert.Equal(t, session+" on serializable", show(pgkit.PGX(pool)), "afterwards")
		pool.Close()
	}
}

// count is how many rows there are of what follows FROM.
func (s *Store) count(t *testing.T, from string) (n int) {
	t.Helper()
	require.NoError(t, s.db.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+from).Scan(&n), from)
	return n
}

// checkBooks looks whether the tables agree with each other.
func checkBooks(t *testing.T, s *Store) {
	t.Helper()
	for what, from := range map[string]string{
		"held without an open attempt":      `durable_intent WHERE state IN (2, 3) AND (a_n <> generation OR a_finished IS NOT NULL)`,
		"open attempts of what is not held": `durable_intent WHERE a_n > 0 AND a_finished IS NULL AND (state NOT IN (2, 3) OR generation <> a_n)`,
		"open attempts in the journal":      `durable_attempt WHERE finished IS NULL`,
		"attempts in both":                  `durable_attempt a JOIN durable_intent i ON i.id = a.intent WHERE a.n >= i.a_n`,
		"names that SQL would not find": `durable_intent WHERE id <> encode(substr(sha256(int4send(octet_length(scope)) || convert_to(scope, 'UTF8') ||
			int4send(octet_length(operation)) || convert_to(operation, 'UTF8') || convert_to(key, 'UTF8')), 1, 16), 'hex')::uuid`,
		"attempts of nothing": `durable_attempt a WHERE NOT EXISTS (SELECT FROM durable_intent i WHERE i.id = a.intent)`,
		"dead without an open letter": `durable_intent i WHERE (state = 6) <> EXISTS (
			SELECT FROM durable_letter WHERE intent = i.id AND n = i.letter AND redriven_at IS NULL)`,
		"later, and cannot be claimed": `durable_intent WHERE later AND state NOT IN (0, 1, 4)`,
		"held without a worker":        `durable_intent WHERE (state IN (2, 3)) <> (worker <> '')`,
	} {
		assert.Zero(t, s.count(t, from), "%s: %s", what, from)
	}
}

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
	middle := func(states ...durable.State) *durable.Record {
		all, err := s.Intents(t.Context(), durable.Filter{States: states}, nil, 51)
		require.NoError(t, err)
		return &all[50]
	}
	unknown, unknownOrDead := []durable.State{durable.StateUnknown}, []durable.State{durable.StateUnknown, durable.StateDead}
	for _, row := range []struct {
		name   string
		filter durable.Filter
		after  *durable.Record
		most   int
	}{
		{"the first page of unknown", durable.Filter{States: unknown}, nil, 60},
		{"a page in the middle", durable.Filter{States: unknown}, middle(unknown...), 60},
		{"a page in the middle, newest first", durable.Filter{States: unknown, NewestFirst: true}, middle(unknown...), 60},
		{"unknown and dead", durable.Filter{States: unknownOrDead}, middle(unknownOrDead...), 120},
		{"all states", durable.Filter{}, middle(), 150},
		{"all states, newest first", durable.Filter{NewestFirst: true}, nil, 150},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, args := sqlquery.PageOfIntents(&row.filter, row.after, 50)
			buffers, plan := explain(t, s, text, args)
			assert.LessOrEqual(t, buffers, row.most, plan)
			t.Logf("%d buffers", buffers)
		})
	}
	t.Run("dead letters, newest first", func(t *testing.T) {
		text, args := sqlquery.DeadLetters(&durable.Filter{NewestFirst: true}, nil, 50)
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
	require.NoError(t, s.db.transact(t.Context(), func(tx *ownTransaction) error {
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
			require.NoError(t, errOf(s.db.pool.Exec(t.Context(), "VACUUM ANALYZE durable_intent")))
			claim := claimOf("w")
			promote, _ := explain(t, s, promote, []any{int64(promoteBatch)})
			choose, _ := explain(t, s, choose, limits(&claim))
			t.Logf("promote %d, choose %d", promote, choose)
			assert.LessOrEqual(t, promote+choose, row.most)
			claimed, err := s.Claim(t.Context(), claim)
			require.NoError(t, err)
			assert.Len(t, claimed.Changes, row.due)
			for _, change := range claimed.Changes {
				assert.Equal(t, durable.StateSending, change.Record.State)
			}
		})
	}
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }

// A transaction that is given up has written nothing. TestSettle and the kit have those that are committed.
func TestTransact_givenUp(t *testing.T) {
	t.Parallel()
	db := openInternal(t).db
	require.NoError(t, errOf(db.pool.Exec(t.Context(), "CREATE TABLE n (n integer)")))
	broken := errors.New("broken")
	for _, want := range []error{broken, nil} { // nil: without a commit
		require.ErrorIs(t, db.transact(t.Context(), func(tx *ownTransaction) error {
			require.NoError(t, tx.Send(t.Context(), &pgkit.Statement{Text: "INSERT INTO n VALUES (1)"}))
			return want
		}), want)
	}
	var n int
	require.NoError(t, db.pool.QueryRow(t.Context(), "SELECT count(*) FROM n").Scan(&n))
	assert.Zero(t, n)
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

// TestUpgrade: New takes over the tables of version 1 with their intents. A program for version 1 goes on with the new ones.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), postgrestest.Open(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	old, err := (*Options)(nil).schema()
	require.NoError(t, err)
	old.Steps = old.Steps[:1]
	require.NoError(t, old.Migrate(t.Context(), pool))
	insert := func(key string, state durable.State, code string) durable.Event {
		e := enqueue("a", key)
		_, err := pool.Exec(t.Context(), `INSERT INTO durable_intent (id, next_at, updated, created, since, "row", later, scope, operation, key,
				gateway, fingerprint, batch, payload, code, state, doubt, generation, first_at, last_at)
			SELECT $1, now, now, now, now, 0, false, $2, $3, $4, $5, $6, '', $7, $8, $9::int, $9::int = 4, 1, now, now FROM clock_timestamp() AS now`,
			nameOf(&e.Intent.ID), e.Intent.ID.Scope, e.Intent.ID.Operation, e.Intent.ID.Key, e.Intent.Gateway,
			string(durable.FingerprintOf(&e.Intent)), e.Intent.Payload, code, int(state))
		require.NoError(t, err)
		return e
	}
	before := insert("before", durable.StateUnknown, "lease_expired 7")
	_, err = New(t.Context(), pool, &Options{NoMigration: true})
	require.ErrorIs(t, err, ErrSchema)
	s, err := New(t.Context(), pool, nil)
	require.NoError(t, err)
	insert("by an old program", durable.StatePending, "")
	require.NoError(t, old.Check(t.Context(), pgkit.PGX(pool)), "an old program accepts the tables")

	claim := durable.Claim{Worker: "w", Lease: time.Hour, Limit: 10, Gateways: map[string]durable.Allowance{
		"psp": {Terms: durable.Terms{KeyTTL: time.Hour}, Limit: 10, PerScope: 10},
	}}
	claimed, err := s.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, claimed.Changes, 2)
	r, err := s.Find(t.Context(), before.Intent.ID)
	require.NoError(t, err)
	assert.Zero(t, r.LostLeases, "counts begin anew")
	assert.Equal(t, durable.StateSending, r.State)
}
