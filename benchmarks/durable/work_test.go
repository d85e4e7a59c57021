package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/riverwork"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// BenchmarkWork is no-op work with the same number of workers in both libraries. durable
// claims, journals and sends each intent, and records its outcome. River fetches, works and
// completes each job. x-river is the ratio of the rates; x-river-client-cpu and
// x-river-server-cpu are the ratios of the CPU times of the client and of PostgreSQL.
func BenchmarkWork(b *testing.B) {
	for _, workers := range []int{100, 500, 2000} {
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			n := interleave.Size(6000)
			h, p := newHouse(b), newPeer(b)
			ours, theirs := &meter{b: b, pool: h.pool}, &meter{b: b, pool: p.pool}
			interleave.Rates(b, 1,
				interleave.Contender{Name: "durable", Work: func() (int, time.Duration) { return h.work(n, workers, ours) }},
				interleave.Contender{Name: "river", Work: func() (int, time.Duration) { return p.work(n, workers, theirs) }},
			)
			for _, q := range []struct {
				name         string
				ours, theirs []float64
			}{{"client", ours.client, theirs.client}, {"server", ours.server, theirs.server}} {
				b.ReportMetric(interleave.Quantile(q.ours, 0.5)/float64(n)*1e6, "durable-"+q.name+"-cpu-µs")
				b.ReportMetric(interleave.Quantile(interleave.Ratios(q.ours, q.theirs), 0.5), "x-river-"+q.name+"-cpu")
			}
		})
	}
}

// BenchmarkRiverwork compares intents in River's jobs with River's jobs.
func BenchmarkRiverwork(b *testing.B) {
	n := interleave.Size(1000)
	p, both := newPeer(b), newHouse(b)
	migrate(b, both.pool)
	interleave.Rates(b, 1,
		interleave.Contender{Name: "riverwork", Work: func() (int, time.Duration) { return both.riverwork(n) }},
		interleave.Contender{Name: "river", Work: func() (int, time.Duration) { return p.work(n, 100, nil) }},
	)
}

func (h *house) work(n, workers int, m *meter) (int, time.Duration) {
	h.b.Helper()
	for left := n; left > 0; left -= 1000 {
		h.batch(min(left, 1000))
	}
	return drained(h.b, n, m, func(done chan<- struct{}) (stop func()) {
		return h.run(&durable.Engine{Gateways: nothing(), Concurrency: workers}, done)
	})
}

func (p *peer) work(n, workers int, m *meter) (int, time.Duration) {
	p.b.Helper()
	for left := n; left > 0; left -= 1000 {
		p.batch(min(left, 1000), plain)
	}
	config := tuned(workers)
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(context.Context, *river.Job[args]) error { return nil }))
	return drained(p.b, n, m, func(done chan<- struct{}) (stop func()) { return run(p.b, p.pool, config, done) })
}

// drained is the time from the start until all n are done.
func drained(b *testing.B, n int, m *meter, start func(done chan<- struct{}) (stop func())) (int, time.Duration) {
	b.Helper()
	done := make(chan struct{}, n)
	m.begin()
	stop := start(done)
	began := time.Now()
	interleave.Await(b, done, n)
	took := time.Since(began)
	m.end()
	stop()
	return n, took
}

// nothing is a gateway that succeeds at once.
func nothing() map[string]durable.Gateway {
	return map[string]durable.Gateway{"psp": gatewayFunc(func(*durable.Send) {})}
}

// riverwork sends intents in River's jobs, both in one database.
func (h *house) riverwork(n int) (int, time.Duration) {
	h.b.Helper()
	client := newClient(h.b, h.pool, &river.Config{})
	var jobs []river.InsertManyParams
	intents := make([]durable.Intent, n)
	for i := range intents {
		intents[i] = h.intent()
		jobs = append(jobs, river.InsertManyParams{Args: riverwork.Args(intents[i].ID)})
	}
	h.enqueue(intents)
	_, err := client.InsertMany(h.b.Context(), jobs)
	require.NoError(h.b, err)

	config := tuned(100)
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, &riverwork.Worker{Engine: &durable.Engine{Store: h.store, Gateways: nothing()}})
	return drained(h.b, n, nil, func(done chan<- struct{}) (stop func()) { return run(h.b, h.pool, config, done) })
}
