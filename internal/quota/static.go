package quota

import (
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// static is the fixed limit of one scope: a token bucket, and the queue of calls that wait
// for a token. A call takes its token at the end of its wait: a call that is canceled or
// rejected takes nothing from the calls behind it.
type static struct {
	limiter *Limiter

	mu sync.Mutex
	waitqueue.Queue[struct{}]
	tokens float64
	last   time.Time // when there were so many
}

// tardiness is how late a timer may be without loss: a token that came meanwhile belongs to
// the calls that wait, however small the bucket is. Over any time T no more than
// Burst + Limit × T tokens come due, and none is taken earlier.
const tardiness = 20 * time.Millisecond

func newStatic(l *Limiter) *static {
	s := &static{limiter: l, tokens: float64(l.Burst), last: l.origin}
	s.Gate, s.Mu, s.Local = s, &s.mu, true
	return s
}

// fill adds the tokens that have come.
func (s *static) fill(now time.Time) {
	now = s.limiter.steady(now)
	if !now.After(s.last) {
		return
	}
	rate, most := float64(s.limiter.Limit), float64(s.limiter.Burst)
	if s.Len() > 0 {
		most += rate * tardiness.Seconds()
	}
	s.tokens = min(s.tokens+now.Sub(s.last).Seconds()*rate, max(most, s.tokens))
	s.last = now
}

// Take implements waitqueue.Gate.
func (s *static) Take(now time.Time) (token struct{}, ok bool) {
	s.fill(now)
	const hair = 1e-9 // what is lost by rounding
	if s.tokens < 1-hair {
		return token, false
	}
	s.tokens--
	return token, true
}

// cancel returns a token that was not used.
func (s *static) cancel(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Return(struct{}{}, now)
	s.Dispatch(now)
}

// Return implements waitqueue.Gate. Dispatch, which follows, keeps the bucket within its
// burst.
func (s *static) Return(struct{}, time.Time) { s.tokens++ }

// Estimate implements waitqueue.Gate.
func (s *static) Estimate(now time.Time, ahead int64) (time.Time, bool) {
	s.fill(now)
	lacking := float64(ahead+1) - s.tokens
	if lacking <= 0 {
		return now, false
	}
	wait := lacking / float64(s.limiter.Limit) * float64(time.Second)
	return now.Add(time.Duration(min(wait, float64(Horizon)))), false
}

// Dispatch implements waitqueue.Gate.
func (s *static) Dispatch(now time.Time) {
	for s.Len() > 0 {
		if _, ok := s.Take(now); !ok {
			at, _ := s.Estimate(now, 0)
			s.WakeAt(at.Add(1), now) // not the nanosecond before, by rounding
			return
		}
		s.Grant(struct{}{})
	}
	s.tokens = min(s.tokens, float64(s.limiter.Burst))
	s.WakeAt(time.Time{}, now)
}
