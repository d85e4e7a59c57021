package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// instance is a process of a service that was built with some version of this package.
type instance struct {
	*Store

	pool *pgxpool.Pool
	stop func()
}

// run starts an instance.
func run(t *testing.T, dsn string, steps []pgkit.Step) (*instance, error) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := open(t.Context(), pgxConnections(pool), nil, steps)
	if err != nil {
		return nil, err
	}
	if len(steps) > 1 { // it writes a column that the older version does not know
		for _, statement := range []*string{&store.is.claim, &store.is.insertHere} {
			*statement = strings.Replace(*statement, "reference)", "reference, note)", 1)
			*statement = strings.Replace(*statement, "started, updated, expires)\n", "started, updated, expires, note)\n", 1)
			*statement = strings.Replace(*statement, "$16::bytea)", "$16::bytea, 'new')", 1)
			*statement = strings.Replace(*statement, "* interval '1 microsecond'\nFROM", "* interval '1 microsecond', 'new'\nFROM", 1)
		}
	}
	return &instance{store, pool, pool.Close}, nil
}

// work executes transactional and leased operations and loads them, until ctx ends.
func (i *instance) work(ctx context.Context, name string) error {
	for n := 0; ctx.Err() == nil; n++ {
		claim := driver.Claim{
			ID: driver.ID{Scope: name, Key: fmt.Sprint(n)}, Owner: driver.NewOwner(), Lease: time.Hour, TTL: time.Hour,
		}
		outcome := driver.Outcome{Status: driver.Completed}
		_, tx, err := i.Begin(context.Background(), claim, 0)
		if err == nil {
			err = tx.Commit(context.Background(), outcome)
		}
		if err != nil {
			return err
		}
		claim.Operation = "leased"
		reservation, err := i.Reserve(context.Background(), claim)
		if err == nil {
			err = i.Complete(context.Background(), reservation.Record.Lease(), outcome)
		}
		if err != nil {
			return err
		}
		for _, operation := range []string{"", "leased"} {
			record, err := i.Load(context.Background(), driver.ID{Scope: name, Operation: operation, Key: fmt.Sprint(n)})
			if err != nil || record.Status != driver.Completed {
				return fmt.Errorf("%v, %w", record.Status, err)
			}
		}
	}
	return nil
}

// TestMigrate_rollingDeploy starts a newer version beside the older one, which goes on, is
// started again, and is the only one after a rollback. An incompatible version prevents
// the older ones from starting.
func TestMigrate_rollingDeploy(t *testing.T) {
	dsn := postgrestest.Open(t)
	one := released()
	two := append(released(), pgkit.Step{Text: `ALTER TABLE {{records}} ADD COLUMN note text;` + "\n", Oldest: 1})
	three := slices.Concat(two, []pgkit.Step{{Text: `ALTER TABLE {{records}} ADD COLUMN another text NOT NULL DEFAULT '';` + "\n", Oldest: 3}})

	older, err := run(t, dsn, one)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	work := func(i *instance, name string) {
		working.Go(func() { assert.NoError(t, i.work(ctx, name), name) })
	}
	work(older, "old")
	eventually(t, older, "old")

	newer, err := run(t, dsn, two)
	require.NoError(t, err)
	work(newer, "new")
	restarted, err := run(t, dsn, one)
	require.NoError(t, err, "the older version is started again")
	work(restarted, "restarted")
	eventually(t, restarted, "new")
	eventually(t, newer, "restarted")
	stop()
	working.Wait()
	newer.stop()

	back, err := run(t, dsn, one)
	require.NoError(t, err, "after a rollback")
	ctx, stop = context.WithCancel(t.Context())
	work(back, "back")
	eventually(t, back, "back")
	stop()
	working.Wait()
	var old, noted int
	require.NoError(t, back.pool.QueryRow(t.Context(),
		`SELECT count(*) FILTER (WHERE note IS NULL), count(note) FROM idempotency_records`).Scan(&old, &noted))
	assert.Positive(t, old)
	assert.Positive(t, noted)
	again, err := run(t, dsn, two)
	require.NoError(t, err, "rolled out once more")
	again.stop()

	_, err = run(t, dsn, three)
	require.NoError(t, err)
	for _, steps := range [][]pgkit.Step{one, two} {
		_, err = run(t, dsn, steps)
		require.ErrorIs(t, err, ErrSchema)
	}
}

// eventually waits until the records of another instance are visible.
func eventually(t *testing.T, i *instance, scope string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := i.Load(context.Background(), driver.ID{Scope: scope, Operation: "leased", Key: "5"})
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			t.Error(err)
		}
		return err == nil
	}, time.Minute, time.Millisecond)
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
			_, err = other.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			assert.Equal(t, catalog(t, pool), catalog(t, other))
			check := named(executed)
			check.NoMigration = true
			_, err = New(t.Context(), other, check)
			require.NoError(t, err)
		})
	}
	text, err := Schema(nil, len(released()))
	require.NoError(t, err)
	assert.Empty(t, text)
	for _, from := range []int{-1, len(released()) + 1} {
		_, err = Schema(nil, from)
		require.ErrorIs(t, err, ErrSchema)
	}
	_, err = Schema(&Options{Table: "\x00"}, 0)
	require.ErrorIs(t, err, driver.ErrInvalid)
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
