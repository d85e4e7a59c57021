package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
)

// ledgers is the simplest Transactor: records, and rows that are written together with
// them, under one lock. It is here so that the suite's transactions are tested where
// there is no database.
type ledgers struct {
	mu      sync.Mutex
	records map[driver.ID]driver.Record
	open    map[driver.ID]bool
	rows    map[string]int
}

// locked calls f under the lock, unless it is too late or the argument is invalid.
func (l *ledgers) locked(ctx context.Context, invalid error, f func(now time.Time) error) error {
	if err := errors.Join(ctx.Err(), invalid); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return f(time.Now())
}

// decide answers a claim, and does nothing yet.
func (l *ledgers) decide(claim *driver.Claim, now time.Time) (driver.Step, driver.Reservation) {
	var judged *driver.Record
	r, ok := l.records[claim.ID]
	if ok {
		judged = &r
	}
	step, reservation := driver.Decide(judged, claim, now)
	if l.open[claim.ID] && step != driver.Leave {
		return driver.Leave, driver.Reservation{Decision: driver.DecisionInProgress, Record: r}
	}
	switch step {
	case driver.Leave:
	case driver.Insert, driver.Take:
		r = driver.Record{
			ID: claim.ID, Fingerprint: claim.Fingerprint, Status: driver.InProgress, Owner: claim.Owner,
			Generation: r.Generation + 1, LeaseExpires: now.Add(claim.Lease), Takeover: claim.Takeover,
			Started: now, Updated: now, Expires: now.Add(claim.TTL),
		}
	case driver.StepMarkUnknown:
		r.Status, r.Owner, r.Updated = driver.Unknown, "", now
		r.Generation++
	}
	reservation.Record = r
	return step, reservation
}

func (l *ledgers) Reserve(ctx context.Context, claim driver.Claim) (reservation driver.Reservation, err error) {
	err = l.locked(ctx, claim.Validate(), func(now time.Time) error {
		var step driver.Step
		if step, reservation = l.decide(&claim, now); step != driver.Leave {
			l.records[claim.ID] = reservation.Record
		}
		reservation.Record = copied(reservation.Record)
		return nil
	})
	return reservation, err
}

func (l *ledgers) Begin(ctx context.Context, claim driver.Claim, _ time.Duration,
) (reservation driver.Reservation, tx driver.Transaction, err error) {
	err = l.locked(ctx, claim.Validate(), func(now time.Time) error {
		var step driver.Step
		step, reservation = l.decide(&claim, now)
		switch {
		case step == driver.StepMarkUnknown:
			l.records[claim.ID] = reservation.Record
		case step != driver.Leave:
			l.open[claim.ID] = true
			tx = &ledgerTx{ledgers: l, claim: claim, record: reservation.Record}
		}
		reservation.Record = copied(reservation.Record)
		return nil
	})
	return reservation, tx, err
}

func (*ledgers) InCallerTx() bool { return false }

// write changes a record that the lease holds.
func (l *ledgers) write(ctx context.Context, lease *driver.Lease, invalid error, change func(r *driver.Record, now time.Time) bool) error {
	return l.locked(ctx, errors.Join(lease.Validate(), invalid), func(now time.Time) error {
		r, ok := l.records[lease.ID]
		if !ok || r.Expired(now) || r.Lease() != *lease || !change(&r, now) {
			return driver.ErrLeaseLost
		}
		r.Updated = now
		l.records[lease.ID] = r
		return nil
	})
}

func (l *ledgers) Renew(ctx context.Context, lease driver.Lease, d time.Duration) error {
	return l.write(ctx, &lease, driver.ValidLease(d), func(r *driver.Record, now time.Time) bool {
		r.LeaseExpires = now.Add(d)
		return r.Status == driver.InProgress
	})
}

func (l *ledgers) Complete(ctx context.Context, lease driver.Lease, outcome driver.Outcome) error {
	return l.write(ctx, &lease, outcome.Validate(), func(r *driver.Record, now time.Time) bool {
		was := r.Status
		if was == driver.Unknown && outcome.TTL == 0 {
			r.Expires = now.Add(r.Expires.Sub(r.Started))
		}
		end(r, outcome, now)
		return was == driver.InProgress || was == driver.Unknown && outcome.Status != was
	})
}

// end writes an outcome into a record.
func end(r *driver.Record, outcome driver.Outcome, now time.Time) {
	r.Status = outcome.Status
	if outcome.TTL > 0 {
		r.Expires = now.Add(outcome.TTL)
	}
	if outcome.Status == driver.Completed || outcome.Status == driver.FailedFinal {
		r.Result = outcome.Result
		*r = copied(*r)
	}
}

