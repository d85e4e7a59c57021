package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/riverwork"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// BenchmarkInsert inserts batches, one commit each. An intent is unique by its ID, as
// river-unique's jobs by their arguments.
func BenchmarkInsert(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint("batch=", n), func(b *testing.B) {
			h, p := newHouse(b), newPeer(b)
			timed := func(batch func()) func() (int, time.Duration) {
				return func() (int, time.Duration) {
					began := time.Now()
					batch()
					return n, time.Since(began)
				}
			}
			interleave.Rates(b, interleave.Size(8),
				interleave.Contender{Name: "durable", Work: timed(func() { h.batch(n) })},
				interleave.Contender{Name: "river", Work: timed(func() { p.batch(n, plain) })},
				interleave.Contender{Name: "river-unique", Work: timed(func() {
					p.batch(n, func() river.JobArgs { return p.unique() })
				})},
			)
		})
	}
}

// BenchmarkWithTx inserts a row of the caller, and an intent, a job or both, in one
// transaction.
func BenchmarkWithTx(b *testing.B) {
	h, p, both := newHouse(b), newPeer(b), newHouse(b)
	migrate(b, both.pool)
	client := newClient(b, both.pool, &river.Config{})
	const n = 25
	orders := func(pool *pgxpool.Pool, also func(ctx context.Context, tx pgx.Tx) error) func() (int, time.Duration) {
		ctx := b.Context()
		require.NoError(b, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "CREATE TABLE orders (id int)")
			return err
		}))
		return func() (int, time.Duration) {
			began := time.Now()
			for i := range n {
				require.NoError(b, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", i); err != nil {
						return err
					}
					return also(ctx, tx)
				}))
			}
			return n, time.Since(began)
		}
	}
	interleave.Rates(b, interleave.Size(12),
		interleave.Contender{Name: "durable", Work: orders(h.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := h.store.WithTx(tx).Enqueue(ctx, h.intent())
			return err
		})},
		interleave.Contender{Name: "river", Work: orders(p.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := p.client.InsertTx(ctx, tx, plain(), nil)
			return err
		})},
		interleave.Contender{Name: "riverwork", Work: orders(both.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := riverwork.InsertTx(ctx, client, tx, both.store.WithTx(tx), both.intent(), nil)
			return err
		})},
		interleave.Contender{Name: "row-alone", Work: orders(newPool(b), func(context.Context, pgx.Tx) error { return nil })},
	)
}
