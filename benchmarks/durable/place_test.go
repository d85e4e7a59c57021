package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// connections of each pool.
const connections = 16

func newPool(b *testing.B) *pgxpool.Pool {
	b.Helper()
	config, err := pgxpool.ParseConfig(postgrestest.Open(b))
	require.NoError(b, err)
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	return pool
}

// payload is the payload of an intent and the argument of a job.
const payload = `{"amount": 100, "currency": "EUR", "customer": "cus_4QFJOjw2pOmAGJ"}`

// tenants is the number of tenants.
const tenants = 100

// house is durable with its own schema.
type house struct {
	b     *testing.B
	pool  *pgxpool.Pool
	store *pgstore.Store
	next  int
}

func newHouse(b *testing.B) *house {
	b.Helper()
	pool := newPool(b)
	store, err := pgstore.New(b.Context(), pool, nil)
	require.NoError(b, err)
	return &house{b: b, pool: pool, store: store}
}

// intent returns a new intent, of the tenants in turn.
func (h *house) intent() durable.Intent {
	h.next++
	return durable.Intent{
		ID:      idempotency.ID{Scope: tenant(h.next), Operation: "charge", Key: fmt.Sprint("order ", h.next)},
		Gateway: "psp", Payload: []byte(payload),
	}
}

func tenant(i int) string { return fmt.Sprintf("tenant %02d", i%tenants) }

// batch inserts n intents, a thousand in a commit.
func (h *house) batch(n int) {
	h.b.Helper()
	intents := make([]durable.Intent, n)
	for i := range intents {
		intents[i] = h.intent()
	}
	results, err := (&durable.Engine{Store: h.store, Gateways: nothing()}).EnqueueBatch(h.b.Context(), intents)
	require.NoError(h.b, err)
	for i := range results {
		require.NoError(h.b, results[i].Err)
	}
}

// gatewayFunc is a Gateway.
type gatewayFunc func(s *durable.Send)

// Send implements durable.Gateway.
func (f gatewayFunc) Send(_ context.Context, s *durable.Send) durable.Outcome {
	f(s)
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// run runs an Engine until stop is called. It calls done for each finished intent.
func (h *house) run(engine *durable.Engine, done chan<- struct{}) (stop func()) {
	h.b.Helper()
	engine.Store = h.store
	engine.Trace = &durable.Trace{
		Changed: func(c *durable.Change) {
			if c.Record.State == durable.StateDone {
				done <- struct{}{}
			}
		},
		Failed: func(err error) { h.b.Error(err) },
	}
	ctx, cancel := context.WithCancel(h.b.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(h.b, <-ended)
	}
}

// args are the arguments of a no-op job.
type args struct {
	Payload string `json:"payload"`
}

// Kind implements river.JobArgs.
func (args) Kind() string { return "noop" }

// unique are the arguments of a unique no-op job.
type unique struct {
	args

	Tenant string `json:"tenant" river:"unique"`
	Key    string `json:"key" river:"unique"`
}

// Kind implements river.JobArgs.
func (unique) Kind() string { return "unique" }

// InsertOpts implements river.JobArgsWithInsertOpts.
func (unique) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// peer is River with its own schema.
type peer struct {
	b      *testing.B
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts only
	next   int
}

func newPeer(b *testing.B) *peer {
	b.Helper()
	p := &peer{b: b, pool: newPool(b)}
	migrator, err := rivermigrate.New(riverpgxv5.New(p.pool), nil)
	require.NoError(b, err)
	_, err = migrator.Migrate(b.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(b, err)
	p.client = newClient(b, p.pool, &river.Config{})
	return p
}

func newClient(b *testing.B, pool *pgxpool.Pool, config *river.Config) *river.Client[pgx.Tx] {
	b.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	require.NoError(b, err)
	return client
}

func (p *peer) unique() unique {
	p.next++
	return unique{args{payload}, tenant(p.next), fmt.Sprint("order ", p.next)}
}

// batch inserts n jobs in one commit.
func (p *peer) batch(n int, job func() river.JobArgs) {
	p.b.Helper()
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i].Args = job()
	}
	results, err := p.client.InsertMany(p.b.Context(), jobs)
	require.NoError(p.b, err)
	require.Len(p.b, results, n)
}

func plain() river.JobArgs { return args{payload} }

// queue is River with its defaults.
func queue(workers int) *river.Config {
	return &river.Config{Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}}
}

// tuned is River with the configuration of its own benchmark.
func tuned(workers int) *river.Config {
	config := queue(workers)
	config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	return config
}

// run runs a client until stop is called. It calls done for each completed job.
func run(b *testing.B, pool *pgxpool.Pool, config *river.Config, done chan<- struct{}) (stop func()) {
	b.Helper()
	client := newClient(b, pool, config)
	events, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 100_000,
	})
	require.NoError(b, client.Start(b.Context()))
	go func() {
		for range events {
			done <- struct{}{}
		}
	}()
	return func() {
		require.NoError(b, client.Stop(context.WithoutCancel(b.Context())))
		unsubscribe()
	}
}
