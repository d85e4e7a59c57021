package quota

import "time"

// Quota has the fields of QuotaStatus of the root, in the same order.
type Quota struct {
	Bucket, Key      string // Bucket has the server's names, or is fixed or in_flight
	Limit, Remaining int64  // Limit 0: unknown; requests in flight are subtracted
	Reset            time.Time
	BlockedUntil     time.Time
	UsedByOthers     int64
}

// Each calls f for each known quota of any scope, in no order: one dimension of a server's bucket, the fixed limit, the limit of
// requests in flight, or a block without a quota. It holds the lock of one bucket at a time, and no lock while it calls f.
func (l *Limiter) Each(now time.Time, f func(scope string, q Quota)) {
	now = l.steady(now)
	each := func(b *bucket) bool {
		for _, q := range b.status(now) {
			f(b.account.scope, q)
		}
		return true
	}
	l.accounts.All(func(_ accountKey, a *account) bool { return each(&a.general) })
	l.buckets.All(func(_ bucketKey, b *bucket) bool { return each(b) })
	for name, s := range l.sets.All {
		for _, of := range []*fixedLimit{s.slots, s.fixed} {
			if of != nil {
				f(name, of.status(now))
			}
		}
		if s.shared != nil {
			if remaining, ok := s.shared.Remaining(); ok {
				f(name, Quota{Bucket: "fixed", Limit: int64(l.Burst), Remaining: remaining})
			}
		}
	}
}

// Exhausted returns the status of the server's quota for which a request must wait longest, or nil.
func (s *Set) Exhausted(r Request, now time.Time) (longest *Quota) {
	if !s.Active() || !s.limiter.Follow {
		return nil
	}
	now = s.limiter.steady(now)
	for _, q := range s.bucketOf(&r).status(now) {
		exhausted := q.Limit > 0 && q.Remaining <= 0 && q.Reset.After(now)
		if !exhausted && !q.BlockedUntil.After(now) {
			continue
		}
		if longest == nil || later(q.Reset, q.BlockedUntil).After(later(longest.Reset, longest.BlockedUntil)) {
			longest = &q
		}
	}
	return longest
}

// status returns the status of each dimension, or of the block. It changes nothing.
func (b *bucket) status(now time.Time) (all []Quota) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	q := Quota{Bucket: b.name, Key: b.account.key, BlockedUntil: b.blockedUntil(now)}
	for _, d := range b.dims { // copies
		if d.roll(now, b.load, false); d.standing != followed {
			continue
		}
		q.Bucket, q.Limit, q.Remaining, q.Reset = joined(b.name, d.name), d.limit, max(d.left(now, b.load), 0), d.end.until()
		q.UsedByOthers = d.usedByOthers()
		all = append(all, q)
	}
	if len(all) == 0 && !q.BlockedUntil.IsZero() {
		all = append(all, q)
	}
	return all
}

// joined returns the name of a dimension of a bucket. Each may be "".
func joined(bucket, dimension string) string {
	if bucket == "" || dimension == "" {
		return bucket + dimension
	}
	return bucket + "/" + dimension
}
