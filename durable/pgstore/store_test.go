package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/storetest"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// newPool is a pool of connections to dsn, changed by configure if that is not nil.
func newPool(tb testing.TB, dsn string, configure func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(tb, err)
	config.MaxConns = 8
	if configure != nil {
		configure(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

func newStore(tb testing.TB, pool *pgxpool.Pool) *pgstore.Store {
	tb.Helper()
	store, err := pgstore.New(tb.Context(), pool, nil)
	require.NoError(tb, err)
	return store
}

// finish commits if work has returned nil.
func finish(t *testing.T, err error, commit, rollBack func() error) error {
	t.Helper()
	if err != nil {
		assert.NoError(t, rollBack())
		return err
	}
	return commit()
}

// place is where a store of a test is.
type place struct {
	pool *pgxpool.Pool
	db   *sql.DB
}

func newPlace(t *testing.T, dsn string, configure func(*pgxpool.Config)) *place {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return &place{newPool(t, dsn, configure), db}
}

type within func(t *testing.T, p *place, store *pgstore.Store, work func(durable.Outbox) error) error

func withinPGX(t *testing.T, p *place, store *pgstore.Store, work func(durable.Outbox) error) error {
	t.Helper()
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	return finish(t, work(store.WithTx(tx)),
		func() error { return tx.Commit(t.Context()) }, func() error { return tx.Rollback(t.Context()) })
}

func withinSQL(t *testing.T, p *place, store *pgstore.Store, work func(durable.Outbox) error) error {
	t.Helper()
	tx, err := p.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return finish(t, work(store.WithSQLTx(tx)), tx.Commit, tx.Rollback)
}

// suite runs the tests with two pools, as two processes have. The tables are made once and emptied for each test: to make
// them and their connections costs more than most tests.
func suite(t *testing.T, configure func(*pgxpool.Config), inside within) storetest.Suite {
	t.Helper()
	return suiteAt(t, postgrestest.Open(t), configure, inside)
}

func suiteAt(t *testing.T, dsn string, configure func(*pgxpool.Config), inside within) storetest.Suite {
	t.Helper()
	p, again := newPlace(t, dsn, configure), newPool(t, dsn, configure)
	return storetest.Suite{
		Rows: 200,
		Open: func(t *testing.T) durable.Store {
			store := newStore(t, p.pool)
			_, err := p.db.ExecContext(t.Context(), `DO $$ BEGIN EXECUTE 'TRUNCATE ' || (SELECT string_agg(tablename, ', ') FROM pg_tables
				WHERE schemaname = current_schema() AND tablename <> 'durable_schema'); END $$`)
			require.NoError(t, err)
			return store
		},
		Again: func(t *testing.T, _ durable.Store) durable.Store { return newStore(t, again) },
		WithTx: func(t *testing.T, store durable.Store, work func(durable.Outbox) error) error {
			t.Helper()
			return inside(t, p, store.(*pgstore.Store), work)
		},
	}
}

// movable makes a clock in the schema of the DSN, which MoveClock can move. A function of PostgreSQL's own is found after it if
// search_path has pg_catalog behind the schema.
func movable(t *testing.T, dsn string) (configure func(*pgxpool.Config), move func(by time.Duration)) {
	t.Helper()
	pool := newPool(t, dsn, nil)
	execute := func(text string, args ...any) { require.NoError(t, errOf(pool.Exec(t.Context(), text, args...))) }
	var schema string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	execute("CREATE TABLE moved_clock (by interval NOT NULL)")
	execute(`CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		$$ SELECT pg_catalog.clock_timestamp() + coalesce((SELECT sum(by) FROM ` + schema + `.moved_clock), '0') $$`)
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = schema + ", pg_catalog" },
		func(by time.Duration) { execute("INSERT INTO moved_clock VALUES ($1)", by) }
}

// TestStore has a clock that can be moved.
func TestStore(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	configure, move := movable(t, dsn)
	s := suiteAt(t, dsn, configure, withinPGX)
	s.MoveClock = func(_ *testing.T, _ durable.Store, by time.Duration) { move(by) }
	s.Run(t)
}

// movableStore is a store with a clock that move moves.
func movableStore(t *testing.T) (store *pgstore.Store, pool *pgxpool.Pool, move func(by time.Duration)) {
	t.Helper()
	dsn := postgrestest.Open(t)
	configure, move := movable(t, dsn)
	pool = newPool(t, dsn, configure)
	return newStore(t, pool), pool, move
}

// setBack undoes all moves of the clock.
const setBack = "DELETE FROM moved_clock"

// before makes a trigger that executes a statement.
func before(t *testing.T, pool *pgxpool.Pool, event, statement string) {
	t.Helper()
	for _, text := range []string{
		`CREATE FUNCTION meanwhile() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN ` + statement + `; RETURN NEW; END'`,
		`CREATE TRIGGER meanwhile BEFORE ` + event + ` EXECUTE FUNCTION meanwhile()`,
	} {
		require.NoError(t, errOf(pool.Exec(t.Context(), text)))
	}
}

// D30: the clock is set back between the two statements of SetHold. The hold is as long as the provider asked, or has no effect: it
// would be longer by as much as the clock was set back.
func TestSetHold_clockSetBackMeanwhile(t *testing.T) {
	t.Parallel()
	store, pool, move := movableStore(t)
	before(t, pool, `INSERT ON durable_provider_hold`, setBack)
	move(20 * time.Minute)
	since := time.Now()
	require.NoError(t, store.SetHold(t.Context(), durable.Hold{Gateway: "psp", Provider: true, Since: since, Until: since.Add(time.Minute)}))
	var moves int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM moved_clock").Scan(&moves))
	assert.Zero(t, moves, "the trigger has set the clock back")
	holds, err := store.Holds(t.Context())
	require.NoError(t, err)
	assert.Empty(t, holds)
}

// D30: the clock is set back while a claim promotes intents. All of them were due, and are claimed.
func TestClaim_clockSetBackMeanwhile(t *testing.T) {
	t.Parallel()
	store, pool, move := movableStore(t)
	move(20 * time.Minute)
	applyAll(t, store, batch(1, 3))
	claim := func() durable.Claimed {
		claimed, err := store.Claim(t.Context(), claimOf("w", 10))
		require.NoError(t, err)
		require.Len(t, claimed.Changes, 3)
		return claimed
	}
	claimed := claim()
	var finished []durable.Event
	for i := range claimed.Changes {
		at := claimed.Now.Add(time.Minute)
		finished = append(finished, ended(&claimed.Changes[i].Record, durable.ClassFailed, durable.Decision{At: at}))
	}
	applyAll(t, store, finished)
	move(2 * time.Minute)
	before(t, pool, `UPDATE ON durable_intent FOR EACH ROW WHEN (OLD.later AND NOT NEW.later)`, setBack)
	assert.Less(t, time.Until(claim().Now), time.Minute, "the trigger has set the clock back")
}

// D25: of two holds that are stored at once, the one that ends later stays, also if the other has read the clock before it.
func TestSetHold_atOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, postgrestest.Open(t), nil)
	store := newStore(t, pool)
	before(t, pool, `INSERT ON durable_provider_hold FOR EACH ROW WHEN (NEW.note = 'short')`, "PERFORM pg_advisory_xact_lock(7)")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, errOf(tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7)")))
	hold := func(note string, length time.Duration) error {
		since := time.Now()
		return store.SetHold(t.Context(), durable.Hold{Gateway: "psp", Provider: true, Since: since, Until: since.Add(length), Note: note})
	}
	short := make(chan error)
	go func() { short <- hold("short", time.Second) }()
	require.Eventually(t, func() bool {
		waits := false
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits)
		return err == nil && waits
	}, time.Minute, time.Millisecond)
	require.NoError(t, hold("long", time.Hour))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-short)
	holds, err := store.Holds(t.Context())
	require.NoError(t, err)
	require.Len(t, holds, 1)
	assert.Equal(t, "long", holds[0].Note)
}

