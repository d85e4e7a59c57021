package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Reserve implements idempotency.Store. It reads first, without any lock, and
// writes only what the reading calls for.
//
// A claim of an operation that joined work of this store is at is Busy at once. One
// of another process waits for the write lock, as all who write, and then finds
// the record.
func (s *Store) Reserve(ctx context.Context, claim driver.Claim) (driver.Reservation, error) {
	return s.claim(ctx, &claim, func(l *look) (*driver.Record, error) { return s.apply(ctx, l, &claim) })
}

// claim answers a claim: by what is there, by Busy, or by the record that take
// gives. That is nil where somebody else has changed the record since it was looked
// at.
func (s *Store) claim(
	ctx context.Context, claim *driver.Claim, take func(*look) (*driver.Record, error),
) (driver.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return driver.Reservation{}, err
	}
	for {
		l, err := s.look(ctx, claim)
		if err != nil || l.step == driver.Leave {
			return l.answer, err
		}
		record, err := take(&l)
		switch {
		case errors.Is(err, errWorking):
			return l.busy(claim), nil
		case errors.Is(err, ErrLocked):
			return driver.Reservation{}, fmt.Errorf("%w: %w", driver.ErrStoreBusy, err)
		case err != nil:
			return driver.Reservation{}, err
		case record != nil:
			l.answer.Record = *record
			return l.answer, nil
		}
	}
}

// look is what was found of a record, and what is to be done about a claim.
type look struct {
	judged *driver.Record // nil: there is none
	step   driver.Step
	answer driver.Reservation // once the step is done
}

// look reads the record, without a lock, and judges it.
func (s *Store) look(ctx context.Context, claim *driver.Claim) (l look, err error) {
	err = s.kit.Reading(ctx, func(ctx context.Context) error {
		l, err = lookAt(ctx, s.read.load, claim)
		return err
	})
	return l, err
}

func lookAt(ctx context.Context, load sqlitekit.Statement, claim *driver.Claim) (l look, err error) {
	judged, clock, err := readRecord(ctx, load, claim.ID)
	if err != nil {
		return look{}, err
	}
	l.judged = judged
	l.step, l.answer = driver.Decide(judged, claim, clock)
	if l.step == driver.Leave {
		l.answer.Record = *judged
	}
	return l, nil
}

// busy is the answer while somebody's transaction is open.
func (l *look) busy(claim *driver.Claim) driver.Reservation {
	answer := driver.Reservation{Decision: driver.DecisionInProgress, Record: driver.Record{ID: claim.ID}}
	if l.judged != nil {
		answer.Record = *l.judged
	}
	return answer
}

// apply does the step. nil: the record is not the one that was judged any more.
// errWorking: joined work of this store is at it.
func (s *Store) apply(ctx context.Context, l *look, claim *driver.Claim) (record *driver.Record, err error) {
	err = s.alone(ctx, &ticket{claims: &claim.ID}, s.kit.Patience(), func(ctx context.Context) error {
		record, err = applyStep(ctx, s.write, l.step, l.judged, claim)
		return err
	})
	return record, err
}
