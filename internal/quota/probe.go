package quota

import "time"

// mayProbe reports whether a request that would be rejected is sent as a probe. The exhaustion
// may be wrong, or it may concern other routes. There is one probe for each window, after a first
// call was rejected.
func (b *bucket) mayProbe(p *Permit, now time.Time) bool {
	if !b.blockedUntil(now).IsZero() {
		return false
	}
	may := false
	for i := range b.dims {
		d := &b.dims[i]
		if !d.exhausted(now) {
			continue
		}
		if d.proof == byReset || d.proof == byRejection && p.set.wasRejected(p.method, p.path) {
			return false
		}
		may, p.otherRoute = true, p.otherRoute || d.proof == byRejection
	}
	due := b.probeDue && !b.probed
	b.probeDue = b.probeDue || may
	return may && due
}

// serve counts a request that was served. It reports whether this contradicts the dimension.
func (d *dimension) serve(o observation) bool {
	if !o.sent.Before(d.from) {
		d.served++
	}
	inWindow := !d.since.IsZero() && !o.sent.Before(d.since) && (d.end.source == guessed || d.end.reset.IsZero())
	if d.mentioned != o.version && d.shownOnSuccess && inWindow {
		d.silence() // no response of this window shows it
	}
	if d.standing == refuted || !d.contradicted(o.now) {
		return false
	}
	d.standing = refuted
	return true
}

// contradicted reports whether more requests were served since the last exhaustion than the limit
// allows. The fields then mean something else, for example the size of a bucket that refills
// faster.
func (d *dimension) contradicted(now time.Time) bool {
	if d.shownOnSuccess || d.costed || d.limit <= 0 || d.window <= 0 {
		return false
	}
	windows := int64(1 + max(now.Sub(d.from), 0)/d.window)
	return !d.from.IsZero() && d.served > d.limit && d.served/windows > d.limit
}
