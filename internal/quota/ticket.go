package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
)

// Ticket permits one request. The caller must call Done or Cancel once. Both do nothing on
// the zero Ticket.
type Permit struct {
	Waited   bool // for the permit
	class    int8
	probe    bool // sent although the quota seems to be exhausted,
	rejected bool // and rejected
	permit   sharedquota.Permit

	bucket       *bucket
	static       *static
	shared       *sharedquota.Quota
	method, path string
	version      uint64        // of the bucket at that time
	after        time.Duration // since the limiter's origin
}

func (t *Permit) sent() time.Time { return t.bucket.limiter.origin.Add(t.after) }

// Cancel returns a permit that was not used.
func (t *Permit) Cancel(now time.Time) {
	if t.static != nil {
		t.static.cancel(now)
	}
	if t.shared != nil {
		t.shared.Cancel(t.permit, now)
	}
	b := t.bucket
	if b == nil || b.landUnarmed(now) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.undo(*t)
	b.settle(now)
}

// renew makes the permit one of now, for a request that has waited for something else. It
// returns false if the quota no longer admits it.
func (t *Permit) renew(now time.Time) bool {
	b := t.bucket
	if b == nil {
		return true
	}
	if b.free() {
		t.after = now.Sub(b.limiter.origin)
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.tick(now)
	if o := b.opening(now, t.class); o.at.After(now) && !t.probe {
		return false
	}
	b.undo(*t)
	fresh := b.permit(now, t.class)
	t.version, t.after = fresh.version, fresh.after
	return true
}

// Done reports the result of the request.
func (t *Permit) Done(a *Response, now time.Time) {
	of := t.bucket
	if of != nil {
		of = t.done(a, now)
	}
	if t.shared == nil {
		return
	}
	var seen sharedquota.Observation
	if of != nil && a.Status != 0 {
		seen = of.observed(a, now)
		if of.shared != nil && of.shared != t.shared {
			of.shared.Observe(seen, sharedquota.Permit(0), now)
			seen = sharedquota.Observation{Responded: true}
		}
	}
	t.shared.Observe(seen, t.permit, now)
}

// done is Done for the bucket. It returns the bucket that the response speaks of.
func (t *Permit) done(a *Response, now time.Time) (of *bucket) {
	b := t.bucket
	of = b
	switch {
	case a.Quota.Bucket != "":
		of = b.limiter.learnRoute(b.account.Load(), t, namedBucket{name: a.Quota.Bucket, ofID: a.Quota.PerID})
	case t.probe && a.served() && b.provenForOthers(now):
		of = b.limiter.learnRoute(b.account.Load(), t, namedBucket{id: b.limiter.routeID(t.method, t.path)})
	}
	if a.Status != 0 && (of != b || len(a.Quota.Dimensions) > 0 || b.armed.Load()) {
		of.mu.Lock()
		of.learn(t, now, a)
		of.mu.Unlock()
	}
	of.judge(t, now, a)
	if of != b {
		of.mu.Lock()
		of.settle(now)
		of.mu.Unlock()
	}
	if (of != b || len(a.Quota.Dimensions) == 0) && b.landUnarmed(now) {
		return of
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t.rejected = a.rejected()
	b.land(*t)
	b.settle(now)
	return of
}

// provenForOthers reports whether rejections have shown that the bucket is exhausted: a
// route that is served nevertheless has a quota of its own.
func (b *bucket) provenForOthers(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.tick(now)
	for i := range b.dims {
		if d := &b.dims[i]; d.rejected && d.exhausted(now) {
			return true
		}
	}
	return false
}

// observed is what a response means for a shared quota: that of the shortest window whose
// requests can be counted. It is called after the bucket has learned from the response.
func (b *bucket) observed(a *Response, now time.Time) sharedquota.Observation {
	s := sharedquota.Observation{Responded: true, InFlight: b.inflight.Load() + 1}
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.tick(now)
	exhausted := a.Quota.Exhausted
	for i := range b.dims {
		d := &b.dims[i]
		if d.mentioned != b.version || d.mute() || d.costed || d.limit <= 0 || d.window <= 0 {
			continue
		}
		if s.Limit == 0 || d.window < s.Window {
			s.Limit, s.Window, s.Told, s.Remaining, s.Reset = d.limit, d.window, d.told, max(d.remaining, 0), d.reset
		}
		if a.rejected() && d.remaining <= 0 {
			exhausted = true
			s.BlockedUntil = later(s.BlockedUntil, d.reset)
		}
	}
	if a.rejected() && exhausted && a.AsksToWait {
		s.BlockedUntil = later(s.BlockedUntil, now.Add(min(a.RetryAfter, b.limiter.MaxBlock)))
	}
	return s
}
