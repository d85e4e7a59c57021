package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// patience is the time after which a test fails that waits for something.
const patience = time.Minute

// listener is an Engine on a store, which would poll an hour later.
type listener struct {
	t      *testing.T
	pool   *pgxpool.Pool // of the tests
	sent   chan string   // keys
	failed chan error
}

// listen runs an Engine on a pool of its own until the test ends.
func listen(t *testing.T, dsn string, configure func(*pgxpool.Config)) *listener {
	t.Helper()
	l := &listener{t: t, pool: newPool(t, dsn, nil), sent: make(chan string, 1000), failed: make(chan error, 1000)}
	engine := &durable.Engine{
		Store: newStore(t, newPool(t, dsn, configure)), PollInterval: time.Hour,
		Gateways: map[string]durable.Gateway{"psp": l},
		Trace:    &durable.Trace{Failed: func(err error) { l.failed <- err }},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
		assert.Eventually(t, func() bool { return l.connections(context.Background()) == 0 }, patience, time.Millisecond)
	})
	return l
}

// Send implements durable.Gateway.
func (l *listener) Send(_ context.Context, s *durable.Send) durable.Outcome {
	l.sent <- s.ID.Key
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// listening are the server's processes of connections that listen.
const listening = `FROM pg_stat_activity WHERE application_name = current_setting('application_name') AND query LIKE 'LISTEN %'`

func (l *listener) connections(ctx context.Context) (n int) {
	require.NoError(l.t, l.pool.QueryRow(ctx, `SELECT count(*) `+listening+` AND state = 'idle'`).Scan(&n))
	return n
}

// ready waits until the Engine listens and has nothing to do.
func (l *listener) ready(apply func(key string)) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.connections(l.t.Context()) == 1 }, patience, time.Millisecond)
	apply("first")
	l.await("first")
}

func (l *listener) await(key string) {
	l.t.Helper()
	require.Equal(l.t, key, receive(l.t, l.sent))
}

// receive waits for what comes from a channel.
func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatal("nothing comes")
	}
	return got
}

// D20: commits of other stores are claimed without a poll, and rolled back ones never are.
func TestStore_wakesEnginesOfOtherProcesses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		configure func(*pgxpool.Config)
	}{
		{"default", nil},
		{"one connection", func(c *pgxpool.Config) { c.MaxConns = 1 }},
		{"simple protocol", func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Open(t)
			l := listen(t, dsn, row.configure)
			p := newPlace(t, dsn, row.configure)
			store := newStore(t, p.pool)
			apply := func(key string) { enqueueKey(t, store, key) }
			l.ready(apply)
			for i := range 20 { // many within one interval of the notifications, too
				apply(fmt.Sprint("applied ", i))
				l.await(fmt.Sprint("applied ", i))
			}
			errGivenUp := errors.New("given up")
			for name, inside := range map[string]within{"pgx": withinPGX, "database/sql": withinSQL} {
				for _, end := range []error{errGivenUp, nil} {
					err := inside(t, p, store, func(outbox durable.Outbox) error {
						in := order(0)
						in.Key = fmt.Sprint(name, end)
						_, err := outbox.Enqueue(t.Context(), in)
						return errors.Join(err, end)
					})
					require.ErrorIs(t, err, end)
				}
				l.await(fmt.Sprint(name, nil))
			}
			assert.Empty(t, l.sent)
			assert.Empty(t, l.failed)
		})
	}
}

// TestStore_wakesForPersons has what a person decides, and an intent that is revised, all by
// another store.
func TestStore_wakesForPersons(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	p := newPlace(t, dsn, nil)
	store := newStore(t, p.pool)
	dead := func(key string) durable.Event {
		in := order(0)
		in.Key, in.Gateway = key, "none"
		applyAll(t, store, []durable.Event{{Kind: durable.EventEnqueue, Intent: in}})
		refuse(t, store, "none")
		in.Gateway, in.Payload = "psp", []byte("revised")
		return durable.Event{Kind: durable.EventEnqueue, Intent: in}
	}
	applied, inside, redriven := dead("applied"), dead("inside"), dead("redriven")
	l := listen(t, dsn, nil)
	l.ready(func(key string) { enqueueKey(t, store, key) })
	applyAll(t, store, []durable.Event{applied})
	l.await("applied")
	require.NoError(t, withinPGX(t, p, store, func(outbox durable.Outbox) error { return errOf(outbox.Enqueue(t.Context(), inside.Intent)) }))
	l.await("inside")
	applyAll(t, store, []durable.Event{{Kind: durable.EventRedrive, Intent: redriven.Intent, By: "ann"}})
	assert.Eventually(t, func() bool { // claimed, and buried again: there is no such gateway
		record, err := store.Find(t.Context(), redriven.Intent.ID)
		return err == nil && record.DeadLetterID == 2
	}, patience, time.Millisecond)
}

