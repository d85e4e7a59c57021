package main

import "github.com/resilienthttp/resilienthttp/examples/internal/bank"

// audit compares the outcomes of the clients with the ledger.
type audit struct {
	once, declined                            int // correct
	doubled, lost, wrong, unanswered, strange int
}

// passed reports whether each order was booked once or declined, and its client
// knows.
func (a *audit) passed(charges int) bool {
	return a.once+a.declined == charges && a.doubled+a.lost+a.wrong+a.unanswered+a.strange == 0
}

func newAudit(s *scenario, outcomes []outcome, ledger []bank.Charge) audit {
	byReference := map[string][]bank.Charge{}
	for _, c := range ledger {
		byReference[c.Reference] = append(byReference[c.Reference], c)
	}
	var a audit
	for i, known := range outcomes {
		want := s.order(i)
		found := byReference[want.Reference]
		delete(byReference, want.Reference)
		switch {
		case len(found) > 1:
			a.doubled++
		case len(found) == 1:
			a.once++
		case want.Covered():
			a.lost++
		default:
			a.declined++
		}
		switch {
		case !known.known():
			a.unanswered++
		case !known.agrees(want, found):
			a.wrong++
		}
	}
	a.strange = len(byReference)
	return a
}

// agrees reports whether the client's outcome is that of the ledger and correct.
func (o outcome) agrees(want bank.Order, found []bank.Charge) bool {
	if !want.Covered() {
		return o.declined && len(found) == 0
	}
	return !o.declined && len(found) == 1 && o.receipt == found[0] && found[0].Order == want
}
