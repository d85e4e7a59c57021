package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

func enqueue(scope, key string) driver.Event {
	return driver.Event{Kind: driver.EventEnqueue, Intent: driver.Intent{
		ID: idempotency.ID{Scope: scope, Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte("payload of " + key),
	}}
}

func claimOf(worker string) driver.Claim {
	return driver.Claim{
		Worker: worker, Lease: time.Hour, Limit: 100,
		Gateways: map[string]driver.Allowance{"psp": {Terms: driver.Terms{KeyTTL: time.Hour, CanQuery: true}, Limit: 100, PerScope: 100}},
	}
}

func finish(r *driver.Record, class driver.Class, do driver.Action) driver.Event {
	return driver.Event{
		Kind: driver.EventFinish, Intent: driver.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation,
		Terms: &driver.Terms{KeyTTL: time.Hour, CanQuery: true}, Outcome: driver.Outcome{Class: class, Result: []byte("result")},
		Decision: driver.Decision{Action: do},
	}
}

// mortal is a pool with a server process that ends at the n-th store call, before or after
// the call was executed.
type mortal struct {
	mu     sync.Mutex
	killer *pgxpool.Pool
	left   int
	after  bool
	killed bool
}

type endOf struct{}

// TraceBatchStart implements pgx.BatchTracer.
func (m *mortal) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return m.start(ctx, conn)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*mortal) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (m *mortal) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	m.end(ctx, conn)
}

// TraceQueryStart implements pgx.QueryTracer.
func (m *mortal) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return m.start(ctx, conn)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (m *mortal) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	m.end(ctx, conn)
}

func (m *mortal) start(ctx context.Context, conn *pgx.Conn) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left--
	if m.left != 0 {
		return ctx
	}
	if m.after {
		return context.WithValue(ctx, endOf{}, true)
	}
	m.kill(conn)
	return ctx
}

func (m *mortal) end(ctx context.Context, conn *pgx.Conn) {
	if ctx.Value(endOf{}) != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.kill(conn)
	}
}

func (m *mortal) kill(conn *pgx.Conn) {
	m.killed = true
	_, _ = m.killer.Exec(context.Background(), "SELECT pg_terminate_backend($1::int, 10000)", int32(conn.PgConn().PID()))
}

// life is what is done with four intents, all that can be. Each step may be done again.
var life = []struct {
	name string
	do   func(ctx context.Context, s *Store, l *lifetime) error
}{
	{"enqueue", func(ctx context.Context, s *Store, l *lifetime) error {
		return each(s.Apply(ctx, []driver.Event{l.enqueue("a", "1"), l.enqueue("a", "2"), l.enqueue("b", "3")}))
	}},
	{"claim", claimed},
	{"finish", func(ctx context.Context, s *Store, l *lifetime) error {
		classes := map[string]driver.Class{"1": driver.ClassSucceeded, "2": driver.ClassDeclined, "3": driver.ClassUnknown}
		var events []driver.Event
		for key, r := range l.held {
			events = append(events, finish(r, classes[key], map[bool]driver.Action{true: driver.Bury}[key == "2"]))
		}
		return each(s.Apply(ctx, events))
	}},
	{"redrive and resolve", func(ctx context.Context, s *Store, l *lifetime) error {
		second, third := l.enqueue("a", "2"), l.enqueue("b", "3")
		return each(s.Apply(ctx, []driver.Event{
			{Kind: driver.EventRedrive, Intent: second.Intent, By: "ann"},
			{Kind: driver.EventResolve, Intent: third.Intent, By: "ann", Outcome: driver.Outcome{Class: driver.ClassSucceeded}},
		}))
	}},
	{"claim again", claimed},
	{"refuse", func(ctx context.Context, s *Store, l *lifetime) error {
		if l.held["2"] == nil { // the answer to the claim was lost
			return nil
		}
		return each(s.Apply(ctx, []driver.Event{finish(l.held["2"], driver.ClassDeclined, driver.Bury)}))
	}},
	{"mend", func(ctx context.Context, s *Store, l *lifetime) error {
		mended := l.enqueue("a", "2")
		mended.Intent.Payload = []byte("mended")
		return each(s.Apply(ctx, []driver.Event{mended, l.enqueue("c", "4")}))
	}},
	{"cancel", func(ctx context.Context, s *Store, l *lifetime) error {
		return each(s.Apply(ctx, []driver.Event{{Kind: driver.EventCancel, Intent: l.enqueue("a", "2").Intent}}))
	}},
	{"beat", func(ctx context.Context, s *Store, l *lifetime) error {
		_, err := s.Heartbeat(ctx, l.worker, time.Hour)
		return err
	}},
	{"claim what is reaped", claimed},
	{"leave", func(ctx context.Context, s *Store, l *lifetime) error {
		_, err := s.Heartbeat(ctx, l.worker, 0)
		return err
	}},
	{"reap", func(ctx context.Context, s *Store, l *lifetime) error {
		_, err := s.Reap(ctx, 100)
		return err
	}},
}

