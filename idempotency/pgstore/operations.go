package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/sqlrecord"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// operations implements idempotency.Store, through the store's pool or within a transaction
// of the caller.
type operations struct {
	is        *statements
	schema    *pgkit.Schema
	predictor *replayPredictor
	conns     *connections // nil within a transaction of the caller
	caller    pgkit.Sender // the caller's transaction
}

// within reports whether the operations are part of a transaction of the caller. After an
// error of PostgreSQL nothing can be repeated there.
func (o *operations) within() bool { return o.conns == nil }

// Why a statement had no effect.
var (
	// errMoved means that the record changed between the read and the write.
	errMoved = errors.New("pgstore: the record changed again and again")

	// errLocked means that the lease is valid, but an open transaction has locked the
	// record's row.
	errLocked = errors.New("pgstore: the record is locked by an open transaction")
)

func (o *operations) isRetryable(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, errMoved):
		return true
	default:
		return !o.within() && (errors.Is(err, errLocked) || pgkit.Retryable(err))
	}
}

// run calls f with a connection that acquire returns, or with the caller's transaction. It
// calls f again if its statements had no effect and may have one now, and holds no
// connection between two calls. After a serialization failure, which happens if the
// database's default isolation is stricter than read committed, the next call is read
// committed.
func (o *operations) run(ctx context.Context, acquire func(context.Context) (*connection, error), f func(pgkit.Sender) error) error {
	serializable, began := false, time.Now()
	err := pgkit.Repeat(ctx, o.isRetryable, func(last error) (err error) {
		if o.within() {
			return f(o.caller)
		}
		conn, err := acquire(ctx)
		if err != nil {
			return err
		}
		defer func() {
			conn.closeIfBroken(ctx, err)
			conn.release()
		}()
		through := pgkit.PGX(conn)
		if serializable = serializable || pgkit.HasCode(last, pgkit.SerializationFailure); serializable {
			through = readCommitted{conn}
		}
		if conn.claims {
			return lockError(began, f(limited{conn, through}))
		}
		return f(through)
	})
	return pgkit.Ended(ctx, pgkit.SchemaError(err))
}

// read is run for operations that are no claims and write no lease.
func (o *operations) read(ctx context.Context, f func(pgkit.Sender) error) error {
	if o.within() {
		return o.run(ctx, nil, f)
	}
	return o.run(ctx, o.conns.acquire, f)
}

// readCommitted sends statements as one transaction of that isolation.
type readCommitted struct{ conn *connection }

// Send implements pgkit.Sender.
func (r readCommitted) Send(ctx context.Context, statements ...*pgkit.Statement) error {
	all := slices.Concat([]*pgkit.Statement{{Text: pgkit.Begin}}, statements, []*pgkit.Statement{{Text: "commit"}})
	err := pgkit.PGX(r.conn).Send(ctx, all...)
	if err != nil {
		r.conn.rollBack(ctx)
	}
	return err
}

// Check implements [idempotency.Store]. The error is an ErrSchema that says what to run, a idempotency.ErrInvalid that says which parameter
// of the session to change, or PostgreSQL's.
func (o *operations) Check(ctx context.Context) error {
	return o.run(ctx, o.conns.forClaim, func(through pgkit.Sender) error { return o.check(ctx, through) })
}

func (o *operations) check(ctx context.Context, through pgkit.Sender) error {
	if err := o.schema.Check(ctx, through); err != nil {
		return err
	}
	// In the modes exec and simple_protocol, values come as text, in the form of the session.
	var unreadable error
	err := through.Send(ctx, &pgkit.Statement{Text: `SELECT timestamptz 'epoch', decode('00', 'hex')`, Scan: func(from pgkit.Row) error {
		unreadable = from.Scan(new(time.Time), new([]byte))
		return unreadable
	}})
	if unreadable != nil {
		return fmt.Errorf("%w: pgstore: pgx cannot read times or bytes as this session writes them (want DateStyle ISO and bytea_output hex, "+
			"or another default_query_exec_mode): %w", idempotency.ErrInvalid, unreadable)
	}
	return err
}

// Renew implements [idempotency.Store].
func (o *operations) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	if err := idempotency.ValidLease(d); err != nil {
		return err
	}
	wait := min(maxLeaseWait, d/leaseWaitPart)
	return o.write(ctx, wait, &lease, o.is.renew, leaseArgs(&lease, microseconds(d)), func(s idempotency.Status) bool {
		return s == idempotency.StatusInProgress
	})
}

// Complete implements [idempotency.Store].
func (o *operations) Complete(ctx context.Context, lease idempotency.Lease, outcome idempotency.Outcome) error {
	if err := outcome.Validate(); err != nil {
		return err
	}
	result, err := resultArgs(&outcome)
	if err != nil {
		return err
	}
	text := o.is.complete
	if outcome.Status == idempotency.Unknown {
		text = o.is.doubt
	}
	args := leaseArgs(&lease, int16(outcome.Status), result[0], result[1], result[2], result[3], microseconds(outcome.TTL))
	return o.write(ctx, maxLeaseWait, &lease, text, args, func(s idempotency.Status) bool {
		return s == idempotency.StatusInProgress || outcome.Status != idempotency.Unknown
	})
}

