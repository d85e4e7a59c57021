package pgstore_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestClaim_duplicateWritesNothing compares the position of the write-ahead log. Other
// processes write there too (a checkpoint), so one try of several must show it.
func TestClaim_duplicateWritesNothing(t *testing.T) {
	for _, f := range flavors { // one after the other, because they share the log
		dsn := postgrestest.Open(t)
		store, pool := f.store(t, dsn), newPool(t, dsn, nil)
		finished := newClaim("finished")
		require.NoError(t, store.Complete(t.Context(), acquire(t, store, finished), completed))
		running := newClaim("running")
		acquire(t, store, running)

		assert.Eventually(t, func() bool {
			before := walPosition(t, pool)
			for range 20 {
				for claim, want := range map[*idempotency.Claim]idempotency.Decision{&finished: idempotency.DecisionDone, &running: idempotency.DecisionInProgress} {
					again := *claim
					again.Owner = rand.Text()
					reservation, err := store.Reserve(t.Context(), again)
					if !assert.NoError(t, err) || !assert.Equal(t, want, reservation.Decision) {
						return false
					}
					reservation, _, err = store.Begin(t.Context(), again, time.Minute)
					if !assert.NoError(t, err) || !assert.Equal(t, want, reservation.Decision) {
						return false
					}
				}
			}
			return walPosition(t, pool) == before
		}, patience, time.Millisecond, f.name)
	}
}

func walPosition(t *testing.T, pool *pgxpool.Pool) (position string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&position))
	return position
}

// TestStore_commitsDurably records the level of synchronous_commit at each commit. It is
// on, or stricter if the session's is.
func TestStore_commitsDurably(t *testing.T) {
	for _, f := range flavors {
		for _, level := range []string{"off", "local", "remote_write", "on", "remote_apply"} {
			t.Run(f.name+"/"+level, func(t *testing.T) {
				dsn := postgrestest.Open(t)
				admin := newPool(t, dsn, nil)
				_ = effects(t, dsn)
				levels(t, admin)
				store := f.store(t, withParameter(t, dsn, "synchronous_commit", level))
				ctx := t.Context()

				lease := acquire(t, store, newClaim("claim"))
				require.NoError(t, store.Renew(ctx, lease, time.Hour))
				require.NoError(t, store.Release(ctx, lease))
				lease = acquire(t, store, newClaim("claim")) // takes over
				require.NoError(t, store.Complete(ctx, lease, completed))
				dead := newClaim("dead")
				dead.Lease = time.Microsecond
				acquire(t, store, dead)
				_, err := store.Reserve(ctx, newClaim("dead")) // marks it unknown
				require.NoError(t, err)
				dead.Key = "dead too"
				acquire(t, store, dead)
				require.NoError(t, errOf(store.Reap(ctx, 10)))
				_, tx := begin(t, store, "transactional")
				require.NoError(t, tx.Commit(ctx, completed))
				_, tx = begin(t, store, "rolled back and recorded")
				require.NoError(t, tx.RollbackAndRecord(ctx, completed))

				want := cmp.Or(map[string]string{"remote_apply": "remote_apply"}[level], "on")
				rows, err := admin.Query(ctx, `SELECT what || ' ' || level FROM levels ORDER BY 1`)
				require.NoError(t, err)
				got, err := pgx.CollectRows(rows, pgx.RowTo[string])
				require.NoError(t, err)
				assert.Equal(t, slices.Concat(slices.Repeat([]string{"INSERT " + want}, 5), slices.Repeat([]string{"UPDATE " + want}, 6)), got)
			})
		}
	}
}