// claimed is a step that claims what is due.
func claimed(ctx context.Context, s *Store, l *lifetime) error {
	claimed, err := s.Claim(ctx, claimOf(l.worker))
	for i := range claimed.Changes {
		r := &claimed.Changes[i].Record
		l.held[r.ID.Key] = r
	}
	return err
}

// each is the first error that does not say that it was done before its answer was lost, or
// cannot be done since another's was.
func each(results []driver.Result, err error) error {
	for i := range results {
		if e := results[i].Err; e != nil && err == nil && !slices.ContainsFunc(lateErrors, func(late error) bool { return errors.Is(e, late) }) {
			err = e
		}
	}
	return err
}

// lifetime is what one life is about.
type lifetime struct {
	worker string // its own, and its intents' scopes
	held   map[string]*driver.Record
}

func (l *lifetime) enqueue(scope, key string) driver.Event { return enqueue(l.worker+" "+scope, key) }

var lateErrors = []error{driver.ErrFenced, driver.ErrInvalidState, driver.ErrMismatch}

// TestCrashBetweenTrips ends the server's process before and after each trip to it. What
// fails is done again. After each step the tables are consistent. At the end nothing is lost,
// and no worker holds an intent.
func TestCrashBetweenTrips(t *testing.T) {
	t.Parallel()
	s := openInternal(t)
	lives := 0
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			m := &mortal{killer: s.pool, left: n, after: after}
			l := &lifetime{worker: fmt.Sprintf("mortal %v %d", after, n), held: make(map[string]*driver.Record)}
			l.live(t, s, m)
			lives++
			stats, err := s.Stats(t.Context())
			require.NoError(t, err)
			total := 0
			for _, count := range stats.States {
				total += count
			}
			held, err := s.Counts(t.Context(), []driver.State{driver.StateSending, driver.StateQuerying})
			require.NoError(t, err)
			assert.Empty(t, held, "killed at %d, after %v", n, after)
			assert.Equal(t, 4*lives, total)
			assert.Zero(t, s.count(t, "durable_worker"))
			require.False(t, t.Failed(), "killed at %d, after %v", n, after)
			if !m.killed {
				assert.Greater(t, n, 25, "it was killed that often")
				break
			}
			_, err = s.pool.Exec(t.Context(), "UPDATE durable_intent SET next_at = now() + interval '1 year' WHERE state IN (0, 1, 4)")
			require.NoError(t, err, "the next life claims its own alone")
		}
	}
}

// live goes through a life, and does again what fails.
func (l *lifetime) live(t *testing.T, s *Store, m *mortal) {
	t.Helper()
	config := s.pool.Config()
	config.ConnConfig.Tracer = m
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	dying := &Store{pool: pool, is: s.is}
	for _, step := range life {
		err := step.do(t.Context(), dying, l)
		checkBooks(t, s)
		if err != nil {
			require.True(t, m.killed, "%s: %v", step.name, err)
			require.NoError(t, step.do(t.Context(), dying, l), "%s again, after %v", step.name, err)
			checkBooks(t, s)
		}
	}
}

// bank keeps its book in the same database, but not in the store's transactions. It does the
// work of a key once.
type bank struct{ pool *pgxpool.Pool }

func (b bank) Send(ctx context.Context, s *durable.Send) driver.Outcome {
	return b.book(ctx, s, s.Key)
}

func (b bank) book(ctx context.Context, s *durable.Send, key string) driver.Outcome {
	_, err := b.pool.Exec(ctx, "INSERT INTO bank (key, charge) VALUES ($1, $2) ON CONFLICT DO NOTHING", key, s.Intent.ID.Key)
	if err != nil || rand.IntN(10) == 0 { // the answer is lost
		return driver.Outcome{Err: err}
	}
	return driver.Outcome{Class: driver.ClassSucceeded, Reference: key}
}

// ledger is a bank that knows no keys: it books whatever it is sent, and can be asked.
type ledger struct {
	bank
	charges *sync.Map // locks: of each charge, one thing at a time is booked or looked for
}

// ledgerSettles is how long after the end of a send it may yet be booked.
const ledgerSettles = 500 * time.Millisecond