// Release implements [idempotency.Store].
func (o *operations) Release(ctx context.Context, lease idempotency.Lease) error {
	return o.write(ctx, maxLeaseWait, &lease, o.is.release, leaseArgs(&lease), func(idempotency.Status) bool { return true })
}

// write sends a statement that changes the record of the lease, unless another
// transaction has locked it. changes reports whether the statement changes a record of
// that status.
func (o *operations) write(ctx context.Context, wait time.Duration, lease *idempotency.Lease, text string, args []any,
	changes func(idempotency.Status) bool,
) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	if !storable(lease.Owner) {
		return idempotency.ErrLeaseLost
	}
	return o.writeLease(ctx, wait, func(through pgkit.Sender) error {
		statement := pgkit.Statement{Text: text, Args: args}
		err := through.Send(ctx, &statement)
		if pgkit.HasCode(err, pgkit.LockNotAvailable) {
			return fmt.Errorf("%w: %w", errLocked, err)
		}
		if err != nil || statement.Affected > 0 {
			return err
		}
		// Either the lease is lost, or the row is locked, which a transaction of the caller skips.
		var status int16
		owned := pgkit.Statement{Text: o.is.owned, Args: leaseArgs(lease), Scan: func(from pgkit.Row) error { return from.Scan(&status) }}
		if err := through.Send(ctx, &owned); err != nil {
			return err
		}
		if owned.Affected == 0 || !changes(idempotency.Status(status)) {
			return idempotency.ErrLeaseLost
		}
		return errLocked
	})
}

// writeLease is run for the writes of leases, which do not wait for work that uses the
// whole pool.
func (o *operations) writeLease(ctx context.Context, wait time.Duration, f func(pgkit.Sender) error) error {
	return o.run(ctx, func(ctx context.Context) (*connection, error) { return o.conns.forLease(ctx, wait) }, f)
}

// Load implements [idempotency.Store].
func (o *operations) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	if err := id.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	var f found
	err := o.read(ctx, func(through pgkit.Sender) error {
		f = found{}
		return through.Send(ctx, o.load(&id, &f))
	})
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case f.record == nil || f.record.Expired(f.now):
		return idempotency.Record{}, idempotency.ErrNotFound
	default:
		return *f.record, nil
	}
}

func (o *operations) load(id *idempotency.ID, f *found) *pgkit.Statement {
	return &pgkit.Statement{Text: o.is.load, Args: idArgs(id), Scan: f.scanNow}
}

// Reap implements [idempotency.Store].
func (o *operations) Reap(ctx context.Context, limit int) (records []idempotency.Record, err error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	err = o.writeLease(ctx, maxLeaseWait, func(through pgkit.Sender) error {
		records = nil
		return through.Send(ctx, list(&records, o.is.reap, limit))
	})
	if err == nil && len(records) < limit && !o.within() { // a caller's transaction would hold the note
		err = o.writeLease(ctx, maxLeaseWait, func(through pgkit.Sender) error { return through.Send(ctx, &pgkit.Statement{Text: o.is.reaped}) })
	}
	return records, err
}

// list appends the records that a statement returns.
func list(records *[]idempotency.Record, text string, args ...any) *pgkit.Statement {
	return &pgkit.Statement{Text: text, Args: args, Scan: func(from pgkit.Row) error {
		var f found
		err := f.scan(from)
		if err == nil {
			*records = append(*records, *f.record)
		}
		return err
	}}
}

// unknownPage is the number of records that Unknown reads at once.
const unknownPage = 100

// Unknown implements [idempotency.Store].
func (o *operations) Unknown(ctx context.Context, scope string) iter.Seq2[idempotency.Record, error] {
	text := o.is.unknownOf
	if scope == "" {
		text = o.is.unknownOfAll
	}
	return sqlrecord.Pages(scope, unknownPage, func(after idempotency.ID, limit int) (page []idempotency.Record, err error) {
		if !storable(scope) {
			return nil, nil // no record has this scope
		}
		err = o.read(ctx, func(through pgkit.Sender) error {
			page = nil
			return through.Send(ctx, list(&page, text, idArgs(&after, limit)...))
		})
		return page, err
	})
}

// Sweep implements [idempotency.Store].
func (o *operations) Sweep(ctx context.Context, limit int) (int, error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	statement := pgkit.Statement{Text: o.is.sweep, Args: []any{limit}}
	err := o.read(ctx, func(through pgkit.Sender) error { return through.Send(ctx, &statement) })
	return int(statement.Affected), err
}

// storable reports whether PostgreSQL accepts the text as a name.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
