package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// payload is the payload of an intent and the argument of a job.
const payload = `{"amount": 100, "currency": "EUR", "customer": "cus_4QFJOjw2pOmAGJ"}`

// house is durable with its own file.
type house struct {
	b     *testing.B
	store *sqlitestore.Store
	next  int
}

func newHouse(b *testing.B) *house {
	b.Helper()
	store, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "durable.db"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return &house{b: b, store: store}
}

// batch inserts n intents of 100 tenants, a thousand in a commit.
func (h *house) batch(n int) {
	h.b.Helper()
	intents := make([]durable.Intent, n)
	for i := range intents {
		h.next++
		id := idempotency.ID{Scope: fmt.Sprintf("tenant %02d", h.next%100), Operation: "charge", Key: fmt.Sprint("order ", h.next)}
		intents[i] = durable.Intent{ID: id, Gateway: "psp", Payload: []byte(payload)}
	}
	engine := &durable.Engine{Store: h.store, Gateways: map[string]durable.Gateway{"psp": noop{}}}
	results, err := engine.EnqueueBatch(h.b.Context(), intents)
	require.NoError(h.b, err)
	for i := range results {
		require.NoError(h.b, results[i].Err)
	}
}

type noop struct{}

// Send implements durable.Gateway.
func (noop) Send(context.Context, *durable.Send) durable.Outcome {
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// work is the work of an Engine with its defaults.
func (h *house) work(n int) (int, time.Duration) {
	h.b.Helper()
	h.batch(n)
	done := make(chan struct{}, n)
	engine := &durable.Engine{Store: h.store, Gateways: map[string]durable.Gateway{"psp": noop{}}, Trace: &durable.Trace{
		Changed: func(c *durable.Change) {
			if c.Record.State == durable.StateDone {
				done <- struct{}{}
			}
		},
		Failed: func(err error) { h.b.Error(err) },
	}}
	ctx, cancel := context.WithCancel(h.b.Context())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- engine.Run(ctx) }()
	interleave.Await(h.b, done, n)
	took := time.Since(began)
	cancel()
	require.NoError(h.b, <-ended)
	return n, took
}

// args are the arguments of a no-op job.
type args struct {
	Payload string `json:"payload"`
}

// Kind implements river.JobArgs.
func (args) Kind() string { return "noop" }

// peer is River with its own file.
type peer struct {
	b    *testing.B
	file *sql.DB
}

// newPeer opens a database as in River's documentation, with one connection and flushed
// commits.
func newPeer(b *testing.B) *peer {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "river.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	db.SetMaxOpenConns(1)
	migrator, err := rivermigrate.New(riversqlite.New(db), nil)
	require.NoError(b, err)
	_, err = migrator.Migrate(b.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(b, err)
	return &peer{b: b, file: db}
}

func (p *peer) client(config *river.Config) *river.Client[*sql.Tx] {
	p.b.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	client, err := river.NewClient(riversqlite.New(p.file), config)
	require.NoError(p.b, err)
	return client
}

// batch inserts n jobs in one commit.
func (p *peer) batch(n int) {
	p.b.Helper()
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i].Args = args{payload}
	}
	results, err := p.client(&river.Config{}).InsertMany(p.b.Context(), jobs)
	require.NoError(p.b, err)
	require.Len(p.b, results, n)
}

// work is the work of a client with the configuration of River's benchmark, from its start.
func (p *peer) work(n, senders int) (int, time.Duration) {
	p.b.Helper()
	p.batch(n)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[args]) error { return nil }))
	client := p.client(&river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: senders}},
	})
	events, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: n,
	})
	require.NoError(p.b, client.Start(p.b.Context()))
	began := time.Now()
	interleave.Await(p.b, events, n)
	took := time.Since(began)
	require.NoError(p.b, client.Stop(context.WithoutCancel(p.b.Context())))
	unsubscribe()
	return n, took
}

// BenchmarkWork is no-op work that is in the database at the start.
func BenchmarkWork(b *testing.B) {
	n := interleave.Size(3000)
	h, p := newHouse(b), newPeer(b)
	interleave.Rates(b, 1,
		interleave.Contender{Name: "durable", Work: func() (int, time.Duration) { return h.work(n) }},
		interleave.Contender{Name: "river", Work: func() (int, time.Duration) { return p.work(n, 2000) }},
		interleave.Contender{Name: "river-100", Work: func() (int, time.Duration) { return p.work(n, 100) }},
	)
}

// BenchmarkInsert inserts batches, one commit each.
func BenchmarkInsert(b *testing.B) {
	const n = 100
	h, p := newHouse(b), newPeer(b)
	timed := func(batch func(n int)) func() (int, time.Duration) {
		return func() (int, time.Duration) {
			began := time.Now()
			batch(n)
			return n, time.Since(began)
		}
	}
	interleave.Rates(b, interleave.Size(20),
		interleave.Contender{Name: "durable", Work: timed(h.batch)},
		interleave.Contender{Name: "river", Work: timed(p.batch)},
	)
}