// levels makes a trigger that records synchronous_commit at the end of each transaction.
func levels(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_ = newStore(t, pool)
	for _, statement := range []string{
		`CREATE TABLE levels (what text, level text)`,
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
			$$BEGIN INSERT INTO levels VALUES (TG_OP, current_setting('synchronous_commit')); RETURN NULL; END$$`,
		`CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON idempotency_records
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key <> '') EXECUTE FUNCTION note()`, // what is reaped may be found again
	} {
		require.NoError(t, errOf(pool.Exec(t.Context(), statement)))
	}
}

// TestReserve_tableLocked locks the table for a moment, as PostgreSQL does when it grows.
// Claims of new keys wait, also with a lock_timeout, and are granted.
func TestReserve_tableLocked(t *testing.T) {
	t.Parallel()
	for _, f := range flavors {
		for _, timeout := range []string{"0", "20ms"} {
			t.Run(f.name+"/"+timeout, func(t *testing.T) {
				t.Parallel()
				dsn := postgrestest.Open(t)
				store := f.store(t, withParameter(t, dsn, "lock_timeout", timeout))
				blocker, err := newPool(t, dsn, nil).Begin(t.Context())
				require.NoError(t, err)
				require.NoError(t, errOf(blocker.Exec(t.Context(), `LOCK TABLE idempotency_records IN EXCLUSIVE MODE`)))
				var all sync.WaitGroup
				for i := range 8 {
					all.Go(func() {
						reservation, err := store.Reserve(context.Background(), newClaim(fmt.Sprint(i)))
						for err != nil && strings.Contains(err.Error(), "the pool had no connection") { // a busy machine needs a second to open one
							reservation, err = store.Reserve(context.Background(), newClaim(fmt.Sprint(i)))
						}
						assert.NoError(t, err)
						assert.Equal(t, idempotency.DecisionAcquired, reservation.Decision)
					})
				}
				<-time.After(50 * time.Millisecond) // longer than a lock_timeout, and far less than all tries
				require.NoError(t, blocker.Rollback(t.Context()))
				all.Wait()
			})
		}
	}
}

// TestReserve_duplicatesOfRunningExecution sends a hundred duplicates over few
// connections. None waits for the end of the execution.
func TestReserve_duplicatesOfRunningExecution(t *testing.T) {
	const duplicates = 100
	var sent sentCounter
	pool := newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) {
		c.MaxConns, c.MinConns, c.ConnConfig.Tracer = 10, 10, &sent
	})
	store := newStore(t, pool)
	pgstore.SetClaimWait(store, patience) // on a busy machine the last of them waits for more than a second
	leased := newClaim("leased")
	acquire(t, store, leased)
	transactional := newClaim("transactional")
	_, tx := beginClaim(t, store, transactional)

	for _, claim := range []idempotency.Claim{leased, transactional} {
		t.Run(claim.Key, func(t *testing.T) {
			claim.Takeover = idempotency.Reexecute
			sent.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 10*patience) // a claim waits for a tenth of it
			defer cancel()
			atOnce(duplicates, func(int) {
				c := claim
				c.Owner = rand.Text()
				reservation, err := store.Reserve(ctx, c)
				assert.NoError(t, err)
				assert.Equal(t, idempotency.DecisionInProgress, reservation.Decision)
			})
			assert.LessOrEqual(t, sent.Load(), int64(3*duplicates), "one try reads, inserts and looks for a transaction")
			assert.LessOrEqual(t, pool.Stat().AcquiredConns(), int32(1), "only transactional work holds a connection")
		})
	}
	require.NoError(t, tx.Rollback(t.Context()))
}

// sentCounter is a tracer that counts statements.
type sentCounter struct{ atomic.Int64 }

func (c *sentCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

func (*sentCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestStore_usesDatabaseClock looks at the times that are sent: all are the database's.
func TestStore_usesDatabaseClock(t *testing.T) {
	var mu sync.Mutex
	var seen []time.Time
	collect := tracer{ended: func(error) {}, statement: func(args []any) {
		mu.Lock()
		defer mu.Unlock()
		for _, arg := range args {
			switch at := arg.(type) {
			case time.Time:
				seen = append(seen, at)
			case *time.Time:
				if at != nil {
					seen = append(seen, *at)
				}
			}
		}
	}}
	store := newStore(t, newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = collect }))
	_, tx := begin(t, store, "transactional")
	require.NoError(t, tx.Commit(t.Context(), completed))
	record, err := store.Load(t.Context(), newClaim("transactional").ID)
	require.NoError(t, err)
	require.Len(t, seen, 2, "the start of the transaction, and the expiry, by the database's clock")
	assert.True(t, seen[0].Equal(record.Started))
	assert.True(t, seen[1].Equal(record.Started.Add(newClaim("").TTL)))
	seen = nil
	lease := acquire(t, store, newClaim("leased"))
	require.NoError(t, store.Renew(t.Context(), lease, time.Hour))
	require.NoError(t, store.Release(t.Context(), lease))
	require.NoError(t, errOf(store.Sweep(t.Context(), 10)))
	require.NoError(t, errOf(store.Reap(t.Context(), 10)))
	assert.Empty(t, seen)

	claim := newClaim("dead")
	claim.Lease, claim.Takeover = time.Microsecond, idempotency.Reexecute
	lease = acquire(t, store, claim)
	before, err := store.Load(t.Context(), lease.ID)
	require.NoError(t, err)
	lease = acquire(t, store, newClaim("dead"))
	require.NoError(t, store.Complete(t.Context(), lease, completed))
	require.Len(t, seen, 1)
	assert.True(t, seen[0].Equal(before.LeaseExpires))
}

// TestStore_queryExecModes uses each mode of pgx: some proxies know no prepared
// statements.
func TestStore_queryExecModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			dsn := postgrestest.Open(t)
			count := effects(t, dsn)
			pool := newPool(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			store := newStore(t, pool)
			begun, tx := begin(t, store, "it's \\ a 'key'")
			require.NoError(t, insert(t.Context(), tx.Value(), "row"))
			outcome := completed
			outcome.Result = idempotency.Result{
				Code: math.MaxInt, Header: map[string][]string{"X": {"\xff'\x00"}}, Body: []byte{0, 1, 255}, Reference: "\xff\x00",
			}
			require.NoError(t, tx.Commit(t.Context(), outcome))
			record, err := store.Load(t.Context(), begun.ID)
			require.NoError(t, err)
			assert.Equal(t, outcome.Result, record.Result)
			wantRows(t, count, "row", 1)

			claim := newClaim("taken over")
			claim.Lease, claim.Takeover = time.Microsecond, idempotency.Reexecute
			lost := acquire(t, store, claim)
			claim.Owner, claim.Lease = rand.Text(), time.Hour
			lease := acquire(t, store, claim)
			require.ErrorIs(t, store.Complete(t.Context(), lost, completed), idempotency.ErrLeaseLost)
			require.NoError(t, store.Renew(t.Context(), lease, time.Minute))
			require.NoError(t, store.Release(t.Context(), lease))
			_, tx = begin(t, store, claim.Key) // replaces the record
			require.NoError(t, execute(tx.Value(), `SELECT 1`))
			require.NoError(t, tx.Commit(t.Context(), outcome))
			for range 2 {
				_, tx = begin(t, store, rand.Text())
				require.Error(t, execute(tx.Value(), `SELECT 1/0`))
				require.NoError(t, tx.RollbackAndRecord(t.Context(), outcome))
			}
			unknown := acquire(t, store, newClaim("unknown"))
			require.NoError(t, store.Complete(t.Context(), unknown, idempotency.Outcome{Status: idempotency.Unknown}))
			unknowns := 0
			for _, err := range store.Unknown(t.Context(), "") {
				require.NoError(t, err)
				unknowns++
			}
			assert.Equal(t, 1, unknowns)
			require.NoError(t, errOf(store.Sweep(t.Context(), 10)))
		})
	}
}
