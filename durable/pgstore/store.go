package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Store keeps intents in tables of PostgreSQL. New returns one. It is safe for concurrent use.
// Any number of stores, on any number of machines, may share the tables. There is nothing to
// close.
type Store struct {
	verbs

	db       *database
	joined   *texts // of WithTx
	notifier notifier
}

type verbs = sqlquery.Verbs

var (
	_ durable.Store    = (*Store)(nil)
	_ durable.Listener = (*Store)(nil)
)

func newStore(pool *pgxpool.Pool, schema *pgkit.Schema) *Store {
	d := &database{pool, &texts{schema: schema}}
	// The texts of WithTx are others: a plan that was made without our settings must not be kept for those with them.
	return &Store{verbs: sqlquery.On(d), db: d, joined: &texts{schema: schema, end: ` /* within */`}}
}

// SetHold implements durable.Store.
func (s *Store) SetHold(ctx context.Context, hold durable.Hold) error {
	err := s.verbs.SetHold(ctx, hold)
	if err == nil && hold.ReleasedBy != "" {
		s.notify(ctx)
	}
	return err
}

// WorkJob implements durable.Store.
func (s *Store) WorkJob(ctx context.Context, limit int) (durable.Job, []durable.Change, error) {
	job, changes, err := s.verbs.WorkJob(ctx, limit)
	if slices.ContainsFunc(changes, func(c durable.Change) bool { return !c.Record.NextAt.After(c.Record.UpdatedAt) }) {
		s.notify(ctx)
	}
	return job, changes, err
}

// sweepBatch is the number of intents that are deleted in one commit.
const sweepBatch = 1000

// Sweep implements durable.Store. It deletes a thousand at a time.
func (s *Store) Sweep(ctx context.Context, ttl time.Duration, limit int) (swept int, err error) {
	for swept < limit {
		n, want := 0, min(sweepBatch, limit-swept)
		err := s.db.send(ctx, &pgkit.Statement{
			Text: s.db.is.of(sweep), Args: []any{ceil(ttl), int64(want)}, Scan: func(from pgkit.Row) error { return from.Scan(&n) },
		})
		swept += n
		if err != nil || n < want {
			return swept, err
		}
	}
	return swept, ctx.Err()
}

// Heartbeat implements durable.Store. If the pool has no connection within a ninth of the lease,
// it makes one: a worker that waits for a connection is not dead.
func (s *Store) Heartbeat(ctx context.Context, worker string, lease time.Duration) (now time.Time, err error) {
	if err := durable.ValidateHeartbeat(worker, lease); err != nil {
		return time.Time{}, err
	}
	statement := &pgkit.Statement{Text: s.db.is.of(heartbeat), Args: []any{worker, ceil(lease)}, Scan: timeInto(&now)}
	if lease == 0 { // without it, the lease only ends later
		err = s.db.send(ctx, statement)
		return now, err
	}
	conn, release, err := s.soon(ctx, lease/9)
	if err != nil {
		return time.Time{}, err
	}
	defer release()
	err = pgkit.Retry(ctx, func() error { return conn.Send(ctx, statement) })
	return now, err
}

// soon returns a connection of the pool, or one of its own if the pool has none in that time.
func (s *Store) soon(ctx context.Context, maxWait time.Duration) (conn pgkit.Sender, release func(), err error) {
	limited, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	pooled, err := s.db.pool.Acquire(limited)
	if err == nil {
		return pgkit.PGX(pooled.Conn()), pooled.Release, nil
	}
	if limited.Err() == nil || ctx.Err() != nil {
		return nil, nil, err
	}
	beside, err := s.beside(ctx)
	if err != nil {
		return nil, nil, err
	}
	return pgkit.PGX(beside), beside.Close, nil
}

// ceil returns a duration in microseconds, rounded up: no lease is shorter than requested.
func ceil(d time.Duration) int64 {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond).Microseconds()
}
