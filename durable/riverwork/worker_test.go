package riverwork_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/durable/riverwork"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// gatewayFunc is a Gateway.
type gatewayFunc func(ctx context.Context, s *durable.Send) durable.Outcome

func (f gatewayFunc) Send(ctx context.Context, s *durable.Send) durable.Outcome { return f(ctx, s) }

func pay(key string) durable.Intent {
	return durable.Intent{
		ID: idempotency.ID{Scope: "acme", Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte(`{"amount": 100}`),
	}
}

// broken is a store that does not answer.
type broken struct{ durable.Store }

var errBroken = errors.New("connection refused")

func (broken) Claim(context.Context, durable.Claim) (durable.Claimed, error) {
	return durable.Claimed{}, errBroken
}

// What Work tells River: nothing (completed), a snooze, a cancellation, or a failure.

func completed(t *testing.T, err error) {
	t.Helper()
	assert.NoError(t, err)
}

func snoozed(d time.Duration) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var snooze *river.JobSnoozeError
		require.ErrorAs(t, err, &snooze)
		assert.Equal(t, d, snooze.Duration)
	}
}

func cancelled(cause error) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		require.ErrorAs(t, err, new(*river.JobCancelError))
		assert.ErrorIs(t, err, cause)
	}
}

func failed(cause error) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		require.ErrorIs(t, err, cause)
		assert.NotErrorAs(t, err, new(*river.JobSnoozeError))
		assert.NotErrorAs(t, err, new(*river.JobCancelError))
	}
}

// every is a Policy that sends again after a minute, or buries.
type every struct{ bury bool }

func (e every) Next(_ *durable.History, now time.Time) durable.Decision {
	if e.bury {
		return durable.Decision{Action: durable.Bury}
	}
	return durable.Decision{At: now.Add(time.Minute)}
}

