package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func enqueue(scope, key string) durable.Event {
	return durable.Event{Kind: durable.EventEnqueue, Intent: durable.Intent{
		ID: idempotency.ID{Scope: scope, Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte("payload of " + key),
	}}
}

func claimOf(worker string) durable.Claim {
	return durable.Claim{
		Worker: worker, Lease: time.Hour, Limit: 100,
		Gateways: map[string]durable.Allowance{"psp": {Terms: durable.Terms{KeyTTL: time.Hour, CanQuery: true}, Limit: 100, PerScope: 100}},
	}
}

func finish(r *durable.Record, class durable.Class, do durable.Action) durable.Event {
	return durable.Event{
		Kind: durable.EventFinish, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation,
		Terms: &durable.Terms{KeyTTL: time.Hour, CanQuery: true}, Outcome: durable.Outcome{Class: class, Result: []byte("result")},
		Decision: durable.Decision{Action: do},
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
		return each(s.Apply(ctx, []durable.Event{l.enqueue("a", "1"), l.enqueue("a", "2"), l.enqueue("b", "3")}))
	}},
	{"claim", claimed},
	{"finish", func(ctx context.Context, s *Store, l *lifetime) error {
		classes := map[string]durable.Class{"1": durable.ClassSucceeded, "2": durable.ClassDeclined, "3": durable.ClassUnknown}
		var events []durable.Event
		for key, r := range l.held {
			events = append(events, finish(r, classes[key], map[bool]durable.Action{true: durable.Bury}[key == "2"]))
		}
		return each(s.Apply(ctx, events))
	}},
	{"redrive and resolve", func(ctx context.Context, s *Store, l *lifetime) error {
		second, third := l.enqueue("a", "2"), l.enqueue("b", "3")
		return each(s.Apply(ctx, []durable.Event{
			{Kind: durable.EventRedrive, Intent: second.Intent, By: "ann"},
			{Kind: durable.EventResolve, Intent: third.Intent, By: "ann", Outcome: durable.Outcome{Class: durable.ClassSucceeded}},
		}))
	}},
	{"claim again", claimed},
	{"refuse", func(ctx context.Context, s *Store, l *lifetime) error {
		if l.held["2"] == nil { // the answer to the claim was lost
			return nil
		}
		return each(s.Apply(ctx, []durable.Event{finish(l.held["2"], durable.ClassDeclined, durable.Bury)}))
	}},
	{"mend", func(ctx context.Context, s *Store, l *lifetime) error {
		mended := l.enqueue("a", "2")
		mended.Intent.Payload = []byte("mended")
		return each(s.Apply(ctx, []durable.Event{mended, l.enqueue("c", "4")}))
	}},
	{"cancel", func(ctx context.Context, s *Store, l *lifetime) error {
		return each(s.Apply(ctx, []durable.Event{{Kind: durable.EventCancel, Intent: l.enqueue("a", "2").Intent}}))
	}},
	{"beat", func(ctx context.Context, s *Store, l *lifetime) error {
		return errOf(s.Heartbeat(ctx, l.worker, time.Hour))
	}},
	{"claim what is reaped", claimed},
	{"leave", func(ctx context.Context, s *Store, l *lifetime) error { return errOf(s.Heartbeat(ctx, l.worker, 0)) }},
	{"reap", func(ctx context.Context, s *Store, l *lifetime) error { return errOf(s.Reap(ctx, 100)) }},
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
func each(results []durable.Result, err error) error {
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
	held   map[string]*durable.Record
}

func (l *lifetime) enqueue(scope, key string) durable.Event { return enqueue(l.worker+" "+scope, key) }

var lateErrors = []error{durable.ErrFenced, durable.ErrInvalidState, durable.ErrMismatch}

// TestCrashBetweenTrips ends the server's process before and after each trip to it. What
// fails is done again. After each step the tables are consistent. At the end nothing is lost,
// and no worker holds an intent.
func TestCrashBetweenTrips(t *testing.T) {
	t.Parallel()
	s := openInternal(t)
	lives := 0
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			m := &mortal{killer: s.db.pool, left: n, after: after}
			l := &lifetime{worker: fmt.Sprintf("mortal %v %d", after, n), held: make(map[string]*durable.Record)}
			l.live(t, s, m)
			lives++
			stats, err := s.Stats(t.Context())
			require.NoError(t, err)
			total := 0
			for _, count := range stats.States {
				total += count
			}
			held, err := s.Counts(t.Context(), []durable.State{durable.StateSending, durable.StateQuerying})
			require.NoError(t, err)
			assert.Empty(t, held, "killed at %d, after %v", n, after)
			assert.Equal(t, 4*lives, total)
			assert.Zero(t, s.count(t, "durable_worker"))
			require.False(t, t.Failed(), "killed at %d, after %v", n, after)
			if !m.killed {
				assert.Greater(t, n, 25, "it was killed that often")
				break
			}
			_, err = s.db.pool.Exec(t.Context(), "UPDATE durable_intent SET next_at = now() + interval '1 year' WHERE state IN (0, 1, 4)")
			require.NoError(t, err, "the next life claims its own alone")
		}
	}
}

// live goes through a life, and does again what fails.
func (l *lifetime) live(t *testing.T, s *Store, m *mortal) {
	t.Helper()
	config := s.db.pool.Config()
	config.ConnConfig.Tracer = m
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	dying := newStore(pool, s.db.is.schema)
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
