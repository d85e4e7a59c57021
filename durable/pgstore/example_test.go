package pgstore_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// An order and its charge are one transaction. A rollback removes both.
func ExampleStore_WithTx() { //nolint:testableexamples // it needs a server
	order := func(ctx context.Context, pool *pgxpool.Pool, store *pgstore.Store, id string, euros int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2)", id, euros); err != nil {
				return err
			}
			_, err := store.WithTx(tx).Enqueue(ctx, durable.Intent{
				ID:      idempotency.ID{Scope: "acme", Operation: "POST /charges", Key: id},
				Gateway: "bank", Payload: fmt.Appendf(nil, `{"euros":%d}`, euros),
			})
			return err
		})
	}
	run := func(ctx context.Context, dsn string, bank durable.Gateway) error {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return err
		}
		defer pool.Close()
		store, err := pgstore.New(ctx, pool, nil)
		if err != nil {
			return err
		}
		engine := &durable.Engine{Store: store, Gateways: map[string]durable.Gateway{"bank": bank}}
		if err := order(ctx, pool, store, "order:1", 10); err != nil {
			return err
		}
		engine.Wake() // after the commit, for a Run in this process
		return engine.Run(ctx)
	}
	_ = run // it needs a server
}
