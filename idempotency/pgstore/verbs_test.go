package pgstore_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// Answering a duplicate writes nothing into the log of the database. What others
// write there (a checkpoint, the sweep of a page) comes now and then, so that one
// try of several must show it.
func TestReplayWritesNothing(t *testing.T) {
	for _, f := range flavors { // one after the other: they have the same log
		dsn := postgrestest.Open(t)
		store, pool := f.store(t, dsn), newPool(t, dsn, nil)
		finished := newClaim("finished")
		require.NoError(t, store.Complete(t.Context(), acquire(t, store, finished), completed))
		running := newClaim("running")
		acquire(t, store, running)

		assert.Eventually(t, func() bool {
			before := walPosition(t, pool)
			for range 50 {
				for claim, want := range map[*idempotency.Claim]idempotency.Decision{&finished: idempotency.Done, &running: idempotency.Busy} {
					again := *claim
					again.Owner = idempotency.NewOwner()
					reservation, err := store.Reserve(t.Context(), again)
					if !assert.NoError(t, err) || !assert.Equal(t, want, reservation.Decision) {
						return false
					}
				}
			}
			return walPosition(t, pool) == before
		}, 20*time.Second, time.Millisecond, f.name)
	}
}

func walPosition(t *testing.T, pool *pgxpool.Pool) (position string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&position))
	return position
}

// Only a joined claim returns before it is on disk, and the setting ends with it.
// The server flushes by itself every 200 ms, and writes by itself too, so that most
// tries must show it, but not all.
func TestFlushing(t *testing.T) {
	pool := newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	store := newStore(t, pool)
	unflushed := func(claim idempotency.Claim) bool {
		acquire(t, store, claim)
		var behind bool
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()`).Scan(&behind))
		return behind
	}
	count := 0
	for i := range 20 {
		claim := newClaim(fmt.Sprint("joined ", i))
		claim.Joined, claim.Lease, claim.Takeover = true, time.Microsecond, idempotency.Reexecute
		if unflushed(claim) {
			count++
		}
		claim.Owner = idempotency.NewOwner()
		if unflushed(claim) {
			count++
		}
	}
	assert.Greater(t, count, 20, "new ones and takeovers")
	count = 0
	for i := range 20 {
		if unflushed(newClaim(fmt.Sprint("detached ", i))) {
			count++
		}
	}
	assert.Less(t, count, 10, "what others write is seen too")
	assert.Equal(t, map[string]string{"synchronous_commit": "on", "lock_timeout": "0"}, settings(t, pool))
}

// A hundred duplicates of a request that is being executed are told so at once, over
// few connections, and also when joined work has gone on for longer than its lease.
func TestDuplicatesAreToldAtOnce(t *testing.T) {
	const duplicates, limit = 100, 50 * time.Millisecond
	pool := newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.MaxConns, c.MinConns = 10, 10 })
	store := newStore(t, pool)
	detached := newClaim("detached")
	acquire(t, store, detached)
	joined := newClaim("joined")
	joined.Joined, joined.Lease = true, time.Microsecond
	tx, err := store.Begin(t.Context(), acquire(t, store, joined), 0)
	require.NoError(t, err)

	for _, claim := range []idempotency.Claim{detached, joined} {
		t.Run(claim.Key, func(t *testing.T) {
			claim.Takeover = idempotency.Reexecute
			var longest time.Duration
			// The limit is for a machine that does nothing else.
			for range 20 {
				if longest = slowest(t, store, claim, duplicates); longest < limit {
					break
				}
			}
			t.Logf("the slowest of %d took %v", duplicates, longest)
			assert.Less(t, longest, limit)
			assert.LessOrEqual(t, pool.Stat().AcquiredConns(), int32(1), "only joined work has one")
		})
	}
	require.NoError(t, tx.Rollback(t.Context()))
}

func slowest(t *testing.T, store *pgstore.Store, claim idempotency.Claim, n int) time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	atOnce(n, func(i int) {
		c := claim
		c.Owner = idempotency.NewOwner()
		began := time.Now()
		reservation, err := store.Reserve(context.Background(), c)
		took[i] = time.Since(began)
		assert.NoError(t, err)
		assert.Equal(t, idempotency.Busy, reservation.Decision)
	})
	var longest time.Duration
	for _, d := range took {
		longest = max(longest, d)
	}
	return longest
}

// An operation from its beginning to its end changes no index: the end is written
// beside the beginning.
func TestEndsAreWrittenInPlace(t *testing.T) {
	pool := newPool(t, postgrestest.Open(t), nil)
	store := newStore(t, pool)
	// All are under way at once, so that the pages are as full as they get.
	const operations = 200
	leases := make([]idempotency.Lease, operations)
	for i := range leases {
		leases[i] = acquire(t, store, newClaim(fmt.Sprint(i)))
	}
	for _, lease := range leases {
		require.NoError(t, store.Renew(t.Context(), lease, time.Hour))
	}
	for _, lease := range leases {
		require.NoError(t, store.Complete(t.Context(), lease, completed))
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var updates, hot int
		err := pool.QueryRow(context.Background(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
			WHERE relid = 'idempotency_records'::regclass`).Scan(&updates, &hot)
		require.NoError(c, err)
		assert.Equal(c, 2*operations, updates)
		// Not all of them: what another database's long transaction may still see is not
		// cleared from a page, and takes the place of what comes next.
		assert.Greater(c, hot, 2*operations*8/10)
	}, 10*time.Second, 20*time.Millisecond)
}