// TestSimpleProtocol does without prepared statements, as some proxies want.
func TestSimpleProtocol(t *testing.T) {
	t.Parallel()
	suite(t, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}, withinPGX).Run(t)
}

// TestSQL has outboxes in transactions of database/sql. The database is serializable by default
// and commits without a flush, and the statements have no names.
func TestSQL(t *testing.T) {
	t.Parallel()
	suite(t, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	}, withinSQL).Run(t)
}

// order is the i-th of a tenant's.
func order(i int) durable.Intent {
	return durable.Intent{
		ID: idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}, Gateway: "psp", Payload: []byte(`{"amount": 100}`),
	}
}

// batch enqueues n of them.
func batch(from, n int) []durable.Event {
	events := make([]durable.Event, n)
	for i := range events {
		events[i] = durable.Event{Kind: durable.EventEnqueue, Intent: order(from + i)}
	}
	return events
}

// enqueueKey enqueues an intent of this key.
func enqueueKey(tb testing.TB, store durable.Store, key string) {
	tb.Helper()
	in := order(0)
	in.Key = key
	applyAll(tb, store, []durable.Event{{Kind: durable.EventEnqueue, Intent: in}})
}

// refuse claims the only intent, and makes a dead letter of it.
func refuse(tb testing.TB, store durable.Store, gateway string) {
	tb.Helper()
	claim := claimOf("w", 1)
	claim.Gateways = map[string]durable.Allowance{gateway: {Limit: 1, PerScope: 1}}
	claimed, err := store.Claim(tb.Context(), claim)
	require.NoError(tb, err)
	require.Len(tb, claimed.Changes, 1)
	r := &claimed.Changes[0].Record
	applyAll(tb, store, []durable.Event{ended(r, durable.ClassDeclined, durable.Decision{Action: durable.Bury})})
}

