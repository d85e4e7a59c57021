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

// Reap implements driver.Store. It reads first, without a lock: usually no lease is over.
func (s *Store) Reap(ctx context.Context, limit int) (changes []driver.Change, err error) {
	found, err := sqlquery.Exists(ctx, s.db, sqlquery.FindLost)
	if err != nil || !found || limit <= 0 {
		return nil, err
	}
	err = s.db.transact(ctx, func(t *pgkit.Transaction) error {
		changes, err = s.reap(ctx, t, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return changes, nil
}

// reap finds the dead workers first, and then their intents: others may have claimed some
// meanwhile.
func (s *Store) reap(ctx context.Context, t *pgkit.Transaction, limit int) (changes []driver.Change, err error) {
	var dead []string
	name := func(from pgkit.Row) error {
		dead = append(dead, "")
		return from.Scan(&dead[len(dead)-1])
	}
	is := s.db.is
	err = t.Send(ctx, &pgkit.Statement{Text: is.of(lockDead), Scan: name}, &pgkit.Statement{Text: is.of(orphanedWorkers), Scan: name})
	if err != nil {
		return nil, err
	}
	var (
		rows []*row
		now  time.Time
		w    writing
	)
	err = t.Send(ctx, &pgkit.Statement{Text: is.of(lockLost), Args: []any{dead, int64(limit)}, Scan: into(&rows)}, clockInto(&now))
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		e := driver.Event{Kind: driver.EventLeaseExpired, Intent: driver.Intent{ID: r.ID}, Worker: r.Worker}
		if result := w.judge(r, &e, now); result.Err == nil {
			changes = append(changes, result.Change)
		}
	}
	return changes, t.Commit(ctx, append(w.statements(is, false), is.statement(deleteExpiredWorkers, dead))...)
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
