package riverwork_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/durable/riverwork"
)

// A job sends its intent, snoozes until the intent is due again, and ends with the intent.
// The loop does what River does.
func ExampleWorker() {
	engine := &durable.Engine{
		Store:        new(durable.Memory), // for tests; use pgstore
		Policy:       durable.Schedule{Backoff: resilienthttp.Constant(50 * time.Millisecond)},
		PollInterval: 10 * time.Millisecond,
		Gateways: map[string]durable.Gateway{
			"psp": gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				if s.Number == 1 {
					return durable.Outcome{Class: durable.ClassFailed}
				}
				return durable.Outcome{Class: durable.ClassSucceeded}
			}),
		},
	}
	ctx := context.Background()
	intent := pay("invoice:1")
	if _, err := engine.Enqueue(ctx, intent); err != nil {
		fmt.Println(err)
	}

	worker := &riverwork.Worker{Engine: engine}
	job := &river.Job[riverwork.Args]{Args: riverwork.Args(intent.ID)}
	for {
		err := worker.Work(ctx, job)
		record, _ := engine.Find(ctx, intent.ID)
		fmt.Println("the intent is", record.State)
		var snooze *river.JobSnoozeError
		if !errors.As(err, &snooze) {
			break
		}
		<-time.After(snooze.Duration)
	}

	// Output:
	// the intent is waiting
	// the intent is done
}

// An order and its charge are one transaction, and the charge's job with them.
func ExampleInsertTx() { //nolint:testableexamples // It needs a PostgreSQL with River's tables.
	charge := func(ctx context.Context, pool *pgxpool.Pool, gateways map[string]durable.Gateway, intent durable.Intent) error {
		store, err := pgstore.New(ctx, pool, nil)
		if err != nil {
			return err
		}
		workers := river.NewWorkers()
		river.AddWorker(workers, &riverwork.Worker{Engine: &durable.Engine{Store: store, Gateways: gateways}})
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}, Workers: workers,
		})
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		sweeper := &durable.Engine{Store: store, Gateways: gateways, PollInterval: time.Minute}
		go func() { _ = sweeper.Run(ctx) }() // Run returns an error only for invalid fields

		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", intent.ID.Key); err != nil {
			return err
		}
		if _, err := riverwork.InsertTx(ctx, client, tx, store.WithTx(tx), intent, nil); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	_ = charge
}