// ended is the end of an attempt.
func ended(r *durable.Record, class durable.Class, decision durable.Decision) durable.Event {
	return durable.Event{
		Kind: durable.EventFinish, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation, Terms: &durable.Terms{},
		Outcome: durable.Outcome{Class: class}, Decision: decision,
	}
}

func applyAll(tb testing.TB, store durable.Store, events []durable.Event) []durable.Result {
	tb.Helper()
	results, err := store.Apply(tb.Context(), events)
	require.NoError(tb, err)
	for i := range results {
		require.NoError(tb, results[i].Err)
	}
	return results
}

func claimOf(worker string, limit int) durable.Claim {
	return durable.Claim{
		Worker: worker, Lease: time.Hour, Limit: limit, Gateways: map[string]durable.Allowance{"psp": {Limit: limit, PerScope: limit}},
	}
}

// TestNoMigration changes no tables, and works with those that another program has made.
func TestNoMigration(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		make func(t *testing.T, execute func(string), migrate func() error)
	}{
		{"Migrate", func(t *testing.T, _ func(string), migrate func() error) {
			t.Helper()
			require.NoError(t, migrate())
			require.NoError(t, migrate(), "again")
		}},
		{"Schema", func(t *testing.T, execute func(string), _ func() error) {
			t.Helper()
			text, err := pgstore.Schema(nil, 0)
			require.NoError(t, err)
			execute(text)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, postgrestest.Open(t), nil)
			options := &pgstore.Options{NoMigration: true}
			require.ErrorIs(t, errOf(pgstore.New(t.Context(), pool, options)), pgstore.ErrSchema)
			row.make(t, func(text string) {
				require.NoError(t, errOf(pool.Exec(t.Context(), text)))
			}, func() error { return pgstore.Migrate(t.Context(), pool, options) })
			store, err := pgstore.New(t.Context(), pool, options)
			require.NoError(t, err)
			applyAll(t, store, batch(0, 3))
		})
	}
}

// callersTx is a transaction of the caller's with its outbox, in pgx or in database/sql.
type callersTx struct {
	ending

	execute func(text string) error
}

func beginPGX(t *testing.T, p *place, store *pgstore.Store) callersTx {
	t.Helper()
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // no effect after a commit
	return callersTx{
		ending{store.WithTx(tx), func() error { return tx.Commit(t.Context()) }, func() error { return tx.Rollback(t.Context()) }},
		func(text string) error { return errOf(tx.Exec(t.Context(), text)) },
	}
}

func beginSQL(t *testing.T, p *place, store *pgstore.Store) callersTx {
	t.Helper()
	tx, err := p.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // no effect after a commit
	return callersTx{
		ending{store.WithSQLTx(tx), tx.Commit, tx.Rollback},
		func(text string) error { return errOf(tx.ExecContext(t.Context(), text)) },
	}
}

// D28: New finds the schema of its tables once. A transaction of the caller with the search_path of a tenant, which has
// tables of the same names, still enqueues where the store claims.
func TestSearchPath(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *place, *pgstore.Store) callersTx{"pgx": beginPGX, "database/sql": beginSQL} {
		for _, noMigration := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, NoMigration %v", name, noMigration), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, postgrestest.Open(t), nil)
				var home string
				require.NoError(t, p.pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&home))
				tenant := home + "_tenant"
				t.Cleanup(func() { assert.NoError(t, errOf(p.pool.Exec(context.Background(), "DROP SCHEMA "+tenant+" CASCADE"))) })
				require.NoError(t, pgstore.Migrate(t.Context(), p.pool, &pgstore.Options{Schema: tenant}))
				if noMigration {
					require.NoError(t, pgstore.Migrate(t.Context(), p.pool, nil))
				}
				store, err := pgstore.New(t.Context(), p.pool, &pgstore.Options{NoMigration: noMigration})
				require.NoError(t, err)
				for i, path := range []string{home, tenant, "''", "pg_catalog"} {
					tx := begin(t, p, store)
					require.NoError(t, tx.execute("SET LOCAL search_path = "+path))
					require.NoError(t, errOf(tx.Enqueue(t.Context(), order(i))))
					require.NoError(t, errOf(tx.Enqueue(t.Context(), order(i))), "finds the first")
					require.NoError(t, tx.commit())
				}
				claimed, err := store.Claim(t.Context(), claimOf("w", 100))
				require.NoError(t, err)
				assert.Len(t, claimed.Changes, 4)
			})
		}
	}
}

