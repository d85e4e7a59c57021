package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// kind is one way to execute an operation.
type kind struct {
	name string
	do   func(ctx context.Context, pool *pgxpool.Pool, store *pgstore.Store, n int64) error
}

// kinds write to the same table, with the same payload, and flush alike. raw is what
// one would write by hand who knew that no request comes twice.
var kinds = []kind{
	{"raw", raw},
	{"joined", joined},
	{"detached", detached},
	{"replay", replay},
}

// raw inserts a row and updates it, in one transaction.
func raw(ctx context.Context, pool *pgxpool.Pool, _ *pgstore.Store, n int64) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		claim := benchClaim(n)
		_, err := tx.Exec(ctx, `INSERT INTO idempotency_records (scope, operation, key, fingerprint, status, owner, generation,
				lease_expires, started, updated, expires)
			VALUES ($1, $2, $3, $4, 1, $5, 1, now() + interval '30 seconds', now(), now(), now() + interval '1 day')`,
			claim.Scope, claim.Operation, claim.Key, claim.Fingerprint, claim.Owner)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE idempotency_records SET status = 2, code = $4, header = $5, body = $6, updated = now()
			WHERE scope = $1 AND operation = $2 AND key = $3`,
			claim.Scope, claim.Operation, claim.Key, completed.Result.Code, `{"Content-Type":["application/json"]}`, completed.Result.Body)
		return err
	})
}

func joined(ctx context.Context, _ *pgxpool.Pool, store *pgstore.Store, n int64) error {
	claim := benchClaim(n)
	claim.Joined = true
	reservation, err := store.Reserve(ctx, claim)
	if err != nil {
		return err
	}
	tx, err := store.Begin(ctx, reservation.Record.Lease(), time.Minute)
	if err != nil {
		return err
	}
	return tx.Commit(ctx, completed)
}

func detached(ctx context.Context, _ *pgxpool.Pool, store *pgstore.Store, n int64) error {
	reservation, err := store.Reserve(ctx, benchClaim(n))
	if err != nil {
		return err
	}
	return store.Complete(ctx, reservation.Record.Lease(), completed)
}

func replay(ctx context.Context, _ *pgxpool.Pool, store *pgstore.Store, n int64) error {
	reservation, err := store.Reserve(ctx, benchClaim(-1-n%replayed))
	if err == nil && reservation.Decision != idempotency.Done {
		err = fmt.Errorf("%v, want done", reservation.Decision)
	}
	return err
}

// replayed is how many finished records there are.
const replayed = 1000

func benchClaim(n int64) idempotency.Claim {
	claim := newClaim(fmt.Sprintf("8e03978e-40d5-43e8-bc93-%012d", n))
	claim.Lease = 30 * time.Second
	return claim
}

// BenchmarkStore is the speed of each kind by itself. Compare shows the ratios.
func BenchmarkStore(b *testing.B) {
	pool, store := benchStore(b)
	var next atomic.Int64
	for _, clients := range []int{1, 16, 64} {
		for _, k := range kinds {
			b.Run(fmt.Sprintf("%s/clients=%d", k.name, clients), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				atOnce(clients, func(int) {
					for left.Add(-1) >= 0 {
						if err := k.do(context.Background(), pool, store, next.Add(1)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkCompare runs the kinds in turn, for a fifth of a second each, so that all
// see the same noise, and reports how often each is done for one raw transaction.
func BenchmarkCompare(b *testing.B) {
	const slice = 200 * time.Millisecond
	pool, store := benchStore(b)
	var next atomic.Int64
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			counts := make([]atomic.Int64, len(kinds))
			for range b.N {
				for i, k := range kinds {
					until := time.Now().Add(slice)
					atOnce(clients, func(int) {
						for time.Now().Before(until) {
							if err := k.do(context.Background(), pool, store, next.Add(1)); err != nil {
								b.Error(err)
								return
							}
							counts[i].Add(1)
						}
					})
				}
			}
			for i, k := range kinds {
				b.ReportMetric(float64(counts[i].Load())/slice.Seconds()/float64(b.N), k.name+"/s")
				b.ReportMetric(float64(counts[i].Load())/float64(counts[0].Load()), k.name+"/raw")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchStore(b *testing.B) (*pgxpool.Pool, *pgstore.Store) {
	b.Helper()
	pool := newPool(b, postgrestest.Open(b), func(c *pgxpool.Config) { c.MaxConns, c.MinConns = 64, 64 })
	store := newStore(b, pool)
	for n := range int64(replayed) {
		require.NoError(b, detached(b.Context(), pool, store, -1-n))
	}
	return pool, store
}

// atOnce calls f n times at once, and waits.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
