package pgstore

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// verbs are those of idempotency.Store, on a pool, a connection, or within a
// transaction.
type verbs struct {
	querier

	is *statements

	// transact runs f in a transaction that is read committed, whatever the
	// database's default. nil within a transaction of the caller's: what fails in it
	// cannot be tried again, and how it commits is none of our business.
	transact func(ctx context.Context, f func(querier) error) error

	repeats *repeats

	// check is Check.
	check func(ctx context.Context) error

	// lane is for what must not queue behind the work. nil within a transaction.
	lane *lane
}

// on are the verbs on another connection.
func (v *verbs) on(c connection) *verbs {
	return &verbs{querier: c, is: v.is, transact: c.readCommitted, repeats: v.repeats}
}

// inside a transaction of the caller's.
func (v *verbs) inside() bool { return v.transact == nil }

// Check implements [driver.Store].
func (v *verbs) Check(ctx context.Context) error { return v.check(ctx) }

// Reserve implements idempotency.Store.
func (v *verbs) Reserve(ctx context.Context, claim driver.Claim) (driver.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return driver.Reservation{}, err
	}
	r := reserve{claim: &claim}
	err := v.safely(ctx, func(v *verbs) error { return r.try(ctx, v) })
	if err != nil && !errors.Is(err, errMoved) {
		return driver.Reservation{}, err
	}
	return r.answer, nil
}

// Renew implements idempotency.Store.
func (v *verbs) Renew(ctx context.Context, lease driver.Lease, d time.Duration) error {
	if err := driver.ValidLease(d); err != nil {
		return err
	}
	return v.write(ctx, min(longestQueue, d/leasePart), &lease, v.is.renew, leaseArgs(&lease, microseconds(d)), func(s driver.Status) bool {
		return s == driver.InProgress
	})
}

// Complete implements idempotency.Store.
func (v *verbs) Complete(ctx context.Context, lease driver.Lease, outcome driver.Outcome) error {
	if err := outcome.Validate(); err != nil {
		return err
	}
	result, err := resultArgs(&outcome)
	if err != nil {
		return err
	}
	args := leaseArgs(&lease, int16(outcome.Status))
	args = append(append(args, result[:]...), microseconds(outcome.TTL))
	return v.write(ctx, longestQueue, &lease, v.is.complete, args, func(s driver.Status) bool {
		return s == driver.InProgress || outcome.Status != driver.Unknown
	})
}

// Release implements idempotency.Store.
func (v *verbs) Release(ctx context.Context, lease driver.Lease) error {
	return v.write(ctx, longestQueue, &lease, v.is.release, leaseArgs(&lease), func(driver.Status) bool { return true })
}

// Load implements idempotency.Store.
func (v *verbs) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := id.Validate(); err != nil {
		return driver.Record{}, err
	}
	var record driver.Record
	err := v.safely(ctx, func(v *verbs) error {
		var now time.Time
		var err error
		record, err = scanRecord(v.row(ctx, v.is.load, idArgs(&id)...), &now)
		if noRows(err) || err == nil && record.Expired(now) {
			return driver.ErrNotFound
		}
		return err
	})
	if err != nil {
		return driver.Record{}, err
	}
	return record, nil
}

// Abandon implements idempotency.Store.
func (v *verbs) Reap(ctx context.Context, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	var records []driver.Record
	err := v.soon(ctx, longestQueue, func(v *verbs) (err error) {
		records, err = v.list(ctx, v.is.abandonAll, limit)
		return err
	})
	return records, err
}

// unknownPage is how many records Unknown reads at once.
const unknownPage = 100

// Unknown implements idempotency.Store.
func (v *verbs) Unknown(ctx context.Context, scope string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		statement := v.is.unknownOf
		if scope == "" {
			statement = v.is.unknownOfAll
		}
		if !storable(scope) {
			return // no record has such a scope
		}
		last := driver.ID{Scope: scope} // no key is empty
		for {
			var page []driver.Record
			err := v.safely(ctx, func(v *verbs) (err error) {
				page, err = v.list(ctx, statement, idArgs(&last, unknownPage)...)
				return err
			})
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			if len(page) < unknownPage {
				return
			}
			last = page[len(page)-1].ID
		}
	}
}

// list reads records.
func (v *verbs) list(ctx context.Context, statement string, args ...any) ([]driver.Record, error) {
	var records []driver.Record
	err := v.rows(ctx, func(from row) error {
		record, err := scanRecord(from)
		records = append(records, record)
		return err
	}, statement, args...)
	return records, err
}

// Sweep implements idempotency.Store.
func (v *verbs) Sweep(ctx context.Context, limit int) (int, error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	n := 0
	for _, statement := range [...]string{v.is.sweep, v.is.sweepLapsed} {
		if n >= limit {
			break
		}
		err := v.safely(ctx, func(v *verbs) error {
			swept, err := v.exec(ctx, statement, limit-n)
			n += int(swept)
			return err
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// write sends a statement that changes the record which the lease holds, if nobody
// has a lock on it. queue is how long it may wait for a connection. allowed says whether a record of that status is changed by it.
func (v *verbs) write(ctx context.Context, queue time.Duration, lease *driver.Lease, statement string, args []any,
	allowed func(driver.Status) bool,
) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	if !storable(lease.Owner) {
		return driver.ErrLeaseLost
	}
	return v.soon(ctx, queue, func(v *verbs) error {
		n, err := v.exec(ctx, statement, args...)
		if err != nil || n > 0 {
			return err
		}
		return v.unwritten(ctx, lease, allowed)
	})
}

// unwritten finds out why a statement on a lease has changed nothing: because the
// record is not that execution's, or because its row is locked.
func (v *verbs) unwritten(ctx context.Context, lease *driver.Lease, allowed func(driver.Status) bool) error {
	var status int16
	err := v.row(ctx, v.is.owned, leaseArgs(lease)...).Scan(&status)
	switch {
	case noRows(err):
		return driver.ErrLeaseLost
	case err != nil:
		return err
	case !allowed(driver.Status(status)):
		return driver.ErrLeaseLost
	default:
		return errLocked
	}
}

// storable: no name is another, and PostgreSQL would refuse to look for it.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