// Send keeps that promise however long this process, the server's, or a connection of the
// pool's is waited for: what comes later is not booked, and what was begun is not given up.
func (l ledger) Send(ctx context.Context, s *durable.Send) driver.Outcome {
	ctx = context.WithoutCancel(ctx)
	charge := l.charge(s)
	charge.Lock()
	defer charge.Unlock()
	late := false
	err := l.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM durable_intent i JOIN durable_attempt a ON a.intent = i.id
		WHERE i.scope = $1 AND i.operation = $2 AND i.key = $3 AND a.n = $4
		AND a.finished_at + $5::bigint * interval '1 microsecond' <= clock_timestamp())`,
		s.Intent.ID.Scope, s.Intent.ID.Operation, s.Intent.ID.Key, s.Generation, ledgerSettles.Microseconds()).Scan(&late)
	if late {
		err = errors.New("it comes too late")
	}
	if err != nil {
		return driver.Outcome{Err: err}
	}
	return l.book(ctx, s, fmt.Sprint(s.Key, " ", rand.Uint64()))
}

// charge is the lock of what is sent.
func (l ledger) charge(s *durable.Send) *sync.Mutex {
	charge, _ := l.charges.LoadOrStore(s.Intent.ID, new(sync.Mutex))
	return charge.(*sync.Mutex)
}

func (l ledger) Find(ctx context.Context, s *durable.Send) driver.Outcome {
	charge := l.charge(s)
	charge.Lock()
	defer charge.Unlock()
	n := 0
	if err := l.pool.QueryRow(ctx, "SELECT count(*) FROM bank WHERE charge = $1", s.Intent.ID.Key).Scan(&n); err != nil {
		return driver.Outcome{Err: err}
	}
	return driver.Outcome{Class: map[bool]driver.Class{true: driver.ClassSucceeded, false: driver.ClassNotFound}[n > 0]}
}

// KeyPolicy implements durable.Protector.
func (ledger) KeyPolicy() (keyLife, settles time.Duration) { return -1, ledgerSettles }

// TestBackendsAreKilled has two engines work while the server's processes are ended at
// any moment. In the end each charge was made once, by a bank that dedupes keys, and by one
// that knows none.
func TestBackendsAreKilled(t *testing.T) {
	t.Parallel()
	var charges sync.Map
	for name, of := range map[string]func(*pgxpool.Pool) durable.Gateway{
		"bank":   func(p *pgxpool.Pool) durable.Gateway { return bank{p} },
		"ledger": func(p *pgxpool.Pool) durable.Gateway { return ledger{bank{p}, &charges} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killBackends(t, of)
		})
	}
}

func killBackends(t *testing.T, of func(*pgxpool.Pool) durable.Gateway) {
	t.Helper()
	s := openInternal(t)
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE bank (key text PRIMARY KEY, charge text NOT NULL)")
	require.NoError(t, err)
	const charges = 200
	var events []driver.Event
	for i := range charges {
		events = append(events, enqueue("tenant "+strconv.Itoa(i%7), strconv.Itoa(i)))
	}
	require.NoError(t, each(s.Apply(t.Context(), events)))

	config := s.pool.Config()
	config.ConnConfig.RuntimeParams["application_name"] = "mortal " + config.ConnConfig.RuntimeParams["application_name"]
	victims, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer victims.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error)
	for range 2 {
		engine := &durable.Engine{
			Store: &Store{pool: victims, is: s.is}, Gateways: map[string]durable.Gateway{"psp": of(s.pool)},
			Policy:        durable.Schedule{MaxAttempts: -1, Backoff: resilienthttp.FullJitter(20*time.Millisecond, 500*time.Millisecond)},
			LeaseDuration: time.Second, PollInterval: 20 * time.Millisecond, DrainTimeout: -1,
		}
		go func() { over <- engine.Run(ctx) }()
	}
	killed := 0
	for deadline := time.Now().Add(3 * time.Minute); ; {
		if killed < 30 {
			n := 0
			require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE application_name = $1`, config.ConnConfig.RuntimeParams["application_name"]).Scan(&n))
			killed += n
		}
		stats, err := s.Stats(t.Context())
		require.NoError(t, err)
		if stats.States[driver.StateDone] == charges {
			break
		}
		require.Less(t, time.Now(), deadline, "%v", stats)
		require.NoError(t, sleep.Jittered(t.Context(), 20*time.Millisecond))
	}
	cancel()
	require.NoError(t, <-over)
	require.NoError(t, <-over)
	checkBooks(t, s)
	assert.Equal(t, charges, s.count(t, "bank"))
	assert.Equal(t, charges, s.count(t, "(SELECT DISTINCT charge FROM bank) b"))
	assert.Positive(t, killed)
	t.Logf("%d former attempts for %d charges, %d processes killed", s.count(t, "durable_attempt"), charges, killed)
}