// TestWork is a run of the job of an intent in each of its states, and of none.
func TestWork(t *testing.T) {
	t.Parallel()
	in := pay("1")
	for _, row := range []struct {
		name    string
		class   durable.Class                         // what a send comes to
		delay   time.Duration                         // until it is due
		absent  bool                                  // it is not enqueued
		prepare func(t *testing.T, e *durable.Engine) // nil: nothing
		change  func(w *riverwork.Worker)             // nil: nothing
		job     func(*river.Job[riverwork.Args])      // nil: that of the intent
		want    func(t *testing.T, err error)
		sends   int
	}{
		{name: "it is done", class: durable.ClassSucceeded, want: completed, sends: 1},
		{name: "failed: snoozed", class: durable.ClassFailed, want: snoozed(time.Minute), sends: 1},
		{name: "unknown: snoozed", class: durable.ClassUnknown, want: snoozed(time.Minute), sends: 1},
		{
			name: "declined: completed", class: durable.ClassDeclined, want: completed, sends: 1,
			change: func(w *riverwork.Worker) { w.Engine.Policy = every{bury: true} },
		},
		{name: "not due", want: snoozed(time.Hour), delay: time.Hour},
		{name: "due within a Poll", want: snoozed(time.Second), delay: time.Millisecond},
		{name: "held by another worker: snoozed", want: snoozed(30 * time.Second), prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			claimed, err := e.Store.Claim(t.Context(), durable.Claim{
				Worker: "another", Lease: time.Hour, Limit: 1, Gateways: map[string]durable.Allowance{"psp": {Limit: 1, PerScope: 1}},
			})
			require.NoError(t, err)
			require.Len(t, claimed.Changes, 1)
		}},
		{name: "done before", class: durable.ClassSucceeded, want: completed, sends: 1, prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			next, err := e.WorkOne(t.Context(), in.ID)
			require.NoError(t, err)
			require.Zero(t, next)
		}},
		{name: "cancelled before", want: completed, prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			require.NoError(t, e.Cancel(t.Context(), in.ID))
		}},
		{name: "no gateway of that name", want: completed, absent: true, prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			elsewhere := &durable.Engine{Store: e.Store, Gateways: map[string]durable.Gateway{"bank": gatewayFunc(nil)}}
			other := in
			other.Gateway = "bank"
			require.NoError(t, errOf(elsewhere.Enqueue(t.Context(), other)))
		}},
		{name: "unknown to the store", want: cancelled(durable.ErrNotFound), absent: true},
		{name: "no name", want: cancelled(durable.ErrInvalid), job: func(j *river.Job[riverwork.Args]) { j.Args = riverwork.Args{} }},
		{name: "no text", want: cancelled(durable.ErrInvalid), job: func(j *river.Job[riverwork.Args]) { j.Args.Key = "\xff" }},
		{name: "no Engine", want: failed(durable.ErrInvalid), change: func(w *riverwork.Worker) { w.Engine = nil }},
		{name: "no Store", want: failed(durable.ErrInvalid), change: func(w *riverwork.Worker) { w.Engine = new(durable.Engine) }},
		{name: "the store is down", want: failed(errBroken), change: func(w *riverwork.Worker) {
			w.Engine.Store = broken{w.Engine.Store}
		}},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			sends := 0
			engine := func(store durable.Store) *durable.Engine {
				return &durable.Engine{Store: store, Policy: every{}, Gateways: map[string]durable.Gateway{
					"psp": gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
						sends++
						return durable.Outcome{Class: row.class}
					}),
				}}
			}
			store := new(durable.Memory)
			before := engine(store)
			if !row.absent {
				in := in
				in.NotBefore = time.Now().Add(row.delay)
				require.NoError(t, errOf(before.Enqueue(t.Context(), in)))
			}
			if row.prepare != nil {
				row.prepare(t, before)
			}
			worker := &riverwork.Worker{Engine: engine(store)}
			if row.change != nil {
				row.change(worker)
			}
			job := &river.Job[riverwork.Args]{Args: riverwork.Args(in.ID)}
			if row.job != nil {
				row.job(job)
			}
			row.want(t, worker.Work(t.Context(), job))
			assert.Equal(t, row.sends, sends)
		})
	}
}

// TestTimeout leaves a job longer than the send in it may take.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		engine *durable.Engine
		want   time.Duration
	}{
		{"no Engine", nil, 6 * time.Minute},
		{"the default", new(durable.Engine), 6 * time.Minute},
		{"the default written out", &durable.Engine{Timeout: 5 * time.Minute}, 6 * time.Minute},
		{"short", &durable.Engine{Timeout: time.Second}, 61 * time.Second},
		{"none", &durable.Engine{Timeout: -1}, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.want, (&riverwork.Worker{Engine: row.engine}).Timeout(nil))
		})
	}
}

// place is a database with River's tables and the store's.
type place struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *pgstore.Store
	jobs  *river.Client[pgx.Tx] // inserts only
}

func newPlace(t *testing.T) *place {
	t.Helper()
	config, err := pgxpool.ParseConfig(postgrestest.Open(t))
	require.NoError(t, err)
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	require.NoError(t, err)
	require.NoError(t, errOf(migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)))
	p := &place{t: t, pool: pool}
	p.store, err = pgstore.New(t.Context(), pool, nil)
	require.NoError(t, err)
	p.jobs, err = river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: silent()})
	require.NoError(t, err)
	return p
}

// of is the place for a subtest.
func (p *place) of(t *testing.T) *place {
	t.Helper()
	q := *p
	q.t = t
	return &q
}

