package main

import "github.com/resilienthttp/resilienthttp/examples/internal/bank"

// audit compares what the clients know with the ledger, which is the truth.
type audit struct {
	once, refused                             int // as it should be
	doubled, lost, wrong, unanswered, strange int
}

// kept: each of so many charges was booked once or refused, and its client knows.
func (a *audit) kept(charges int) bool {
	return a.once+a.refused == charges && a.doubled+a.lost+a.wrong+a.unanswered+a.strange == 0
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
			a.refused++
		}
		switch {
		case !known.settled():
			a.unanswered++
		case !known.agrees(want, found):
			a.wrong++
		}
	}
	a.strange = len(byReference)
	return a
}

// agrees: the client was told what the ledger has of its order, and that is right.
func (o outcome) agrees(want bank.Order, found []bank.Charge) bool {
	if !want.Covered() {
		return o.refused && len(found) == 0
	}
	return !o.refused && len(found) == 1 && o.receipt == found[0] && found[0].Order == want
}
