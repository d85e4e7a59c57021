package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Store keeps intents in tables of PostgreSQL. New returns one. It is safe for concurrent use.
// Any number of stores, on any number of machines, may share the tables. There is nothing to
// close.
type Store struct {
	pool     *pgxpool.Pool
	is       *statements
	joined   *statements // of WithTx, with a notification
	quiet    *statements // of WithTx, without one
	notifier notifier
}

var (
	_ driver.Store    = (*Store)(nil)
	_ driver.Listener = (*Store)(nil)
)

// transact calls work with a transaction that work commits, and again after a deadlock or the
// like.
func (s *Store) transact(ctx context.Context, work func(t *pgkit.Transaction) error) error {
	return pgkit.Transact(ctx, s.pool, settings, work)
}

// send sends one statement by itself.
func (s *Store) send(ctx context.Context, statement *pgkit.Statement) error {
	return s.ask(ctx, func() *pgkit.Statement { return statement })
}

// ask is send for a statement with a result. statement is called anew for each try.
func (s *Store) ask(ctx context.Context, statement func() *pgkit.Statement) error {
	return pgkit.Retry(ctx, func() error { return pgkit.PGX(s.pool).Send(ctx, statement()) })
}

// Reap implements driver.Store. It reads first, without a lock: usually no lease is over.
func (s *Store) Reap(ctx context.Context, limit int) (changes []driver.Change, err error) {
	found := false
	err = s.send(ctx, &pgkit.Statement{Text: s.is.findLost, Scan: func(from pgkit.Row) error { return from.Scan(&found) }})
	if err != nil || !found || limit <= 0 {
		return nil, err
	}
	err = s.transact(ctx, func(t *pgkit.Transaction) error {
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
	err = t.Send(ctx, &pgkit.Statement{Text: s.is.lockDead, Scan: name}, &pgkit.Statement{Text: s.is.orphanedWorkers, Scan: name})
	if err != nil {
		return nil, err
	}
	var (
		rows []*row
		now  time.Time
		w    writing
	)
	err = t.Send(ctx, &pgkit.Statement{Text: s.is.lockLost, Args: []any{dead, int64(limit)}, Scan: into(&rows)}, clockInto(&now))
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		e := driver.Event{Kind: driver.EventLeaseExpired, Intent: driver.Intent{ID: r.ID}, Worker: r.Worker}
		if result := w.judge(r, &e, now); result.Err == nil {
			changes = append(changes, result.Change)
		}
	}
	return changes, w.write(ctx, withLastStatement{t, &pgkit.Statement{Text: s.is.deleteExpiredWorkers, Args: []any{dead}}}, s.is)
}

// withLastStatement has one more statement before the commit.
type withLastStatement struct {
	*pgkit.Transaction

	last *pgkit.Statement
}

// Commit implements ending.
func (f withLastStatement) Commit(ctx context.Context, statements ...*pgkit.Statement) error {
	return f.Transaction.Commit(ctx, append(statements, f.last)...)
}

// sweepBatch is the number of intents that are deleted in one commit.
const sweepBatch = 1000

// Sweep implements driver.Store. It deletes a thousand at a time.
func (s *Store) Sweep(ctx context.Context, ttl time.Duration, limit int) (swept int, err error) {
	for swept < limit {
		n, want := 0, min(sweepBatch, limit-swept)
		err := s.send(ctx, &pgkit.Statement{
			Text: s.is.sweep, Args: []any{ceil(ttl), int64(want)}, Scan: func(from pgkit.Row) error { return from.Scan(&n) },
		})
		swept += n
		if err != nil || n < want {
			return swept, err
		}
	}
	return swept, ctx.Err()
}

// Find implements durable.Store.
func (s *Store) Find(ctx context.Context, id idempotency.ID) (driver.Record, error) {
	if err := driver.ValidID(id); err != nil {
		return driver.Record{}, err
	}
	var rows []*row
	err := s.send(ctx, &pgkit.Statement{Text: s.is.find, Args: []any{nameOf(&id)}, Scan: into(&rows)})
	if err != nil {
		return driver.Record{}, err
	}
	if len(rows) == 0 {
		return driver.Record{}, driver.ErrNotFound
	}
	return rows[0].Record, nil
}
