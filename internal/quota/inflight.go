package quota

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// slots limits the requests of one scope that are in flight at once: the free slots, and the queue of
// calls that wait for one.
type slots struct {
	mu sync.Mutex
	waitqueue.Queue[struct{}]
	limit, free int
	fixed       *fixedLimit // from which a call with a slot takes a token; nil: none
}

// Slot is the slot of one attempt. It is safe for concurrent use.
type Slot struct {
	of     *slots
	around *Slot // of an attempt around this one; nil: none
	held   atomic.Bool
}

func newSlots(limit int, fixed *fixedLimit) *slots {
	s := &slots{limit: limit, free: limit, fixed: fixed}
	s.Gate, s.Mu, s.Fixed = s, &s.mu, true
	return s
}

// enter takes a slot, and waits for it if the limits allow. An attempt inside an attempt that holds a
// slot needs none: with one of its own, the two could wait for each other.
func (s *slots) enter(around *Slot, now time.Time, limits waitqueue.Limits) (slot *Slot, waited bool, rejected *Rejection) {
	for outer := around; outer != nil; outer = outer.around {
		if outer.of == s && outer.held.Load() {
			return nil, false, nil
		}
	}
	if _, waited, rejected = s.Enter(now, limits); rejected != nil {
		return nil, waited, rejected
	}
	slot = &Slot{of: s, around: around}
	slot.held.Store(true)
	return slot, waited, nil
}

// release returns the slot. Only the first call does.
func (t *Slot) release(now time.Time) {
	if t == nil || !t.held.Swap(false) {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.Return(struct{}{}, now)
	t.of.Dispatch(now)
}

// Take implements waitqueue.Gate.
func (s *slots) Take(time.Time) (none struct{}, ok bool) {
	if s.free == 0 {
		return none, false
	}
	s.free--
	return none, true
}

// Return implements waitqueue.Gate.
func (s *slots) Return(struct{}, time.Time) { s.free++ }

// Estimate implements waitqueue.Gate. When a response comes is unknown, so a call waits as long as it
// may. A call that would get its token too late does not wait for a slot first.
func (s *slots) Estimate(now time.Time, ahead int64) (at time.Time, blocked bool) {
	if s.fixed == nil {
		return at, false
	}
	s.fixed.mu.Lock()
	defer s.fixed.mu.Unlock()
	if token, _ := s.fixed.Estimate(now, ahead+s.fixed.Len()); token.After(now) {
		at = token
	}
	return at, false
}

// Dispatch implements waitqueue.Gate.
func (s *slots) Dispatch(now time.Time) {
	for s.Len() > 0 {
		if _, ok := s.Take(now); !ok {
			return
		}
		s.Grant(struct{}{})
	}
}

func (s *slots) status(name string) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{Scope: name, InFlight: true, Limit: int64(s.limit), Remaining: int64(s.free)}
}