// silent: River tells of each failed job, and here they fail on purpose.
func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// insert commits intents with their jobs.
func (p *place) insert(intents ...durable.Intent) {
	p.t.Helper()
	require.NoError(p.t, pgx.BeginFunc(p.t.Context(), p.pool, func(tx pgx.Tx) error {
		for _, in := range intents {
			if _, err := riverwork.InsertTx(p.t.Context(), p.jobs, tx, p.store.WithTx(tx), in, nil); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (p *place) exec(statement string) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), statement)
	require.NoError(p.t, err)
}

// count is the one number that a query gives.
func (p *place) count(query string) (n int) {
	p.t.Helper()
	require.NoError(p.t, p.pool.QueryRow(p.t.Context(), query).Scan(&n))
	return n
}

// until waits for a query to give a number. Jobs that are put off for a lease come at once
// meanwhile: leases are long, so that none ends by itself on a machine that stands still.
func (p *place) until(n int, query string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		p.exec(`UPDATE river_job SET state = 'available', scheduled_at = now() WHERE state IN ('available', 'scheduled') AND scheduled_at > now()`)
		return p.count(query) == n
	}, time.Minute, 10*time.Millisecond, query)
}

const (
	jobsLeft    = `SELECT count(*) FROM river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')`
	intentsLeft = `SELECT count(*) FROM durable_intent WHERE state <> 5`
	running     = `SELECT count(*) FROM river_job WHERE state = 'running'`
)

// at is a RetryPolicy of River's: at once.
type at struct{}

func (at) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// work starts a client with a worker of its own, as a process has. It is stopped by what
// is returned, and at the end of the test.
func (p *place) work(gateway durable.Gateway) (stop func()) {
	p.t.Helper()
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverwork.Worker{Engine: p.engine(gateway, 10*time.Millisecond)})
	client, err := river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}}, Workers: workers, Logger: silent(),
		FetchCooldown: time.Millisecond, FetchPollInterval: 20 * time.Millisecond, RetryPolicy: at{}, TestOnly: true,
	})
	require.NoError(p.t, err)
	require.NoError(p.t, client.Start(p.t.Context()))
	stop = sync.OnceFunc(func() { assert.NoError(p.t, client.Stop(context.Background())) })
	p.t.Cleanup(stop)
	return stop
}

// engine is one of a process.
func (p *place) engine(gateway durable.Gateway, poll time.Duration) *durable.Engine {
	return &durable.Engine{
		Store: p.store, Gateways: map[string]durable.Gateway{"psp": gateway}, PollInterval: poll, LeaseDuration: time.Minute, DrainTimeout: -1,
		Policy: durable.Schedule{Backoff: resilienthttp.Constant(20 * time.Millisecond)},
	}
}

// sweep runs an Engine for the length of the test.
func (p *place) sweep(gateway durable.Gateway) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.engine(gateway, 200*time.Millisecond).Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		assert.NoError(p.t, <-ended)
	})
}

// psp is a provider: it does the work once for each key, and reports concurrent sends of one
// intent.
type psp struct {
	mu      sync.Mutex
	sends   map[string]int // by the intent's key
	keys    map[string]string
	busy    map[string]bool
	faults  []string
	outcome func(s *durable.Send) durable.Class
}

func newPSP(outcome func(s *durable.Send) durable.Class) *psp {
	return &psp{sends: make(map[string]int), keys: make(map[string]string), busy: make(map[string]bool), outcome: outcome}
}

// Send implements durable.Gateway.
func (p *psp) Send(_ context.Context, s *durable.Send) durable.Outcome {
	name := s.ID.Key
	p.mu.Lock()
	if known, ok := p.keys[name]; p.busy[name] || ok && known != s.Key {
		p.faults = append(p.faults, fmt.Sprint("sent twice at once, or under two keys: ", name))
	}
	p.sends[name]++
	p.keys[name], p.busy[name] = s.Key, true
	p.mu.Unlock()
	class := p.outcome(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[name] = false
	return durable.Outcome{Class: class}
}

func (p *psp) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sends[name]
}

func succeeds(*durable.Send) durable.Class { return durable.ClassSucceeded }