func (l *ledgers) Release(ctx context.Context, lease driver.Lease) error {
	return l.write(ctx, &lease, nil, func(r *driver.Record, _ time.Time) bool {
		was := r.Status
		r.Status = driver.FailedRetryable
		return was == driver.InProgress || was == driver.Unknown
	})
}

func (l *ledgers) Load(ctx context.Context, id driver.ID) (record driver.Record, err error) {
	err = l.locked(ctx, id.Validate(), func(now time.Time) error {
		r, ok := l.records[id]
		if !ok || r.Expired(now) {
			return driver.ErrNotFound
		}
		record = copied(r)
		return nil
	})
	return record, err
}

func (l *ledgers) Reap(ctx context.Context, limit int) (abandoned []driver.Record, err error) {
	err = l.locked(ctx, nil, func(now time.Time) error {
		for id, r := range l.records {
			repeats := r.Takeover == driver.Reexecute || r.Takeover == driver.Resume
			if len(abandoned) < limit && r.Lapsed(now) && !repeats {
				r.Status, r.Owner, r.Updated = driver.Unknown, "", now
				r.Generation++
				l.records[id] = r
				abandoned = append(abandoned, r)
			}
		}
		return nil
	})
	return abandoned, err
}

func (l *ledgers) Unknown(ctx context.Context, scope string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var all []driver.Record
		err := l.locked(ctx, nil, func(time.Time) error {
			all = slices.SortedFunc(maps.Values(l.records), func(a, b driver.Record) int {
				return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Key, b.Key))
			})
			return nil
		})
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, r := range all {
			if r.Status != driver.Unknown || scope != "" && r.Scope != scope {
				continue
			}
			now, err := l.Load(ctx, r.ID)
			switch {
			case err != nil && !errors.Is(err, driver.ErrNotFound):
				yield(now, err)
				return
			case now.Status == driver.Unknown && !yield(now, nil):
				return
			}
		}
	}
}

func (l *ledgers) Sweep(ctx context.Context, limit int) (n int, err error) {
	err = l.locked(ctx, nil, func(now time.Time) error {
		for id, r := range l.records {
			if n < limit && r.Expired(now) {
				delete(l.records, id)
				n++
			}
		}
		return nil
	})
	return n, err
}

func copied(r driver.Record) driver.Record {
	header := http.Header(nil)
	if r.Result.Header != nil {
		header = make(http.Header)
	}
	for name, values := range r.Result.Header {
		header[name] = slices.Clone(values)
	}
	r.Result.Header, r.Result.Body = header, slices.Clone(r.Result.Body)
	return r
}

// ledgerTx holds its operation, and what it will write.
type ledgerTx struct {
	*ledgers

	claim   driver.Claim
	record  driver.Record
	written []string
	over    bool
}

func (tx *ledgerTx) Value() any { return tx }

func (tx *ledgerTx) Commit(ctx context.Context, outcome driver.Outcome) error {
	return tx.end(ctx, outcome, tx.written)
}

func (tx *ledgerTx) RollbackAndRecord(ctx context.Context, outcome driver.Outcome) error {
	return tx.end(ctx, outcome, nil)
}

func (tx *ledgerTx) end(ctx context.Context, outcome driver.Outcome, written []string) error {
	if tx.over {
		return errors.New("the transaction is over")
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // It sets the operation free.
	return tx.locked(ctx, outcome.Validate(), func(now time.Time) error {
		r := tx.record
		r.Updated = now
		end(&r, outcome, now)
		tx.records[r.ID] = r
		for _, id := range written {
			tx.rows[id]++
		}
		return nil
	})
}

func (tx *ledgerTx) Rollback(context.Context) error {
	if tx.over {
		return nil
	}
	tx.over = true
	return tx.locked(context.Background(), nil, func(time.Time) error {
		delete(tx.open, tx.claim.ID)
		return nil
	})
}

func TestTransactor(t *testing.T) {
	l := &ledgers{
		records: make(map[driver.ID]driver.Record), open: make(map[driver.ID]bool), rows: make(map[string]int),
	}
	storetest.Suite{
		Open: func(*testing.T) driver.Store { return l },
		Write: func(_ context.Context, tx any, id string) error {
			work := tx.(*ledgerTx)
			work.written = append(work.written, id)
			return nil
		},
		Count: func(_ context.Context, id string) (int, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.rows[id], nil
		},
	}.Run(t)
}

func (l *ledgers) Check(ctx context.Context) error { return ctx.Err() }
