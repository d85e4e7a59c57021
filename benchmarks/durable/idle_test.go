package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// BenchmarkIdle is how long after its transaction's commit the work of an intent begins,
// where there is nothing else to do: woken by Wake, or by River's notification, both as
// by default.
func BenchmarkIdle(b *testing.B) {
	ctx := b.Context()
	h, p := newHouse(b), newPeer(b)
	sent, done := make(chan time.Time, 1), make(chan struct{}, 1)
	now := func() { sent <- time.Now() }

	engine := &durable.Engine{Gateways: map[string]durable.Gateway{"psp": gatewayFunc(func(*durable.Send) { now() })}}
	b.Cleanup(h.run(engine, done))

	config := queue(100)
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(context.Context, *river.Job[args]) error {
		now()
		return nil
	}))
	b.Cleanup(run(b, p.pool, config, done))

	var ours, theirs []float64
	once := func(all *[]float64, in *pgxpool.Pool, enqueue func(tx pgx.Tx) error) {
		require.NoError(b, pgx.BeginFunc(ctx, in, enqueue))
		began := time.Now()
		engine.Wake()
		*all = append(*all, float64((<-sent).Sub(began).Microseconds())/1000)
		interleave.Await(b, done, 1)
	}
	for b.Loop() {
		for range interleave.Size(10) {
			once(&ours, h.pool, func(tx pgx.Tx) error {
				_, err := h.store.WithTx(tx).Enqueue(ctx, h.intent())
				return err
			})
			once(&theirs, p.pool, func(tx pgx.Tx) error {
				_, err := p.client.InsertTx(ctx, tx, plain(), nil)
				return err
			})
		}
	}
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p95", 0.95}} {
		b.ReportMetric(interleave.Quantile(ours, q.q), "durable-"+q.name+"-ms")
		b.ReportMetric(interleave.Quantile(theirs, q.q), "river-"+q.name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}
