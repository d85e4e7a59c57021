package resilienthttp

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// staticLimit is the ceiling of one scope: a token bucket, and the line of those
// who wait for a token. A token is taken when its call leaves the line, not when
// it joins: so who gives up, or is refused, takes nothing from those behind.
type staticLimit struct {
	once    sync.Once
	limiter *rate.Limiter

	line
	spare int // tokens given back: the limiter does not take them
}

func (l *RateLimit) static(scope string) *staticLimit {
	s := l.statics.Get(scope)
	s.once.Do(func() {
		s.limiter = rate.NewLimiter(l.settings.limit, l.settings.burst)
		s.gate = s
	})
	return s
}

// enter takes a token, standing in line for it if need be and if the call is
// ready to wait that long.
func (s *staticLimit) enter(now time.Time, q queueing) (stood bool, refused *Error) {
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

func (s *staticLimit) take(now time.Time) bool {
	if s.spare > 0 {
		s.spare--
		return true
	}
	return s.limiter.AllowN(now, 1)
}

// giveBack returns a token that was not used.
func (s *staticLimit) giveBack(now time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back(turn{}, now)
	s.pump(now)
}

// back implements gate. The bucket holds no more than its burst.
func (s *staticLimit) back(_ turn, now time.Time) {
	if s.limiter.TokensAt(now)+float64(s.spare) <= float64(s.limiter.Burst()-1) {
		s.spare++
	}
}

// foresee implements gate.
func (s *staticLimit) foresee(now time.Time, ahead int64) (time.Time, bool) {
	lacking := float64(ahead+1) - s.limiter.TokensAt(now) - float64(s.spare)
	if lacking <= 0 {
		return now, false
	}
	wait := lacking / float64(s.limiter.Limit()) * float64(time.Second)
	return now.Add(time.Duration(min(wait, float64(maxForesight)))), false
}

// pump implements gate.
func (s *staticLimit) pump(now time.Time) {
	for s.len() > 0 {
		if !s.take(now) {
			at, _ := s.foresee(now, 0)
			s.wakeAt(at.Add(1), now) // not the nanosecond before, by rounding
			return
		}
		s.grant(turn{})
	}
	s.wakeAt(time.Time{}, now)
}
