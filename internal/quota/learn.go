package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
)

// learn adds the observations of a response.
func (b *bucket) learn(p *Permit, a *Response, now time.Time) {
	now = b.tick(now)
	b.version++
	o := observation{sent: p.sent, now: now, longest: b.limiter.MaxBlock, version: b.version, rejected: a.rejected()}
	if took := max(now.Sub(o.sent), 0); !o.rejected {
		if b.RTT == 0 || took < b.RTT {
			b.RTT = took
		} else {
			b.RTT += (took - b.RTT) / 64 // one quick response, of a proxy for example, does not count forever
		}
	}
	var clock *serverClock
	if b.clock.observe(a.Quota.Date, o.sent, now) {
		clock = &b.clock
	}
	own := p.bucket == b
	if o.probe = p.probe != nil; own {
		o.cost, o.spent = p.cost, p.spent
	}
	for i := range b.dims {
		b.dims[i].test(p.sent, a)
	}
	for i := range a.Quota.Dimensions {
		field := &a.Quota.Dimensions[i]
		b.account.known.Store(true)
		d := b.dimension(field)
		d.method, d.path = p.method, p.path
		o.newer = own && p.version >= d.version
		o.read(field, clock)
		if b.showsAnother(d, &o, p) {
			d.standing, b.account.mixed = refuted, true
			b.releaseEvenly(now)
		}
		// They are read before learn changes them.
		before, least := d.remaining, d.atLeast
		current := d.learn(&o)
		if d.atLeast > least {
			b.releaseEvenly(now)
		}
		// It may be about one of several counters, so one rejection does not hold other calls.
		if o.rejected && b.account.mixed && !b.block.lasts(now, o.end.reset.Sub(now), b.inflight) {
			d.standing = refuted
		}
		// A higher count begins a window, so the use of others is counted anew.
		if d.remaining > before {
			d.begin(b.inflight - 1) // without the one of the response
		}
		explained := 0 < field.Remaining && field.Remaining < d.expect(p.cost) // a smaller one may be served
		if o.rejected && a.exhausts(field) && !explained {
			d.reject(now, a.RetryAfter, current)
		}
	}
	// A response that names another bucket says nothing about the quotas of this one.
	if own && a.counted() {
		for i := range b.dims {
			if b.dims[i].serve(&o) {
				b.releaseEvenly(now) // it followed what is not a quota
			}
		}
	}
	b.judge(p, a, now)
}

// showsAnother reports whether a response shows much more of a quota than a response to an earlier request of the same route did,
// although the quota has not had the time to refill. Then the server has several counters, for example one for each customer.
func (b *bucket) showsAnother(d *dimension, o *observation, p *Permit) bool {
	if d.standing != followed || o.rejected || !o.newer || d.limit <= 0 {
		return false
	}
	_, changed := d.newLimit(&o.field)
	return !changed && d.rises(o.field.Remaining, b.unseen(p), o.now)
}

// observed returns the observation of a response for the shared quota: the shortest window with
// countable requests. The caller calls it after learn.
func (b *bucket) observed(a *Response, now time.Time) sharedquota.Observation {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	now = b.tick(now)
	s := sharedquota.Observation{Served: a.served()}
	exhausted := a.Quota.Exhausted
	for i := range b.dims {
		d := &b.dims[i]
		// The store divides requests, so it needs a count of requests that this response shows.
		if d.mentioned != b.version || d.standing != followed || d.costed || d.limit <= 0 {
			continue
		}
		if s.Limit == 0 || d.window < s.Window {
			s.Limit, s.Window = d.limit, d.window
		}
		if a.rejected() && d.remaining <= 0 {
			exhausted = true
			s.BlockedUntil = later(s.BlockedUntil, d.end.until())
		}
	}
	if a.rejected() && exhausted {
		s.BlockedUntil = later(s.BlockedUntil, now.Add(min(a.RetryAfter, b.limiter.MaxBlock)))
	}
	return s
}

func (b *bucket) known(name string) *dimension {
	for i := range b.dims {
		if b.dims[i].name == name {
			return &b.dims[i]
		}
	}
	return nil
}

// dimension returns the dimension of the field. Above a number that bounds the memory, a new one replaces the one that was
// mentioned longest ago.
func (b *bucket) dimension(field *ratelimitheader.Dimension) *dimension {
	if d := b.known(field.Name); d != nil {
		return d
	}
	if len(b.dims) < ratelimitheader.MaxDimensions {
		b.dims = append(b.dims, dimension{}) // never mentioned
	}
	// The one that was mentioned longest ago is replaced, because a server shows those it has each time.
	stalest := 0
	for i := range b.dims {
		if b.dims[i].mentioned < b.dims[stalest].mentioned {
			stalest = i
		}
	}
	b.dims[stalest] = dimension{
		source: source{name: field.Name, costed: field.Costed},
		trial:  trial{part: initialPart},
		period: period{window: time.Second},
	}
	return &b.dims[stalest]
}
