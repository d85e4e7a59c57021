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
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// BenchmarkIdle is the time from a transaction's commit until its intent is sent, on an idle
// Engine. wake uses Wake in the same process. notify commits on another pool, so that the
// database notifies the Engine, as with river. All have their defaults.
func BenchmarkIdle(b *testing.B) {
	ctx := b.Context()
	h, p := newHouse(b), newPeer(b)
	pool, err := pgxpool.NewWithConfig(ctx, h.pool.Config())
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	other, err := pgstore.New(ctx, pool, nil)
	require.NoError(b, err)
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

	var woken, notified, theirs []float64
	once := func(all *[]float64, in *pgxpool.Pool, enqueue func(tx pgx.Tx) error, wake func()) {
		require.NoError(b, pgx.BeginFunc(ctx, in, enqueue))
		began := time.Now()
		wake()
		*all = append(*all, float64((<-sent).Sub(began).Microseconds())/1000)
		interleave.Await(b, done, 1)
	}
	for b.Loop() {
		for range interleave.Size(10) {
			once(&woken, h.pool, func(tx pgx.Tx) error {
				_, err := h.store.WithTx(tx).Enqueue(ctx, h.intent())
				return err
			}, engine.Wake)
			once(&notified, pool, func(tx pgx.Tx) error {
				_, err := other.WithTx(tx).Enqueue(ctx, h.intent())
				return err
			}, func() {})
			once(&theirs, p.pool, func(tx pgx.Tx) error {
				_, err := p.client.InsertTx(ctx, tx, plain(), nil)
				return err
			}, func() {})
		}
	}
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p95", 0.95}} {
		b.ReportMetric(interleave.Quantile(woken, q.q), "wake-"+q.name+"-ms")
		b.ReportMetric(interleave.Quantile(notified, q.q), "notify-"+q.name+"-ms")
		b.ReportMetric(interleave.Quantile(theirs, q.q), "river-"+q.name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}
