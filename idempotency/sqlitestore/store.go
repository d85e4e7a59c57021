package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Store keeps records in a SQLite database. Open and New make one. It is safe for
// concurrent use; any number of stores, in any number of processes of one
// machine, may share a file.
type Store struct {
	kit         *sqlitekit.DB
	read, write *statements
	joined      [3]*sql.Stmt // on the work's database: see prepareWork
	works       works
}

var _ driver.Transactor = (*Store)(nil)

// Enclosed implements idempotency.Transactor: false. Store.Within gives one that is.
func (s *Store) InCallerTx() bool { return false }

// DB is the database, for the work's own tables: the one that New was given, or
// that of Open. It is closed with the store in the latter case only.
func (s *Store) DB() *sql.DB { return s.kit.Work }

// Check implements driver.Store.
func (s *Store) Check(ctx context.Context) error { return s.kit.Check(ctx) }

// Renew implements idempotency.Store.
func (s *Store) Renew(ctx context.Context, lease driver.Lease, d time.Duration) error {
	if err := driver.ValidLease(d); err != nil {
		return err
	}
	return s.change(ctx, &lease, s.write.renew, append(leaseArgs(&lease), millis(d)))
}

// Complete implements idempotency.Store.
func (s *Store) Complete(ctx context.Context, lease driver.Lease, outcome driver.Outcome) error {
	if err := outcome.Validate(); err != nil {
		return err
	}
	return s.change(ctx, &lease, s.write.complete, completeArgs(&lease, &outcome))
}

// Release implements idempotency.Store.
func (s *Store) Release(ctx context.Context, lease driver.Lease) error {
	return s.change(ctx, &lease, s.write.release, leaseArgs(&lease))
}

func (s *Store) change(ctx context.Context, lease *driver.Lease, change sqlitekit.Statement, args []any) error {
	if err := lease.ID.Validate(); err != nil {
		return err
	}
	return s.alone(ctx, &ticket{Ticket: sqlitekit.Ticket{Holds: true}}, s.kit.Patience(), func(ctx context.Context) error {
		return writeLease(ctx, change, args)
	})
}

// Load implements idempotency.Store.
func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := id.Validate(); err != nil {
		return driver.Record{}, err
	}
	return found(s.readRecord(ctx, id))
}

// found is what Load says of what it has read.
func found(r *driver.Record, clock time.Time, err error) (driver.Record, error) {
	switch {
	case err != nil:
		return driver.Record{}, err
	case r == nil || r.Expired(clock):
		return driver.Record{}, driver.ErrNotFound
	default:
		return *r, nil
	}
}

// unknownPage is how many records Unknown reads at a time.
const unknownPage = 100

// Unknown implements idempotency.Store. A record that is settled while its page is
// gone through may still be given.
func (s *Store) Unknown(ctx context.Context, scope string) iter.Seq2[driver.Record, error] {
	return pages(scope, func(after driver.ID) (page []driver.Record, err error) {
		err = s.kit.Reading(ctx, func(ctx context.Context) error {
			page, err = readRecords(ctx, s.read.unknown, append(idArgs(after), unknownPage))
			return err
		})
		return page, err
	})
}

// pages are the records of a scope, or of all if it is empty, a page at a time.
func pages(
	scope string, read func(after driver.ID) ([]driver.Record, error),
) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		after := driver.ID{Scope: scope} // before all its records, none of which lacks a key
		for {
			page, err := read(after)
			if err != nil {
				yield(driver.Record{}, err)
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

// readRecord reads without a lock.
func (s *Store) readRecord(ctx context.Context, id driver.ID) (r *driver.Record, clock time.Time, err error) {
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		r, clock, err = readRecord(ctx, s.read.load, id)
		return err
	})
	return r, clock, err
}

// Close ends the store, and with it the database that Open opened, but not the
// one that New was given. A transaction that is open may still be committed; all
// else fails with ErrClosed. Calling it again does nothing.
func (s *Store) Close() error {
	var errs []error
	for _, prepared := range s.joined {
		if prepared != nil {
			errs = append(errs, prepared.Close())
		}
	}
	return errors.Join(append(errs, s.kit.Close())...)
}
