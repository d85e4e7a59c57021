package main

import "github.com/resilienthttp/resilienthttp/crashtest/internal/bank"

// outcome is the result of an order, as its client or the shop knows it.
type outcome struct {
	state   state
	receipt bank.Charge // of a booked order
	err     error       // the last error, if the time was over
}

// state is the kind of an outcome.
type state int

const (
	unknown  state = iota // or in progress
	booked                // receipt has the booking
	declined              // the account does not cover the amount
	canceled              // by the customer, so that nothing may be stored
	failed                // for another reason than declined
	missing               // the shop has taken the order, and does not have it or its intent
)

// audit compares the outcomes with the ledger.
type audit struct {
	once, declined, canceled               int // correct: booked, not covered, canceled
	doubled, lost, unknown, wrong, strange int
}

// passed reports whether each order was booked once, declined or canceled, and its client knows.
func (a *audit) passed(orders int) bool {
	return a.once+a.declined+a.canceled == orders && a.doubled+a.lost+a.unknown+a.wrong+a.strange == 0
}

func newAudit(s *scenario, outcomes []outcome, ledger []bank.Charge) (a audit) {
	byReference := map[string][]bank.Charge{}
	for _, c := range ledger {
		byReference[c.Reference] = append(byReference[c.Reference], c)
	}
	for i, known := range outcomes {
		want := s.order(i)
		found := byReference[want.Reference]
		delete(byReference, want.Reference)
		switch {
		case !s.canceled(i):
			a.judge(known, want, found)
		case known.state == canceled && len(found) == 0:
			a.canceled++
		default:
			a.strange++
		}
	}
	a.strange += len(byReference)
	return a
}

// judge checks an order that was not canceled.
func (a *audit) judge(known outcome, want bank.Order, found []bank.Charge) {
	switch {
	case len(found) > 1:
		a.doubled++
	case known.state == missing, len(found) == 0 && want.Covered() && known.state != unknown:
		a.lost++
	case known.state == unknown:
		a.unknown++
	case !known.agrees(want, found):
		a.wrong++
	case want.Covered():
		a.once++
	default:
		a.declined++
	}
}

// agrees reports whether the outcome is that of the ledger and correct.
func (o outcome) agrees(want bank.Order, found []bank.Charge) bool {
	if !want.Covered() {
		return o.state == declined && len(found) == 0
	}
	return o.state == booked && len(found) == 1 && o.receipt == found[0] && found[0].Order == want
}
