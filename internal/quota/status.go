package quota

import "time"

// Status is what is known of one quota of a scope: one dimension of a server's bucket, the
// static limit, or a block without any.
type Status struct {
	Scope string
	// Bucket is the server's name of the bucket, and Axis that of the dimension; Static is
	// true for the static limit.
	Bucket, Axis string
	Static       bool

	Limit, Remaining int64     // Limit 0: unknown; requests in flight are subtracted
	Reset            time.Time // when it is whole again; zero: unknown, or it is
	BlockedUntil     time.Time // blocked by rejections; zero: it is not
}

// Each calls f for each quota that is known of any scope, in no order. It holds one lock at
// a time, of one bucket, and calls f without any.
func (l *Limiter) Each(now time.Time, f func(Status)) {
	now = l.steady(now)
	var dims []dimension // reused for copies
	l.buckets.All(func(k bucketKey, b *bucket) bool {
		dims = b.each(dims, Status{Scope: k.scope, Bucket: k.name}, now, f)
		return true
	})
	l.sets.All(func(name string, s *Set) bool {
		s.init(l, name)
		if s.static != nil {
			f(s.static.status(name, now))
		}
		if s.shared != nil {
			if remaining, ok := s.shared.Remaining(); ok {
				f(Status{Scope: name, Static: true, Limit: int64(l.Burst), Remaining: remaining})
			}
		}
		return true
	})
}

// each calls f for the bucket's dimensions, or for its block. It returns the slice for the
// next copy.
func (b *bucket) each(dims []dimension, s Status, now time.Time, f func(Status)) []dimension {
	if !b.known.Load() && (b.general.Load() == nil || !b.general.Load().known.Load()) {
		return dims
	}
	s.BlockedUntil = b.blockedUntil(now)
	dims, inflight, trip := b.copyDimensions(dims)
	called := false
	for i := range dims {
		d := &dims[i]
		if d.roll(now, inflight, trip); d.mute() {
			continue
		}
		s.Axis, s.Limit, s.Remaining, s.Reset = d.name, d.limit, max(d.left(inflight), 0), time.Time{}
		if d.reset.After(now) {
			s.Reset = d.reset
		}
		f(s)
		called = true
	}
	if !called && !s.BlockedUntil.IsZero() {
		f(s)
	}
	return dims
}

func (b *bucket) copyDimensions(to []dimension) (dims []dimension, inflight int64, trip time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(to[:0], b.dims...), b.inflight, b.trip
}

func (s *static) status(name string, now time.Time) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(now)
	burst, rate := float64(s.limiter.Burst), float64(s.limiter.Limit)
	status := Status{Scope: name, Static: true, Limit: int64(burst), Remaining: int64(min(max(s.tokens, 0), burst))}
	if lacking := burst - s.tokens; lacking >= 1 {
		status.Reset = now.Add(time.Duration(min(lacking/rate*float64(time.Second), float64(Horizon))))
	}
	return status
}
