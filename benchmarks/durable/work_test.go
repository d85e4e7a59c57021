package durable_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// meter measures the CPU time in seconds of this process and of a pool's server, which must run
// on this machine under Linux. On other systems it measures nothing.
type meter struct {
	b              *testing.B
	pool           *pgxpool.Pool
	client, server []float64 // per round
}

func (m *meter) begin() {
	client, server := m.read()
	m.client, m.server = append(m.client, client), append(m.server, server)
}

func (m *meter) end() {
	client, server := m.read()
	last := len(m.client) - 1
	m.client[last] = client - m.client[last]
	m.server[last] = server - m.server[last]
}

func (m *meter) read() (client, server float64) {
	var backend int
	require.NoError(m.b, m.pool.QueryRow(m.b.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	postmaster := processOf(fmt.Sprintf("/proc/%d/stat", backend)).parent
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		switch p := processOf(file); {
		case p.id == os.Getpid():
			client = p.own
		case p.id == postmaster:
			server += p.own + p.exited
		case p.parent == postmaster:
			server += p.own
		}
	}
	return client, server
}

// process is a process with its CPU time, including children that have exited.
type process struct {
	id, parent  int
	own, exited float64
}

// processOf reads a file like /proc/1/stat. It returns a zero process if the process has exited.
func processOf(file string) (p process) {
	const ticksPerSecond = 100
	text, _ := os.ReadFile(file)
	id, _, _ := strings.Cut(string(text), " ")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return process{}
	}
	numbers := make([]float64, len(fields))
	for i, field := range fields {
		numbers[i], _ = strconv.ParseFloat(field, 64)
	}
	p.id, _ = strconv.Atoi(id)
	p.parent = int(numbers[1])
	p.own, p.exited = (numbers[11]+numbers[12])/ticksPerSecond, (numbers[13]+numbers[14])/ticksPerSecond
	return p
}

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

// BenchmarkWithTx inserts a row of the caller, and an intent or a job, in one transaction.
func BenchmarkWithTx(b *testing.B) {
	h, p := newHouse(b), newPeer(b)
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
	)
}
