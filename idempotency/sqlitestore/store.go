package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Store keeps records in a SQLite database. Open and New make one. It is safe for
// concurrent use; any number of stores, in any number of processes of one
// machine, may share a file.
type Store struct {
	options Options
	file    file
	closed  atomic.Bool

	// db is where the work's transactions come from.
	db           *sql.DB
	owned        bool          // Close closes db
	busyTimeout  int64         // of db's connections, in milliseconds
	hold, finish *sql.Stmt     // on db
	readers      chan struct{} // a place for each connection of read

	// What follows is the store's own, so that neither a small pool nor the
	// settings of the work stand in its way.
	read    pool         // reads never wait for a writer
	full    pool         // one connection, which flushes each commit: synchronous=FULL
	relaxed pool         // one connection, which does not: see Store.writer
	sweeper pool         // like relaxed, and leaves checkpoints to Sweep
	logged  atomic.Int64 // what was swept and not brought into the file, about

	turn turn
}

var (
	_ idempotency.Store      = (*Store)(nil)
	_ idempotency.Transactor = (*Store)(nil)
)

// pool is connections with the same settings, and the statements prepared there.
type pool struct {
	db *sql.DB
	*statements
}

// ErrClosed means that the store is closed.
var ErrClosed = errors.New("sqlitestore: closed")

// DB is the database, for the work's own tables: the one that New was given, or
// that of Open. It is closed with the store in the latter case only.
func (s *Store) DB() *sql.DB { return s.db }

// Renew implements idempotency.Store.
func (s *Store) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	if err := idempotency.ValidLease(d); err != nil {
		return err
	}
	return s.write(ctx, &lease, s.full.renew, append(leaseArgs(&lease), millis(d)))
}

// Complete implements idempotency.Store.
func (s *Store) Complete(ctx context.Context, lease idempotency.Lease, outcome idempotency.Outcome) error {
	if err := outcome.Validate(); err != nil {
		return err
	}
	return s.write(ctx, &lease, s.full.complete, outcomeArgs(&lease, &outcome))
}

// Release implements idempotency.Store.
func (s *Store) Release(ctx context.Context, lease idempotency.Lease) error {
	return s.write(ctx, &lease, s.full.release, leaseArgs(&lease))
}

func (s *Store) write(ctx context.Context, lease *idempotency.Lease, change statement, args []any) error {
	if err := lease.ID.Validate(); err != nil {
		return err
	}
	return s.alone(ctx, &ticket{}, s.patience(), func(ctx context.Context) error {
		return writeLease(ctx, change, args)
	})
}

// Load implements idempotency.Store.
func (s *Store) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	if err := id.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	r, clock, err := s.readRecord(ctx, id)
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case r == nil || r.Expired(clock):
		return idempotency.Record{}, idempotency.ErrNotFound
	default:
		return *r, nil
	}
}

// readRecord reads without a lock. Readers are as many as there are connections;
// the others wait for one.
//
// Once it has a connection, a statement is not given the context: it takes
// microseconds, and SQLite can be interrupted only between its steps, so that all
// the context would do is cost a goroutine.
func (s *Store) readRecord(ctx context.Context, id idempotency.ID) (r *idempotency.Record, clock time.Time, err error) {
	err = s.reading(ctx, func(ctx context.Context) error {
		r, clock, err = readRecord(ctx, s.read.load, id)
		return err
	})
	return r, clock, err
}

func (s *Store) reading(ctx context.Context, query func(context.Context) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.retry(ctx, s.patience(), func() error { return query(context.WithoutCancel(ctx)) })
}

// alone calls write when it is the ticket's turn, and again as long as SQLite's
// write lock is with somebody else. The waiting ends with ctx; a statement that
// has begun is brought to its end, so that its answer is never in doubt for the
// sake of an impatient caller.
func (s *Store) alone(
	ctx context.Context, k *ticket, patience time.Duration, write func(context.Context) error,
) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := s.queue(ctx, k, s.patience()); err != nil {
		return err
	}
	defer s.turn.leave(k)
	if err := s.file.check(); err != nil {
		return err
	}
	err := s.retry(ctx, patience, func() error { return write(context.WithoutCancel(ctx)) })
	if k.over != nil && isBusy(err) {
		s.turn.refuse(k.over) // a transaction of another process is open, perhaps this record's
		return errWorking
	}
	return err
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// Close ends the store, and with it the database that Open opened, but not the
// one that New was given. Transactions that are open may still be committed; all
// else fails with ErrClosed. Calling it again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.closePools()
}

func (s *Store) closePools() error {
	var errs []error
	for _, p := range []*pool{&s.read, &s.full, &s.relaxed, &s.sweeper} {
		if p.db != nil {
			errs = append(errs, p.db.Close())
		}
	}
	if s.owned && s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sqlitestore: closing: %w", err)
	}
	return nil
}
