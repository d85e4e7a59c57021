package quota

import (
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// fixedLimit is the fixed limit of one scope: a token bucket, and the queue of calls that wait for a
// token. A call takes its token at the end of its wait, so a canceled call takes none.
type fixedLimit struct {
	limiter *Limiter

	mu sync.Mutex
	waitqueue.Queue[struct{}]
	tokens float64
	last   time.Time // when tokens was computed
}

// timerSlack is the delay of a timer that loses no tokens: while calls wait, the bucket may
// exceed its burst by the tokens of this time. Over any time T, at most Burst + Limit × T tokens
// become available, and none is taken earlier.
const timerSlack = 20 * time.Millisecond

// clockStep is the step of a clock that goes back, as in the next testing/synctest bubble. A smaller
// one is the delay between reading the clock and getting the lock.
const clockStep = time.Second

func newFixedLimit(l *Limiter) *fixedLimit {
	s := &fixedLimit{limiter: l, tokens: float64(l.Burst), last: l.origin}
	s.Gate, s.Mu, s.Fixed = s, &s.mu, true
	return s
}

// fill adds the tokens since the last call.
func (s *fixedLimit) fill(now time.Time) {
	now = s.limiter.steady(now)
	if s.last.Sub(now) > clockStep {
		s.last = now
	}
	if !now.After(s.last) {
		return
	}
	rate, capacity := float64(s.limiter.Limit), float64(s.limiter.Burst)
	if s.Len() > 0 {
		capacity += rate * timerSlack.Seconds()
	}
	s.tokens = min(s.tokens+now.Sub(s.last).Seconds()*rate, max(capacity, s.tokens))
	s.last = now
}

// Take implements waitqueue.Gate.
func (s *fixedLimit) Take(now time.Time) (token struct{}, ok bool) {
	s.fill(now)
	const epsilon = 1e-9 // rounding error
	if s.tokens < 1-epsilon {
		return token, false
	}
	s.tokens--
	return token, true
}

// cancel returns an unused token.
func (s *fixedLimit) cancel(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Return(struct{}{}, now)
	s.Dispatch(now)
}

// Return implements waitqueue.Gate. The following Dispatch keeps the bucket within its burst.
func (s *fixedLimit) Return(struct{}, time.Time) { s.tokens++ }

// Estimate implements waitqueue.Gate.
func (s *fixedLimit) Estimate(now time.Time, ahead int64) (time.Time, bool) {
	s.fill(now)
	lacking := float64(ahead+1) - s.tokens
	if lacking <= 0 {
		return now, false
	}
	wait := lacking / float64(s.limiter.Limit) * float64(time.Second)
	return now.Add(time.Duration(min(wait, float64(Horizon)))), false
}

// Dispatch implements waitqueue.Gate.
func (s *fixedLimit) Dispatch(now time.Time) {
	for s.Len() > 0 {
		if _, ok := s.Take(now); !ok {
			at, _ := s.Estimate(now, 0)
			s.WakeAt(at.Add(1), now) // 1 ns later, because of rounding
			return
		}
		s.Grant(struct{}{})
	}
	s.tokens = min(s.tokens, float64(s.limiter.Burst))
	s.WakeAt(time.Time{}, now)
}
