package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Store keeps records in a SQLite database. Open and New make one. It is safe for
// concurrent use; any number of stores, in any number of processes of one
// machine, may share a file.
type Store struct {
	options Options
	scripts []string // of the schema
	file    file
	closed  atomic.Bool

	// db is where the transactions of joined work come from.
	db          *sql.DB
	owned       bool         // Close closes db
	busyTimeout int64        // of db's connections, in milliseconds
	joined      [3]*sql.Stmt // on db: see prepareWork

	// What follows is the store's own, so that neither a small pool nor the
	// settings of the work stand in its way.
	read    pool          // reads never wait for a writer
	readers chan struct{} // a place for each connection of read
	write   pool          // one connection, which flushes each commit: synchronous=FULL
	sweeper pool          // one that does not, and leaves checkpoints to Sweep
	logged  atomic.Int64  // what was swept and not brought into the file, about

	turn turn
}

var _ idempotency.Transactor = (*Store)(nil)

// pool is connections with the same settings, and the statements prepared there.
type pool struct {
	db *sql.DB
	*statements
}

// ErrClosed means that the store is closed.
var ErrClosed = errors.New("sqlitestore: closed")

// Enclosed implements idempotency.Transactor: false. Store.Within gives one that is.
func (s *Store) Enclosed() bool { return false }

// DB is the database, for the work's own tables: the one that New was given, or
// that of Open. It is closed with the store in the latter case only.
func (s *Store) DB() *sql.DB { return s.db }

// Renew implements idempotency.Store.
func (s *Store) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	if err := idempotency.ValidLease(d); err != nil {
		return err
	}
	return s.change(ctx, &lease, s.write.renew, append(leaseArgs(&lease), millis(d)))
}

// Complete implements idempotency.Store.
func (s *Store) Complete(ctx context.Context, lease idempotency.Lease, outcome idempotency.Outcome) error {
	if err := outcome.Validate(); err != nil {
		return err
	}
	return s.change(ctx, &lease, s.write.complete, completeArgs(&lease, &outcome))
}

// Release implements idempotency.Store.
func (s *Store) Release(ctx context.Context, lease idempotency.Lease) error {
	return s.change(ctx, &lease, s.write.release, leaseArgs(&lease))
}

func (s *Store) change(ctx context.Context, lease *idempotency.Lease, change statement, args []any) error {
	if err := lease.ID.Validate(); err != nil {
		return err
	}
	return s.alone(ctx, &ticket{holds: true}, s.patience(), func(ctx context.Context) error {
		return writeLease(ctx, change, args)
	})
}

// Load implements idempotency.Store.
func (s *Store) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	if err := id.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	return found(s.readRecord(ctx, id))
}

// found is what Load says of what it has read.
func found(r *idempotency.Record, clock time.Time, err error) (idempotency.Record, error) {
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case r == nil || r.Expired(clock):
		return idempotency.Record{}, idempotency.ErrNotFound
	default:
		return *r, nil
	}
}

// unknownPage is how many records Unknown reads at a time.
const unknownPage = 100

// Unknown implements idempotency.Store. A record that is settled while its page is
// gone through may still be given.
func (s *Store) Unknown(ctx context.Context, scope string) iter.Seq2[idempotency.Record, error] {
	return pages(scope, func(after idempotency.ID) (page []idempotency.Record, err error) {
		err = s.reading(ctx, func(ctx context.Context) error {
			page, err = readRecords(ctx, s.read.unknown, append(idArgs(after), unknownPage))
			return err
		})
		return page, err
	})
}

// pages are the records of a scope, or of all if it is empty, a page at a time.
func pages(
	scope string, read func(after idempotency.ID) ([]idempotency.Record, error),
) iter.Seq2[idempotency.Record, error] {
	return func(yield func(idempotency.Record, error) bool) {
		after := idempotency.ID{Scope: scope} // before all its records, none of which lacks a key
		for {
			page, err := read(after)
			if err != nil {
				yield(idempotency.Record{}, err)
				return
			}
			for _, r := range page {
				if scope != "" && r.Scope != scope || !yield(r, nil) {
					return
				}
				after = r.ID
			}
			if len(page) < unknownPage {
				return
			}
		}
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
	if err := s.queue(ctx, k, patience); err != nil {
		return err
	}
	defer s.turn.leave(k)
	if err := s.file.check(); err != nil {
		return err
	}
	return s.retry(ctx, patience, func() error { return write(context.WithoutCancel(ctx)) })
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// Close ends the store, and with it the database that Open opened, but not the
// one that New was given. A transaction that is open may still be committed; all
// else fails with ErrClosed. Calling it again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.closePools()
}

func (s *Store) closePools() error {
	var errs []error
	for _, p := range []*pool{&s.read, &s.write, &s.sweeper} {
		if p.db != nil {
			errs = append(errs, p.db.Close())
		}
	}
	for _, statement := range s.joined {
		if statement != nil {
			errs = append(errs, statement.Close())
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
