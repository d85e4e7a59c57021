package pgstore_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestSweep_lockedRecords: locked records are left for the next sweep.
func TestSweep_lockedRecords(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		pool := newPool(t, dsn, nil)
		require.NoError(t, fill(t.Context(), pool, 10))
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT FROM idempotency_records ORDER BY expires LIMIT 3 FOR KEY SHARE`)
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, want := range []int{4, 3, 0} {
			n, err := store.Sweep(ctx, 4)
			require.NoError(t, err)
			assert.Equal(t, want, n)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		n, err := store.Sweep(ctx, 4)
		require.NoError(t, err)
		assert.Equal(t, 3, n)
	})
}

// BenchmarkSweep measures the claims of four clients, in turn without and with a running
// Sweeper. Each iteration adds 50,000 expired records:
//
//	go test -run '^$' -bench Sweep -benchtime 20x .
//
// With -short it only tests that it runs.
func BenchmarkSweep(b *testing.B) {
	const clients = 4
	rows := 50_000
	if testing.Short() {
		rows = 500
	}
	pool := newPool(b, postgrestest.Open(b), func(c *pgxpool.Config) { c.MaxConns, c.MinConns = 10, 10 })
	store := newStore(b, pool)
	require.NoError(b, fill(b.Context(), pool, b.N*rows))
	_, err := pool.Exec(b.Context(), `ANALYZE idempotency_records`)
	require.NoError(b, err)
	b.ResetTimer()

	sweeps := &countingSweeps{Store: store}
	var quiet, swept latencies
	// Until all is swept. A slow machine may give up.
	giveUp := time.Now().Add(time.Duration(b.N) * 10 * time.Second)
	for n := int64(0); sweeps.deleted.Load() < int64(b.N*rows) && time.Now().Before(giveUp); {
		n += quiet.claim(b, store, clients, n)
		ctx, cancel := context.WithCancel(b.Context())
		var sweeping sync.WaitGroup
		sweeping.Go(func() { _ = (&idempotency.Sweeper{Store: sweeps}).Run(ctx) })
		n += swept.claim(b, store, clients, n)
		cancel()
		sweeping.Wait()
	}
	b.ReportMetric(quiet.quantile(0.99).Seconds()*1e3, "quiet-p99-ms")
	b.ReportMetric(swept.quantile(0.99).Seconds()*1e3, "swept-p99-ms")
	b.ReportMetric(float64(swept.quantile(0.99))/float64(quiet.quantile(0.99)), "p99-ratio")
	b.ReportMetric(float64(swept.quantile(0.5))/float64(quiet.quantile(0.5)), "p50-ratio")
	b.ReportMetric(float64(sweeps.deleted.Load())/sweeps.took.Seconds(), "rows/s-of-sweep")
	b.ReportMetric(float64(sweeps.deleted.Load()), "rows-swept")
	b.ReportMetric(sweeps.longest.Seconds()*1e3, "longest-batch-ms")
}

// countingSweeps is a store that counts the swept records.
type countingSweeps struct {
	driver.Store

	deleted       atomic.Int64
	took, longest time.Duration
}

func (s *countingSweeps) Sweep(ctx context.Context, limit int) (int, error) {
	began := time.Now()
	// A batch is not canceled, because its size would be unknown.
	n, err := s.Store.Sweep(context.WithoutCancel(ctx), limit)
	s.deleted.Add(int64(n))
	s.took += time.Since(began)
	s.longest = max(s.longest, time.Since(began))
	return n, err
}

// latencies are the latencies of claims.
type latencies []time.Duration

// claim makes claims for half a second, and returns their number.
func (l *latencies) claim(b *testing.B, store *pgstore.Store, clients int, first int64) int64 {
	b.Helper()
	took := make([][]time.Duration, clients)
	var n atomic.Int64
	until := time.Now().Add(500 * time.Millisecond)
	atOnce(clients, func(i int) {
		for time.Now().Before(until) {
			claim := benchClaim(benchKey(first + n.Add(1)))
			began := time.Now()
			if _, err := store.Reserve(context.Background(), claim); err != nil {
				b.Error(err)
				return
			}
			took[i] = append(took[i], time.Since(began))
		}
	})
	*l = append(*l, slices.Concat(took...)...)
	return n.Load()
}

func (l latencies) quantile(q float64) time.Duration {
	slices.Sort(l)
	return l[int(q*float64(len(l)-1))]
}