// TestListen_reconnects ends the connection that listens. What is enqueued until there is
// another one is claimed then.
func TestListen_reconnects(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	l := listen(t, dsn, nil)
	store := newStore(t, l.pool)
	apply := func(key string) { enqueueKey(t, store, key) }
	l.ready(apply)
	for i := range 2 {
		require.NoError(t, errOf(l.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) `+listening)))
		apply(fmt.Sprint("lost ", i))
		l.await(fmt.Sprint("lost ", i))
		require.Eventually(t, func() bool { return l.connections(t.Context()) == 1 }, patience, time.Millisecond)
		apply(fmt.Sprint("found ", i))
		l.await(fmt.Sprint("found ", i))
	}
	assert.Len(t, l.failed, 2, "one report for each failure")
}

// TestListen_schemas has two stores in schemas of one database. Each has its own intents, and wakes its own listeners only.
func TestListen_schemas(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	pool := newPool(t, dsn, nil)
	var schema string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	other := strings.ToUpper(schema) + ` "other'`
	t.Cleanup(func() {
		assert.NoError(t, errOf(pool.Exec(context.Background(), `DROP SCHEMA `+pgx.Identifier{other}.Sanitize()+` CASCADE`)))
	})
	var (
		stores [2]*pgstore.Store
		wakes  [2]chan struct{}
		err    error
	)
	stores[0] = newStore(t, pool)
	stores[1], err = pgstore.New(t.Context(), pool, &pgstore.Options{Schema: other})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(stores))
	for i, store := range stores {
		wakes[i] = make(chan struct{}, 100)
		go func() { ended <- store.Listen(ctx, func() { wakes[i] <- struct{}{} }) }()
		receive(t, wakes[i]) // it listens
	}
	for i := range 3 {
		applyAll(t, stores[0], batch(i, 1))
		receive(t, wakes[0])
	}
	applyAll(t, stores[1], batch(0, 1))
	receive(t, wakes[1])
	assert.Never(t, func() bool { return len(wakes[1]) > 0 }, 50*time.Millisecond, time.Millisecond)
	for i, want := range []int{3, 1} {
		claimed, err := stores[i].Claim(t.Context(), claimOf("w", 100))
		require.NoError(t, err)
		assert.Len(t, claimed.Changes, want)
	}
	cancel()
	for range stores {
		assert.ErrorIs(t, <-ended, context.Canceled)
	}
}

// TestListen_pooler: through PgBouncer an Engine polls. It reports that once.
func TestListen_pooler(t *testing.T) {
	t.Parallel()
	server := postgrestest.StartTB(t)
	bouncer, err := postgrestest.StartBouncer(t.Context(), server)
	if errors.Is(err, postgrestest.ErrNoBouncer) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, bouncer.Stop()) })
	l := listen(t, server.DSN(), func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.ConnConfig.Host, c.ConnConfig.Port = filepath.Dir(bouncer.Socket()), 5432
		c.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", bouncer.Socket())
		}
	})
	require.ErrorIs(t, receive(t, l.failed), errors.ErrUnsupported)
	assert.Never(t, func() bool { return len(l.failed) > 0 }, 2*time.Second, 20*time.Millisecond)
	assert.Zero(t, l.connections(t.Context()))
}

// D20, D22: what a job of another process redrives is claimed without a poll.
func TestStore_wakesEnginesAfterJobs(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	store := newStore(t, newPool(t, dsn, nil))
	applyAll(t, store, batch(7, 1))
	refuse(t, store, "psp")
	l := listen(t, dsn, nil)
	l.ready(func(key string) { enqueueKey(t, store, key) })
	time.Sleep(200 * time.Millisecond) // the Engine has claimed after each wake-up before
	require.NoError(t, errOf(store.AddJob(t.Context(), durable.Job{PerSecond: 10})))
	_, changes, err := store.WorkJob(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	l.await("7")
}
