package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Store keeps records in a SQLite database. Open and New make one. It is safe for
// concurrent use. Any number of stores, in any number of processes of one machine,
// may share a file.
type Store struct {
	operations

	kit                             *sqlitekit.DB
	forReading, forWriting, forWork statements

	// active has the ID of each transaction that is open or waits to be opened.
	active sync.Map

	// diskFailed means that the last write failed because of the disk.
	diskFailed atomic.Bool
}

var _ idempotency.Transactor = (*Store)(nil)

// InCallerTx implements idempotency.Transactor. It returns false; see Store.WithTx.
func (s *Store) InCallerTx() bool { return false }

// DB returns the database, for the service's own tables. It is the database of New,
// or that of Open, which Close closes.
func (s *Store) DB() *sql.DB { return s.kit.Work }

// Check implements idempotency.Store.
func (s *Store) Check(ctx context.Context) error { return s.kit.Check(ctx) }

func (s *Store) reading(ctx context.Context, query func(context.Context, statements) error) error {
	return s.kit.Reading(ctx, func(ctx context.Context) error { return query(ctx, s.forReading) })
}

// writing is for the holders of leases.
func (s *Store) writing(ctx context.Context, query func(context.Context, statements) error) error {
	return s.kit.Exclusive(ctx, &sqlitekit.Waiter{HoldsLease: true}, s.kit.LockTimeout(),
		func(ctx context.Context) error { return query(ctx, s.forWriting) })
}

// Reserve implements idempotency.Store. It reads without a lock, and writes only what the
// record requires.
//
// A claim for an operation that has a transaction of this store gets DecisionInProgress at
// once. If the transaction is of another process, the claim waits for the write lock
// and then finds the record.
func (s *Store) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	return s.claim(ctx, &claim, func(f *finding) (*idempotency.Record, error) { return s.apply(ctx, f, &claim) })
}

var (
	// errActive means that the operation has a transaction of this store.
	errActive = errors.New("sqlitestore: a transaction of the operation is open")

	// errChanged means that the record has changed since it was judged.
	errChanged = errors.New("sqlitestore: the record has changed")
)

// claim answers a claim by the record, or by write, which does the step that the
// record requires. A nil record of write means errChanged.
func (s *Store) claim(
	ctx context.Context, claim *idempotency.Claim, write func(*finding) (*idempotency.Record, error),
) (idempotency.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, err
	}
	for {
		f, err := s.find(ctx, claim)
		if err != nil {
			return idempotency.Reservation{}, err
		}
		if f.step == idempotency.StepLeave {
			return f.answer, nil
		}
		record, err := write(&f)
		switch {
		case errors.Is(err, errActive):
			return idempotency.Reservation{Decision: idempotency.DecisionInProgress, Record: f.answer.Record}, nil
		case errors.Is(err, ErrLocked):
			return idempotency.Reservation{}, fmt.Errorf("%w: %w", idempotency.ErrStoreBusy, err)
		case record == nil && err == nil, errors.Is(err, errChanged):
			continue
		case err != nil:
			return idempotency.Reservation{}, err
		}
		f.answer.Record = *record
		return f.answer, nil
	}
}

// apply does the step. The result is nil if the record has changed.
func (s *Store) apply(ctx context.Context, f *finding, claim *idempotency.Claim) (record *idempotency.Record, err error) {
	if _, active := s.active.Load(claim.ID); active {
		return nil, errActive
	}
	err = s.kit.Exclusive(ctx, &sqlitekit.Waiter{}, s.kit.LockTimeout(), func(ctx context.Context) error {
		record, err = s.forWriting.apply(ctx, f.step, f.judged, claim)
		return err
	})
	return record, s.written(err)
}

// written remembers a full or broken disk.
func (s *Store) written(err error) error {
	if sqlitekit.HasCode(err, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) {
		s.diskFailed.Store(true)
	}
	return err
}

// probe writes to the disk if the last write failed. SQLite writes a transaction when
// it commits: without the probe, work would begin that cannot be committed.
func (s *Store) probe(ctx context.Context) error {
	if !s.diskFailed.Load() {
		return nil
	}
	err := s.kit.Retry(ctx, s.kit.LockTimeout(), func() error {
		_, err := s.kit.Sweeper.ExecContext(context.WithoutCancel(ctx), probeSQL)
		return err
	})
	if err == nil {
		s.diskFailed.Store(false)
	}
	return err
}

// Sweep implements idempotency.Store. Other writers can write between its batches. It
// returns early if the write lock is not free. Its deletions are not flushed to disk.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	found, err := s.exists(ctx, findExpired)
	if err != nil || !found || limit <= 0 {
		return 0, err
	}
	return s.kit.Sweep(ctx, limit, func(ctx context.Context, tx *sql.Tx, limit int) (int, error) {
		return sqlitekit.Affected(tx.ExecContext(ctx, sweep, limit))
	})
}

// Reap implements idempotency.Store. It waits no longer than Sweep, and is flushed to
// disk.
func (s *Store) Reap(ctx context.Context, limit int) (all []idempotency.Record, err error) {
	found, err := s.exists(ctx, findDead)
	if err != nil || !found || limit <= 0 {
		return nil, err
	}
	for n := sqlitekit.SweepBatch; n == sqlitekit.SweepBatch && len(all) < limit && err == nil; {
		var batch []idempotency.Record
		err = s.kit.Exclusive(ctx, &sqlitekit.Waiter{}, sqlitekit.SweepTimeout, func(ctx context.Context) error {
			batch, err = readRecords(ctx, s.forWriting[reap], min(sqlitekit.SweepBatch, limit-len(all)))
			return err
		})
		all, n = append(all, batch...), len(batch)
	}
	return all, sqlitekit.UnlessLocked(err)
}

// exists reports without a lock whether a statement finds a record.
func (s *Store) exists(ctx context.Context, statement string) (bool, error) {
	n := 0
	err := s.reading(ctx, func(ctx context.Context, all statements) (err error) {
		n, err = sqlitekit.ReadRows(ctx, all[statement], nil, func(*sql.Rows) error { return nil })
		return err
	})
	return n > 0, err
}

// Close closes the store and the database of Open, but not that of New. An open
// transaction may still be committed; everything else fails with ErrClosed. A second
// call does nothing.
func (s *Store) Close() error {
	var errs []error
	for _, statement := range s.forWork {
		if prepared, ok := statement.(*sql.Stmt); ok {
			errs = append(errs, prepared.Close())
		}
	}
	return errors.Join(append(errs, s.kit.Close())...)
}
