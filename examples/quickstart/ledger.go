package main

import (
	"fmt"
	"sync"
)

// ledger is where the bank books charges: what is in it has been paid. It is the
// truth that both clients are measured by.
type ledger struct {
	mu     sync.Mutex
	booked map[string][]charge // by the order's reference
	total  int
}

// book charges the customer, every time that it is called.
func (l *ledger) book(o order) charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	c := charge{ID: fmt.Sprintf("ch_%06d", l.total), order: o}
	if l.booked == nil {
		l.booked = map[string][]charge{}
	}
	l.booked[o.Reference] = append(l.booked[o.Reference], c)
	return c
}

func (l *ledger) charges(reference string) []charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.booked[reference]
}