// TestInsertTx has the intent and its job in one transaction, and one job where one is
// wanted.
func TestInsertTx(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for number, row := range []struct {
		name   string
		before func(p *place, id string) // what is there already
		in     func(in *durable.Intent)
		opts   *river.InsertOpts
		times  int // in the transaction; 0: once
		abort  bool
		want   error
		jobs   int
		also   string // a condition that all these jobs meet
	}{
		{name: "new", jobs: 1, also: "state = 'available'"},
		{name: "rolled back", abort: true},
		{name: "twice", times: 2, jobs: 1},
		{name: "later", jobs: 1, in: func(in *durable.Intent) { in.NotBefore = time.Now().Add(time.Hour) },
			also: "state = 'scheduled' AND scheduled_at > now() + interval '50 minutes'"},
		{name: "in a queue", opts: &river.InsertOpts{Queue: "payments", Priority: 2}, jobs: 1,
			also: "queue = 'payments' AND priority = 2"},
		{name: "not valid", in: func(in *durable.Intent) { in.Gateway = "" }, want: durable.ErrInvalid},
		{name: "enqueued before, without a job", jobs: 1, before: func(p *place, id string) {
			_, err := p.store.Apply(p.t.Context(), []durable.Event{{Kind: durable.EventEnqueue, Intent: pay(id)}})
			require.NoError(p.t, err)
		}},
		{name: "with a job before", jobs: 1, before: func(p *place, id string) { p.insert(pay(id)) }},
		{name: "its job is over, and it is not", jobs: 2, before: func(p *place, id string) {
			p.insert(pay(id))
			p.exec("UPDATE river_job SET state = 'completed', finalized_at = now() WHERE args->>'key' = '" + id + "'")
		}},
		{name: "cancelled before", jobs: 1, before: func(p *place, id string) {
			p.insert(pay(id))
			p.exec("UPDATE river_job SET state = 'completed', finalized_at = now() WHERE args->>'key' = '" + id + "'")
			require.NoError(p.t, p.engine(newPSP(succeeds), 0).Cancel(p.t.Context(), pay(id).ID))
		}},
		{name: "of another payload", jobs: 1, want: durable.ErrMismatch, before: func(p *place, id string) { p.insert(pay(id)) },
			in: func(in *durable.Intent) { in.Payload = []byte("another") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p, ctx, id := p.of(t), t.Context(), fmt.Sprint("order ", number)
			if row.before != nil {
				row.before(p, id)
			}
			in := pay(id)
			if row.in != nil {
				row.in(&in)
			}
			tx, err := p.pool.Begin(ctx)
			require.NoError(t, err)
			for range max(row.times, 1) {
				require.ErrorIs(t, errOf(riverwork.InsertTx(ctx, p.jobs, tx, p.store.WithTx(tx), in, row.opts)), row.want)
			}
			if row.abort {
				require.NoError(t, tx.Rollback(ctx))
			} else {
				require.NoError(t, tx.Commit(ctx), "an error of durable's leaves the transaction as it was")
			}
			of := " FROM river_job WHERE args->>'key' = '" + id + "'"
			assert.Equal(t, row.jobs, p.count("SELECT count(*)"+of))
			if row.also != "" {
				assert.Equal(t, row.jobs, p.count("SELECT count(*)"+of+" AND "+row.also))
			}
			intents := "SELECT count(*) FROM durable_intent WHERE key = '" + id + "'"
			assert.Equal(t, map[bool]int{true: 1}[row.jobs > 0], p.count(intents), "no intent without a job, here")
		})
	}
	t.Run("no client, no outbox", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		require.ErrorIs(t, errOf(riverwork.InsertTx[pgx.Tx](ctx, nil, nil, p.store.WithTx(nil), pay("none"), nil)), durable.ErrInvalid)
		require.ErrorIs(t, errOf(riverwork.InsertTx(ctx, p.jobs, nil, nil, pay("none"), nil)), durable.ErrInvalid)
	})
}

