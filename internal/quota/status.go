package quota

import "time"

// Status is what is known of one quota of a scope: one axis of a server's bucket, the
// static ceiling, or a closing without any.
type Status struct {
	Scope string
	// Class is 0 for what all classes of a scope share. Else it is a closing for that class
	// alone: nothing else is told then.
	Class int8
	// Bucket is the server's name of the bucket, and that of the axis; Static is the
	// ceiling.
	Bucket, Axis string
	Static       bool

	Limit, Remaining int64     // Limit 0: nobody has said; those in flight are counted off
	Reset            time.Time // when it is whole again; zero: nobody knows, or it is
	ClosedUntil      time.Time // by refusals; zero: it is open
}

// Each tells of each quota that is known of any scope, in no order. It holds one lock at
// a time, of one bucket, and f is called without any.
func (l *Limiter) Each(now time.Time, f func(Status)) {
	now = l.steady(now)
	var axes []axis // room for a copy
	l.accounts.All(func(who credential, a *account) bool {
		axes = a.shared.each(axes, Status{Scope: who.scope}, now, f)
		return true
	})
	l.buckets.All(func(k bucketKey, b *bucket) bool {
		axes = b.each(axes, Status{Scope: k.scope, Bucket: k.name}, now, f)
		return true
	})
	l.leases.All(func(name string, p *lease) bool {
		if s, ok := p.status(name); ok {
			f(s)
		}
		return true
	})
	if l.Limit > 0 {
		l.statics.All(func(name string, s *static) bool {
			if s.made.Load() {
				f(s.status(name, now))
			}
			return true
		})
	}
}

// each tells of the bucket's axes, or that it is closed. It returns the room that it
// needed for a copy.
func (b *bucket) each(axes []axis, s Status, now time.Time, f func(Status)) []axis {
	if b.account.Load() == nil || b.free() {
		return axes // not made yet, or nothing is known
	}
	s.ClosedUntil, _ = b.closedUntil(0, now)
	axes, inflight, lag := b.copyAxes(axes)
	told := false
	for i := range axes {
		q := &axes[i]
		if q.silent {
			continue
		}
		q.roll(now, inflight, false, lag)
		s.Axis, s.Limit, s.Remaining, s.Reset = q.name, q.limit, max(q.left(now)-q.reserved(inflight), 0), time.Time{}
		if q.reset.After(now) {
			s.Reset = q.reset
		}
		f(s)
		told = true
	}
	if !told && !s.ClosedUntil.IsZero() {
		f(s)
	}
	if !b.closing.apart() && !b.account.Load().closing.apart() {
		return axes
	}
	for _, class := range [...]int8{-1, 1} {
		if until, alone := b.closedUntil(class, now); alone {
			f(Status{Scope: s.Scope, Class: class, Bucket: s.Bucket, ClosedUntil: until})
		}
	}
	return axes
}

func (b *bucket) copyAxes(to []axis) (axes []axis, inflight int64, lag time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(to[:0], b.axes...), b.inflight.Load(), b.lag
}

// reserved is what those in flight may take: of a costed axis, nobody knows.
func (q *axis) reserved(inflight int64) int64 {
	if q.costed {
		return 0
	}
	return q.flying(inflight)
}

// status is what is known of the static ceiling of many processes: what the others have
// left, and this one's slice.
func (p *lease) status(name string) (s Status, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() { // it has never had one, and may not be made yet
		return s, false
	}
	return Status{Scope: name, Static: true, Limit: int64(p.limiter.Burst), Remaining: p.remains + p.tokens}, true
}

func (s *static) status(name string, now time.Time) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(now)
	burst, rate := float64(s.limiter.Burst), float64(s.limiter.Limit)
	status := Status{Scope: name, Static: true, Limit: int64(burst), Remaining: int64(min(max(s.tokens, 0), burst))}
	if lacking := burst - s.tokens; lacking >= 1 {
		status.Reset = now.Add(time.Duration(min(lacking/rate*float64(time.Second), float64(Longest))))
	}
	return status
}
