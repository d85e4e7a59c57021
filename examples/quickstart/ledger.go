package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
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

// memory is the server half of idempotency, as small as it can be and still be
// right while the process lives: each key's request is carried out once, and its
// answer is given again to whoever asks again.
type memory struct {
	mu      sync.Mutex
	answers map[string]*remembered
}

type remembered struct {
	request  [sha256.Size]byte
	answer   answer
	complete bool
}

// once does the work of the request, unless the key has been seen before: then
// the answer is that of the first time, 409 while the first is still at work, or
// 422 if it was another request.
func (m *memory) once(key string, request []byte, work func() answer) (a answer, repeated bool) {
	if key == "" {
		return work(), false
	}
	fingerprint := sha256.Sum256(request)
	m.mu.Lock()
	if known := m.answers[key]; known != nil {
		defer m.mu.Unlock()
		switch {
		case known.request != fingerprint:
			return problem(http.StatusUnprocessableEntity, "this key was used for another request"), true
		case !known.complete:
			return problem(http.StatusConflict, "the first request with this key is still at work"), true
		}
		return known.answer, true
	}
	if m.answers == nil {
		m.answers = map[string]*remembered{}
	}
	first := &remembered{request: fingerprint}
	m.answers[key] = first
	m.mu.Unlock()

	a = work()
	m.mu.Lock()
	defer m.mu.Unlock()
	first.answer, first.complete = a, true
	return a, false
}