// TestLostAndDoubled loses a third of the jobs and doubles a third, for two processes,
// and half of what they send comes to nothing the first time.
func TestLostAndDoubled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const intents = 30
	for i := range intents {
		p.insert(pay(fmt.Sprint(i)))
	}
	p.exec(`DELETE FROM river_job WHERE id % 3 = 0`)
	p.exec(`INSERT INTO river_job (args, kind, max_attempts, queue, priority, state, scheduled_at)
		SELECT args, kind, max_attempts, queue, priority, state, scheduled_at FROM river_job, generate_series(1, 3) WHERE id % 3 = 1`)
	require.Equal(t, intents*2/3+intents, p.count(jobsLeft))

	other := newPSP(func(s *durable.Send) durable.Class {
		if s.Number == 1 && len(s.ID.Key)%2 == 0 {
			return []durable.Class{durable.ClassFailed, durable.ClassUnknown}[s.ID.Key[0]%2]
		}
		return durable.ClassSucceeded
	})
	p.work(other)
	p.work(other)
	p.until(0, jobsLeft)
	left := p.count(intentsLeft)
	assert.Equal(t, intents/3, left, "the intents without a job, because no sweeper runs yet")
	p.sweep(other)
	p.until(0, intentsLeft)
	assert.Empty(t, other.faults)
	for i := range intents {
		name := fmt.Sprint(i)
		assert.Equal(t, 1+map[bool]int{true: 1}[len(name)%2 == 0], other.count(name), name)
	}
	assert.Zero(t, p.count(`SELECT count(*) FROM river_job WHERE state <> 'completed' OR errors IS NOT NULL`))
}

// TestRescue: a process died in the middle of a send. River rescues its job, durable its
// intent, and it goes on under its key.
func TestRescue(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.insert(pay("1"))
	claimed, err := p.store.Claim(t.Context(), durable.Claim{
		Worker: "dead", Lease: time.Millisecond, Limit: 1,
		Gateways: map[string]durable.Allowance{"psp": {Terms: durable.Terms{KeyTTL: time.Hour}, Limit: 1, PerScope: 1}},
	})
	require.NoError(t, err)
	require.Len(t, claimed.Changes, 1)
	p.exec(`UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now() - interval '2 hours', attempted_by = '{dead}'`)

	other := newPSP(succeeds)
	stop := p.work(other)
	p.until(0, running)
	stop()        // River's scheduler looks every 5 s,
	p.work(other) // and when it starts
	p.until(1, `SELECT count(*) FROM river_job WHERE metadata ? 'snoozes'`)
	assert.Zero(t, other.count("1"), "only a sweeper finds that the worker is dead")
	p.sweep(other)
	p.until(0, jobsLeft)
	assert.Equal(t, 1, other.count("1"))
	assert.Equal(t, claimed.Changes[0].StartedAttempt.Key, other.keys["1"])
	assert.Zero(t, p.count(intentsLeft))
}

// TestJobCancelled in the middle of its send: the intent is unknown, and goes on without it.
func TestJobCancelled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.insert(pay("1"))
	sending := make(chan struct{})
	stuck := durable.Gateway(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
		close(sending)
		<-ctx.Done()
		return durable.Outcome{Err: ctx.Err()}
	}))
	p.work(stuck)
	<-sending
	var id int64
	require.NoError(t, p.pool.QueryRow(t.Context(), `SELECT id FROM river_job`).Scan(&id))
	require.NoError(t, errOf(p.jobs.JobCancel(t.Context(), id)))
	p.until(1, `SELECT count(*) FROM river_job WHERE state = 'cancelled'`)
	record, err := p.store.Find(t.Context(), pay("1").ID)
	require.NoError(t, err)
	require.Equal(t, durable.StateUnknown, record.State)

	other := newPSP(succeeds)
	p.sweep(other)
	p.until(0, intentsLeft)
	assert.Equal(t, durable.IdempotencyKey(record.ID, 1), other.keys["1"])
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
