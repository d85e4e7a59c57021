package main

import (
	"strings"

	"github.com/resilienthttp/resilienthttp/durable"
)

// suspectAfter is the number of lost leases in a row after which an intent must be sent alone.
const suspectAfter = 3

// auditSuspects checks that an intent that has lost its workers again and again was sent alone: while its process held it, the
// process held no other.
func (s *shopping) auditSuspects(journals map[string][]durable.Attempt) {
	if i := s.poison(); i >= 0 {
		lost := 0
		for _, a := range journals[s.order(i).Reference] {
			lost += lostLease(&a)
		}
		s.add("workers that the poison killed", lost)
		if lost < poisonKills {
			s.wrongf("the poison has killed %d workers, want %d", lost, poisonKills)
		}
	}
	alone := 0
	for reference, attempts := range journals {
		for _, a := range ofSuspect(attempts) {
			alone++
			for other, attempts := range journals {
				if other != reference && meets(&a, attempts) {
					s.wrongf("%s, which had lost its workers, was in flight with %s", reference, other)
				}
			}
		}
	}
	s.add("attempts of suspects, alone", alone)
}

// lostLease returns 1 if the attempt ended with the lease of its worker.
func lostLease(a *durable.Attempt) int {
	if strings.HasPrefix(a.Error, "the worker died") {
		return 1
	}
	return 0
}

// ofSuspect returns the attempts that began after too many lost leases in a row. Each other end of a send ends the row.
func ofSuspect(attempts []durable.Attempt) (suspect []durable.Attempt) {
	lost := 0
	for i := range attempts {
		a := &attempts[i]
		if lost >= suspectAfter {
			suspect = append(suspect, *a)
		}
		switch {
		case lostLease(a) > 0:
			lost++
		case a.Kind != durable.KindQuery:
			lost = 0
		}
	}
	return suspect
}

// meets reports whether the worker of a held one of the others at the same time.
func meets(a *durable.Attempt, others []durable.Attempt) bool {
	for i := range others {
		b := &others[i]
		if a.Worker == b.Worker && a.SentAt.Before(b.FinishedAt) && b.SentAt.Before(a.FinishedAt) {
			return true
		}
	}
	return false
}