// times is a tracer that looks for times among the arguments of statements.
type times struct {
	mu   sync.Mutex
	seen []time.Time
}

func (s *times) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.look(data.Args)
	return ctx
}

func (*times) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *times) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		s.look(q.Arguments)
	}
	return ctx
}

func (*times) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*times) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (s *times) look(args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, arg := range args {
		if at, ok := arg.(time.Time); ok {
			s.seen = append(s.seen, at)
		}
	}
}

// The application's clock may show what it likes, for it is never sent: the one time
// that is, is the database's own, to say which lease is taken over.
func TestNoClockButTheDatabases(t *testing.T) {
	tracer := &times{}
	pool := newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
	store := newStore(t, pool)
	_, tx := begin(t, store, "joined")
	require.NoError(t, tx.Commit(t.Context(), completed))
	lease := acquire(t, store, newClaim("detached"))
	require.NoError(t, store.Renew(t.Context(), lease, time.Hour))
	require.NoError(t, store.Release(t.Context(), lease))
	_, err := store.Sweep(t.Context(), 10)
	require.NoError(t, err)
	assert.Empty(t, tracer.seen)

	before, err := store.Load(t.Context(), lease.ID)
	require.NoError(t, err)
	lease = acquire(t, store, newClaim("detached"))
	require.NoError(t, store.Complete(t.Context(), lease, completed))
	require.Len(t, tracer.seen, 1)
	assert.True(t, tracer.seen[0].Equal(before.LeaseExpires))
}

// PgBouncer, and proxies like it, may want statements that are not prepared.
func TestModesOfExecution(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			dsn := postgrestest.Open(t)
			count := effects(t, dsn)
			pool := newPool(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			store := newStore(t, pool)
			lease, tx := begin(t, store, "it's \\ a 'key'")
			require.NoError(t, insert(t.Context(), tx.Value(), "row"))
			outcome := completed
			outcome.Result = idempotency.Result{
				Code: math.MaxInt, Header: map[string][]string{"X": {"\xff'\x00"}}, Body: []byte{0, 1, 255}, Reference: "\xff\x00",
			}
			require.NoError(t, tx.Commit(t.Context(), outcome))
			record, err := store.Load(t.Context(), lease.ID)
			require.NoError(t, err)
			assert.Equal(t, outcome.Result, record.Result)
			n, err := count(t.Context(), "row")
			require.NoError(t, err)
			assert.Equal(t, 1, n)

			claim := newClaim("taken over")
			claim.Lease, claim.Takeover = time.Microsecond, idempotency.Reexecute
			lost := acquire(t, store, claim)
			claim.Owner, claim.Lease = idempotency.NewOwner(), time.Hour
			lease = acquire(t, store, claim)
			require.ErrorIs(t, store.Complete(t.Context(), lost, completed), idempotency.ErrLeaseLost)
			require.NoError(t, store.Renew(t.Context(), lease, time.Minute))
			require.NoError(t, store.Release(t.Context(), lease))
			_, err = store.Begin(t.Context(), lease, time.Second)
			require.ErrorIs(t, err, idempotency.ErrLeaseLost)
			_, err = store.Sweep(t.Context(), 10)
			require.NoError(t, err)
		})
	}
}
