package quota

import (
	"sync"
	"sync/atomic"
	"time"
)

// static is the ceiling of one scope: a token bucket, and the line of those who
// wait for a token. A token is taken when its request leaves the line, not when it
// joins: so who gives up, or is refused, takes nothing from those behind.
type static struct {
	once    sync.Once
	made    atomic.Bool // once is over
	limiter *Limiter

	mu sync.Mutex
	line
	tokens float64
	last   time.Time // when there were so many
}

// tardiness is how late a timer may be without loss: a token that came meanwhile
// is of those who waited for it, however small the bucket. Over any time T no more
// than Burst + Limit × T tokens come due, and none is taken before it is.
const tardiness = 20 * time.Millisecond

func (l *Limiter) static(scope string) *static {
	s := l.statics.Get(scope)
	s.once.Do(func() {
		s.limiter, s.gate, s.line.mu = l, s, &s.mu
		s.tokens, s.last = float64(l.Burst), l.origin
		s.made.Store(true)
	})
	return s
}

// enter takes a token, standing in line for it if need be and if the request may
// wait that long.
func (s *static) enter(now time.Time, q queueing) (stood bool, refused *Refusal) {
	s.mu.Lock()
	if s.len() == 0 && s.take(now) {
		s.mu.Unlock()
		return false, nil
	}
	place, refused := s.join(now, q)
	s.mu.Unlock()
	if refused != nil {
		return false, refused
	}
	_, refused = s.stand(place)
	return true, refused
}

// fill adds the tokens that have come.
func (s *static) fill(now time.Time) {
	now = s.limiter.steady(now)
	if !now.After(s.last) {
		return
	}
	rate, most := float64(s.limiter.Limit), float64(s.limiter.Burst)
	if s.len() > 0 {
		most += rate * tardiness.Seconds()
	}
	s.tokens = min(s.tokens+now.Sub(s.last).Seconds()*rate, max(most, s.tokens))
	s.last = now
}

func (s *static) take(now time.Time) bool {
	s.fill(now)
	const hair = 1e-9 // what is lost by rounding
	if s.tokens < 1-hair {
		return false
	}
	s.tokens--
	return true
}

// cancel returns a token that was not used.
func (s *static) cancel(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back(Ticket{}, now)
	s.pump(now)
}

// back implements gate. pump, which follows, sees to it that the bucket holds no
// more than its burst.
func (s *static) back(Ticket, time.Time) { s.tokens++ }

// foresee implements gate.
func (s *static) foresee(now time.Time, ahead int64) (time.Time, bool) {
	s.fill(now)
	lacking := float64(ahead+1) - s.tokens
	if lacking <= 0 {
		return now, false
	}
	wait := lacking / float64(s.limiter.Limit) * float64(time.Second)
	return now.Add(time.Duration(min(wait, float64(Longest)))), false
}

// pump implements gate.
func (s *static) pump(now time.Time) {
	for s.len() > 0 {
		if !s.take(now) {
			at, _ := s.foresee(now, 0)
			s.wakeAt(at.Add(1), now) // not the nanosecond before, by rounding
			return
		}
		s.grant(Ticket{})
	}
	s.tokens = min(s.tokens, float64(s.limiter.Burst)) // nobody waits for more
	s.wakeAt(time.Time{}, now)
}
