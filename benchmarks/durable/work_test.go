package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/durable/riverwork"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// BenchmarkWork is the work of what does nothing, and waits in the database when it
// begins: each intent claimed, journaled, sent and its outcome stored; each job of River's
// fetched, worked and completed, with as many workers as its own benchmark has, with as
// many as durable's default, and with River's defaults beside; and intents in River's jobs.
// Time begins when the client has started, and with the Engine's start.
func BenchmarkWork(b *testing.B) {
	n := interleave.Size(6000)
	h, p, both := newHouse(b), newPeer(b), newHouse(b)
	migrate(b, both.pool)
	interleave.Rates(b, 1,
		interleave.Contender{Name: "durable", Work: func() (int, time.Duration) { return h.work(n) }},
		interleave.Contender{Name: "river", Work: func() (int, time.Duration) { return p.work(n, tuned(2000)) }},
		interleave.Contender{Name: "river-100", Work: func() (int, time.Duration) { return p.work(n, tuned(100)) }},
		interleave.Contender{Name: "river-default", Work: func() (int, time.Duration) { return p.work(n/6, queue(100)) }},
		interleave.Contender{Name: "riverwork", Work: func() (int, time.Duration) { return both.riverwork(n / 12) }},
	)
}

func (h *house) work(n int) (int, time.Duration) {
	h.b.Helper()
	for left := n; left > 0; left -= 1000 {
		h.batch(min(left, 1000))
	}
	done := make(chan struct{}, n)
	began := time.Now()
	stop := h.run(&durable.Engine{Gateways: nothing()}, done)
	interleave.Await(h.b, done, n)
	took := time.Since(began)
	stop()
	return n, took
}

func (p *peer) work(n int, config *river.Config) (int, time.Duration) {
	p.b.Helper()
	for left := n; left > 0; left -= 1000 {
		p.batch(min(left, 1000), plain)
	}
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(context.Context, *river.Job[args]) error { return nil }))
	return n, drained(p.b, p.pool, config, n)
}

// drained is how long a client takes for all n jobs that wait.
func drained(b *testing.B, pool *pgxpool.Pool, config *river.Config, n int) time.Duration {
	b.Helper()
	done := make(chan struct{}, n)
	stop := run(b, pool, config, done)
	began := time.Now()
	interleave.Await(b, done, n)
	took := time.Since(began)
	stop()
	return took
}

// nothing is a gateway that succeeds at once.
func nothing() map[string]durable.Gateway {
	return map[string]durable.Gateway{"psp": gatewayFunc(func(*durable.Send) {})}
}

// riverwork works intents in River's jobs, both in one database.
func (h *house) riverwork(n int) (int, time.Duration) {
	h.b.Helper()
	client := newClient(h.b, h.pool, &river.Config{})
	var jobs []river.InsertManyParams
	events := make([]driver.Event, n)
	for i := range events {
		events[i] = driver.Event{Kind: driver.EventEnqueue, Intent: h.intent()}
		jobs = append(jobs, river.InsertManyParams{Args: riverwork.Args(events[i].Intent.ID)})
	}
	h.apply(events)
	_, err := client.InsertMany(h.b.Context(), jobs)
	require.NoError(h.b, err)

	config := tuned(100)
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, &riverwork.Worker{Engine: &durable.Engine{Store: h.store, Gateways: nothing()}})
	return n, drained(h.b, h.pool, config, n)
}
