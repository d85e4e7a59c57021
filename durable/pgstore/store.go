package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
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
	_ driver.Store    = (*Store)(nil)
	_ driver.Listener = (*Store)(nil)
)

func newStore(pool *pgxpool.Pool, schema *pgkit.Schema) *Store {
	d := &database{pool, &texts{schema: schema}}
	// The texts of WithTx are others: a plan that was made without our settings must not be kept for those with them.
	return &Store{verbs: sqlquery.On(d), db: d, joined: &texts{schema: schema, end: ` /* within */`}}
}

// SetHold implements driver.Store.
func (s *Store) SetHold(ctx context.Context, hold driver.Hold) error {
	err := s.verbs.SetHold(ctx, hold)
	if err == nil && hold.ReleasedBy != "" {
		s.notify(ctx)
	}
	return err
}

// WorkJob implements driver.Store.
func (s *Store) WorkJob(ctx context.Context, limit int) (driver.Job, []driver.Change, error) {
	job, changes, err := s.verbs.WorkJob(ctx, limit)
	if slices.ContainsFunc(changes, func(c driver.Change) bool { return !c.Record.NextAt.After(c.Record.UpdatedAt) }) {
		s.notify(ctx)
	}
	return job, changes, err
}

// sweepBatch is the number of intents that are deleted in one commit.
const sweepBatch = 1000

// Sweep implements driver.Store. It deletes a thousand at a time.
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
