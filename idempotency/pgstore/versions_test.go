package pgstore

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// TestNew_newerTables: a newer version of the package has added a column. A store of this version goes on, and is started again, as
// in a rolling deploy, until the tables need newer programs. Package pgkit tests the versions.
func TestNew_newerTables(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), postgrestest.Open(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	older, err := New(t.Context(), pool, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `ALTER TABLE idempotency_records ADD COLUMN note text; INSERT INTO idempotency_records_version VALUES (3, 2)`,
		pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	restarted, err := New(t.Context(), pool, nil)
	require.NoError(t, err)
	outcome := idempotency.Outcome{Status: idempotency.Completed}
	for _, store := range []*Store{older, restarted} {
		claim := idempotency.Claim{ID: idempotency.ID{Key: rand.Text()}, Owner: rand.Text(), Lease: time.Hour, TTL: time.Hour}
		_, tx, err := store.Begin(t.Context(), claim, 0)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context(), outcome))
		claim.Operation = "leased"
		reservation, err := store.Reserve(t.Context(), claim)
		require.NoError(t, err)
		require.NoError(t, store.Complete(t.Context(), reservation.Record.Lease(), outcome))
		for _, operation := range []string{"", "leased"} {
			record, err := store.Load(t.Context(), idempotency.ID{Operation: operation, Key: claim.Key})
			require.NoError(t, err)
			assert.Equal(t, idempotency.Completed, record.Status)
		}
	}
	require.NoError(t, errOf(pool.Exec(t.Context(), `INSERT INTO idempotency_records_version VALUES (4, 4)`)))
	require.ErrorIs(t, errOf(New(t.Context(), pool, nil)), ErrSchema)
}

// TestMigrate_fromVersion1: a store finds the records that version 1 has written, in each state. Programs of version 1 must not start
// any more.
func TestMigrate_fromVersion1(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), postgrestest.Open(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	first, _, err := locate(t.Context(), pgkit.PGX(pool), nil)
	require.NoError(t, err)
	first.Steps = first.Steps[:1]
	require.NoError(t, first.Migrate(t.Context(), pool))
	for _, row := range []struct {
		key                     string
		status                  idempotency.Status
		lease, expires, started string // from now; "": NULL
	}{
		{"alive", idempotency.StatusInProgress, "1 hour", "1 day", "-1 minute"},
		{"dead", idempotency.StatusInProgress, "-1 minute", "1 day", "-2 minutes"},
		{"dead since yesterday", idempotency.StatusInProgress, "-1 day", "1 day", "-2 days"},
		{"unknown", idempotency.Unknown, "-1 minute", "1 day", "-2 minutes"},
		{"unknown, by transactional work", idempotency.Unknown, "-2 minutes", "-1 minute", "-2 minutes"},
		{"completed", idempotency.Completed, "", "1 day", "-2 minutes"},
		{"released", idempotency.FailedRetryable, "", "1 day", "-2 minutes"},
		{"expired", idempotency.Completed, "", "-1 minute", "-1 day"},
	} {
		_, err := pool.Exec(t.Context(), `INSERT INTO idempotency_records
			(started, updated, expires, generation, status, takeover, scope, operation, key, fingerprint, owner, lease_expires)
			VALUES (now() + $3::text::interval, now() + $3::text::interval, now() + $4::text::interval, 1, $2, 0, '', '', $1, '', 'owner',
				now() + nullif($5::text, '')::interval)`, row.key, int16(row.status), row.started, row.expires, row.lease)
		require.NoError(t, err)
	}

	require.ErrorIs(t, errOf(New(t.Context(), pool, &Options{NoMigration: true})), ErrSchema)
	store, err := New(t.Context(), pool, nil)
	require.NoError(t, err)
	require.ErrorIs(t, first.Check(t.Context(), pgkit.PGX(pool)), ErrSchema, "a program of version 1")
	listed := func() (keys []string) {
		for record, err := range store.Unknown(t.Context(), "") {
			require.NoError(t, err)
			keys = append(keys, record.Key)
		}
		return keys
	}
	require.Equal(t, []string{"unknown", "unknown, by transactional work"}, listed())
	reaped, err := store.Reap(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, reaped, 2)
	require.Equal(t, []string{"dead", "dead since yesterday", "unknown", "unknown, by transactional work"}, listed())
	deleted, err := store.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, deleted)
	outcome := idempotency.Outcome{Status: idempotency.Completed, Result: idempotency.Result{Code: 201}}
	for _, key := range []string{"alive", "unknown", "unknown, by transactional work"} {
		require.NoError(t, store.Complete(t.Context(), idempotency.Lease{ID: idempotency.ID{Key: key}, Owner: "owner", Generation: 1}, outcome), key)
	}
	require.Equal(t, []string{"dead", "dead since yesterday"}, listed())
	for _, key := range []string{"alive", "unknown", "unknown, by transactional work", "completed"} {
		record, err := store.Load(t.Context(), idempotency.ID{Key: key})
		require.NoError(t, err)
		require.Equal(t, idempotency.Completed, record.Status, key)
	}
}

// TestSchema_equalsMigrate executes the text of Schema as another tool does.
func TestSchema_equalsMigrate(t *testing.T) {
	for _, options := range []*Options{nil, {Table: `it's "Quoted"`}, {Schema: "schema", Table: "t"}} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			made, executed := postgrestest.Open(t), postgrestest.Open(t)
			named := func(dsn string) *Options {
				o := Options{}
				if options != nil {
					o = *options
				}
				if o.Schema != "" {
					pool, err := pgxpool.New(t.Context(), dsn)
					require.NoError(t, err)
					defer pool.Close()
					require.NoError(t, pool.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&o.Schema))
				}
				return &o
			}
			pool, err := pgxpool.New(t.Context(), made)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			require.NoError(t, Migrate(t.Context(), pool, named(made)))

			other, err := pgxpool.New(t.Context(), executed)
			require.NoError(t, err)
			t.Cleanup(other.Close)
			text, err := Schema(named(executed), 0)
			require.NoError(t, err)
			require.NoError(t, errOf(other.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol)))
			assert.Equal(t, catalog(t, pool), catalog(t, other))
			check := named(executed)
			check.NoMigration = true
			require.NoError(t, errOf(New(t.Context(), other, check)))
		})
	}
	text, err := Schema(nil, 2)
	require.NoError(t, err)
	assert.Empty(t, text)
	for _, from := range []int{-1, 3} {
		require.ErrorIs(t, errOf(Schema(nil, from)), ErrSchema)
	}
	require.ErrorIs(t, errOf(Schema(&Options{Table: "\x00"}, 0)), idempotency.ErrInvalid)
}

// catalog describes all tables, columns, indexes and constraints of the schema.
func catalog(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT format('%s %s %s %s %s %s %s', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
			LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		WHERE c.relnamespace = current_schema()::regnamespace
		UNION ALL
		SELECT replace(indexdef, current_schema(), 'schema') FROM pg_indexes WHERE schemaname = current_schema()
		UNION ALL
		SELECT format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
		UNION ALL
		SELECT format('%s %s', relname, reloptions) FROM pg_class WHERE relnamespace = current_schema()::regnamespace
		ORDER BY 1`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(all), 20)
	return all
}

func TestReplay_predictor(t *testing.T) {
	t.Parallel()
	var p replayPredictor
	for i, row := range []struct{ isNew, predicts bool }{
		{true, false}, {true, true}, {true, true}, {false, true}, {false, false}, {true, true}, {false, false}, {false, false}, {true, false},
	} {
		p.record(row.isNew)
		assert.Equal(t, row.predicts, p.newKey(), i)
	}
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