// D28: a role of the caller's transaction without rights on the tables is PostgreSQL's error, not a lost intent.
func TestSearchPath_role(t *testing.T) {
	t.Parallel()
	p := newPlace(t, postgrestest.Open(t), nil)
	tx := beginPGX(t, p, newStore(t, p.pool))
	err := tx.execute("SET LOCAL ROLE pg_monitor")
	if err == nil {
		err = errOf(tx.Enqueue(t.Context(), order(0)))
	}
	assert.True(t, pgkit.HasCode(err, "42501"), "insufficient_privilege: %v", err)
	require.NoError(t, tx.rollback())
}

// TestInvalidSchema is refused before the database is asked.
func TestInvalidSchema(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("s", 64), "a\x00b", "\xff"} {
		options := &pgstore.Options{Schema: name}
		require.ErrorIs(t, errOf(pgstore.New(t.Context(), nil, options)), durable.ErrInvalid)
		require.ErrorIs(t, pgstore.Migrate(t.Context(), nil, options), durable.ErrInvalid)
		require.ErrorIs(t, errOf(pgstore.Schema(options, 0)), durable.ErrInvalid)
	}
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }

// ending is a transaction of the caller's.
type ending struct {
	durable.Outbox

	commit, rollback func() error
}

// D6: what two transactions enqueue is there when each of them commits, in whichever order,
// and never before; what a third has enqueued and rolled back never is. No claim waits for
// any of them, and none has gone past what commits later under an earlier id.
func TestCommitsInReverseOrder(t *testing.T) {
	pool := newPool(t, postgrestest.Open(t), nil)
	store := newStore(t, pool)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for name, begin := range map[string]func() ending{
		"pgx": func() ending {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			ctx := context.WithoutCancel(t.Context())
			return ending{store.WithTx(tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }}
		},
		"database/sql": func() ending {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			return ending{store.WithSQLTx(tx), tx.Commit, tx.Rollback}
		},
	} {
		t.Run(name, func(t *testing.T) {
			claimed := func() (keys []string) {
				got, err := store.Claim(t.Context(), claimOf("w", 100))
				require.NoError(t, err)
				for i := range got.Changes {
					keys = append(keys, got.Changes[i].Record.ID.Key)
				}
				return keys
			}
			enqueue := func(o ending, key string) {
				in := order(0)
				in.Operation, in.Key = name, key
				receipt, err := o.Enqueue(t.Context(), in)
				require.NoError(t, err)
				assert.False(t, receipt.Existing)
			}
			first, second, never := begin(), begin(), begin()
			enqueue(first, "first")
			enqueue(never, "never")
			enqueue(second, "second")
			assert.Empty(t, claimed(), "nothing is committed")
			require.NoError(t, second.commit())
			assert.Equal(t, []string{"second"}, claimed())
			assert.Empty(t, claimed())
			require.NoError(t, first.commit())
			assert.Equal(t, []string{"first"}, claimed())
			require.NoError(t, never.rollback())
			assert.Empty(t, claimed())
		})
	}
}

// TestClaim_waitsForNoLock: what a transaction of the caller's keeps locked is passed over.
func TestClaim_waitsForNoLock(t *testing.T) {
	t.Parallel()
	pool := newPool(t, postgrestest.Open(t), nil)
	store := newStore(t, pool)
	applyAll(t, store, batch(0, 3))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.WithTx(tx).Cancel(t.Context(), order(0).ID))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	claimed, err := store.Claim(ctx, claimOf("w", 100))
	require.NoError(t, err)
	assert.Len(t, claimed.Changes, 2)
	require.NoError(t, tx.Rollback(t.Context()))
	claimed, err = store.Claim(t.Context(), claimOf("w", 100))
	require.NoError(t, err)
	assert.Len(t, claimed.Changes, 1)
}
