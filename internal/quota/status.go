package quota

import "time"

// Status is the state of one quota of a scope: one dimension of a server's bucket, the fixed
// limit, the limit of requests in flight, or a block without a quota.
type Status struct {
	Scope, Key string
	// Bucket and Dimension are the server's names. Fixed is true for the fixed limit.
	Bucket, Dimension string
	Fixed             bool
	InFlight          bool // the limit of requests in flight: Remaining is the free slots

	Limit, Remaining int64     // Limit 0: unknown; requests in flight are subtracted
	UsedByOthers     int64     // what other processes have certainly used of this window
	Reset            time.Time // when Remaining is Limit again; zero: it is already, or unknown
	BlockedUntil     time.Time // end of the block; zero: none
}

// Each calls f for each known quota of any scope, in no order. It holds the lock of one bucket at
// a time, and no lock while it calls f.
func (l *Limiter) Each(now time.Time, f func(Status)) {
	now = l.steady(now)
	each := func(b *bucket) bool {
		for _, s := range b.status(Status{Scope: b.account.scope, Key: b.account.key, Bucket: b.name}, now) {
			f(s)
		}
		return true
	}
	l.accounts.All(func(_ accountKey, a *account) bool { return each(&a.general) })
	l.buckets.All(func(_ bucketKey, b *bucket) bool { return each(b) })
	for name, s := range l.sets.All {
		for _, of := range []*fixedLimit{s.slots, s.fixed} {
			if of != nil {
				f(of.status(name, now))
			}
		}
		if s.shared != nil {
			if remaining, ok := s.shared.Remaining(); ok {
				f(Status{Scope: name, Fixed: true, Limit: int64(l.Burst), Remaining: remaining})
			}
		}
	}
}

// Exhausted returns the status of the server's quota for which a request must wait longest, or
// false.
func (s *Set) Exhausted(r Request, now time.Time) (longest Status, ok bool) {
	if !s.Active() || !s.limiter.Follow {
		return longest, false
	}
	now = s.limiter.steady(now)
	for _, q := range s.bucketOf(&r).status(Status{}, now) {
		exhausted := q.Limit > 0 && q.Remaining <= 0 && q.Reset.After(now)
		if (exhausted || q.BlockedUntil.After(now)) && (!ok || later(q.Reset, q.BlockedUntil).After(later(longest.Reset, longest.BlockedUntil))) {
			longest, ok = q, true
		}
	}
	return longest, ok
}

// status returns the status of each dimension, or of the block. It changes nothing.
func (b *bucket) status(s Status, now time.Time) (all []Status) {
	if !b.account.known.Load() {
		return nil
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	s.BlockedUntil = b.blockedUntil(now, true)
	for _, d := range b.dims { // copies
		if d.roll(now, b.inflight); d.standing != followed {
			continue
		}
		s.Dimension, s.Limit, s.Remaining, s.Reset = d.name, d.limit, max(d.left(now, b.inflight), 0), time.Time{}
		if d.end.until().After(now) {
			s.Reset = d.end.until()
		}
		s.UsedByOthers = d.usedByOthers()
		all = append(all, s)
	}
	if len(all) == 0 && !s.BlockedUntil.IsZero() {
		all = append(all, s)
	}
	return all
}
