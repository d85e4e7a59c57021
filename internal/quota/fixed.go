package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// fixedLimit is a limit of the client's own of one scope: tokens, and the queue of calls that wait for one. The
// tokens of Limit return with time. Those of MaxInFlight, slots, return when a request ends. A call takes its
// token at the end of its wait, so a canceled call takes none.
type fixedLimit struct {
	mu sync.Mutex
	waitqueue.Queue[struct{}]
	rate, burst float64 // tokens that return in a second, 0: slots; most tokens
	tokens      float64
	last        time.Time   // when tokens was computed
	next        *fixedLimit // from which a call with a slot takes a token; nil: none
}

// timerSlack is the delay of a timer that loses no tokens: while calls wait, the bucket may
// exceed its burst by the tokens of this time. Over any time T, at most Burst + Limit × T tokens
// become available, and none is taken earlier.
const timerSlack = 20 * time.Millisecond

const rounding = 1e-6 // of tokens that a time adds

func newFixedLimit(rate float64, burst int, next *fixedLimit, now time.Time) *fixedLimit {
	s := &fixedLimit{rate: rate, burst: float64(burst), tokens: float64(burst), next: next, last: now}
	s.Gate, s.Mu, s.Fixed = s, &s.mu, true
	return s
}

// fill adds the tokens since the last call.
func (s *fixedLimit) fill(now time.Time) {
	if hold.WentBack(s.last, now) {
		s.last = now
	}
	if !now.After(s.last) {
		return
	}
	capacity := s.burst
	if s.Len() > 0 {
		capacity += s.rate * timerSlack.Seconds()
	}
	s.tokens = min(s.tokens+now.Sub(s.last).Seconds()*s.rate, max(capacity, s.tokens))
	s.last = now
}

// Take implements waitqueue.Gate.
func (s *fixedLimit) Take(now time.Time, _ int64) (token struct{}, ok bool) {
	s.fill(now)
	if s.tokens < 1-rounding {
		return token, false
	}
	s.tokens--
	return token, true
}

// Return implements waitqueue.Gate. The following Dispatch keeps the bucket within its burst.
func (s *fixedLimit) Return(struct{}, time.Time) { s.tokens++ }

// Estimate implements waitqueue.Gate. When a slot is free is unknown, so a call waits as long as it may. A call
// that would get its token too late does not wait for a slot first.
func (s *fixedLimit) Estimate(now time.Time, ahead waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	s.fill(now)
	switch {
	case s.rate > 0:
		return now.Add(s.timeOf(max(float64(ahead.Calls+1)-s.tokens, 0))), false
	case s.next == nil:
		return at, false
	}
	s.next.mu.Lock()
	defer s.next.mu.Unlock()
	ahead.Calls += s.next.Len()
	if token, _ := s.next.Estimate(now, ahead, 0); token.After(now) {
		at = token
	}
	return at, false
}

// timeOf returns the time in which so many tokens return.
func (s *fixedLimit) timeOf(tokens float64) time.Duration {
	return time.Duration(min(math.Ceil(tokens/s.rate*float64(time.Second)), float64(Horizon)))
}

// Dispatch implements waitqueue.Gate.
func (s *fixedLimit) Dispatch(now time.Time) {
	var wake time.Time
	if s.GrantAll(now); s.Len() > 0 && s.rate > 0 {
		wake, _ = s.Estimate(now, waitqueue.Load{}, 0)
	}
	s.tokens = min(s.tokens, s.burst)
	s.WakeAt(wake, now)
}

// Slot is the slot of one attempt. It is safe for concurrent use.
type Slot struct {
	of     *fixedLimit
	around *Slot // of an attempt around this one; nil: none
	held   atomic.Bool
}

// enterSlot takes a slot, and waits for it if the limits allow. An attempt inside an attempt that holds a
// slot needs none: with one of its own, the two could wait for each other.
func (s *fixedLimit) enterSlot(around *Slot, now time.Time, limits waitqueue.Limits) (slot *Slot, waited bool, rejected *waitqueue.Rejection) {
	for outer := around; outer != nil; outer = outer.around {
		if outer.of == s && outer.held.Load() {
			return nil, false, nil
		}
	}
	if _, waited, rejected = s.Enter(now, limits); rejected == nil {
		slot = &Slot{of: s, around: around}
		slot.held.Store(true)
	}
	return slot, waited, rejected
}

// release returns the slot. Only the first call does.
func (t *Slot) release(now time.Time) {
	if t != nil && t.held.Swap(false) {
		t.of.Cancel(struct{}{}, now)
	}
}

func (s *fixedLimit) status(now time.Time) Quota {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(now)
	q := Quota{Bucket: "in_flight", Limit: int64(s.burst), Remaining: int64(min(max(s.tokens, 0), s.burst))}
	if s.rate == 0 {
		return q
	}
	q.Bucket = "fixed"
	if lacking := s.burst - s.tokens; lacking >= 1 {
		q.Reset = now.Add(s.timeOf(lacking))
	}
	return q
}
