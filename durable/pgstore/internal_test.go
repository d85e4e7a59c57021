package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
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
		{"choose more", chooseMore, "durable_intent_due", 7, "((gateway"},
		{"due queries", dueQueries, "durable_intent_query", 3, "((gateway"},
		{"lock", lock, "durable_intent_pkey", 1, "(id"},
		{"take", take, "durable_intent_pkey", len(taken), "(id"},
		{"settle", settle, "durable_intent_pkey", len(settled), "(id"},
		{"update", update, "durable_intent_pkey", len(updated), "(id"},
		{"keep", keepAttempts, "durable_intent_pkey", 1, "(id"},
		{"begin", beginAttempts, "durable_intent_pkey", len(begun), "(id"},
		{"end", endAttempts, "durable_intent_pkey", len(ended), "(id"},
		{"promote", promote, "durable_intent_later", 1, "(next_at <="},
		{"sweep", sweep, "durable_intent_over", 2, "(updated <"},
		{"lose", lockLost, "durable_intent_held", 2, "(worker"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var plan []string
			err := pgkit.Transact(t.Context(), s.db.pool, settings, func(tx *pgkit.Transaction) error {
				plan = nil
				// Of a prepared statement it is the plan for all arguments.
				nulls := "(NULL" + strings.Repeat(", NULL", row.args-1) + ")"
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
	var events []driver.Event
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
	assert.Equal(t, map[driver.State]int{driver.StatePending: 4}, stats.States)
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
		require.NoError(t, pgkit.Transact(t.Context(), pool, settings, func(tx *pgkit.Transaction) error {
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
