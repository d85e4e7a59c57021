package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
)

// Permit permits one request. The caller must call Done or Cancel once. Both do nothing on
// the zero Permit.
type Permit struct {
	Waited bool  // the request waited for the permit
	Slot   *Slot // held until Done or Cancel; nil: none

	flight
	otherRoute bool // only rejections of other routes show the exhaustion
	token      sharedquota.Permit
	set        *Set
	bucket     *bucket            // nil: headers are ignored
	fixed      *fixedLimit        // the fixed limit that issued a token; nil: none
	shared     *sharedquota.Quota // the shared quota that issued token; nil: none

	method, path string
}

// flight is a request in flight.
type flight struct {
	probe   *probes // it is sent although the quota seems to be exhausted; nil: it is not
	version uint64  // the bucket's version when it was sent
	sent    time.Time
	cost    int64 // estimated; 0: unknown
	spent   int64 // the bucket's, with this cost
}

// Cancel returns a permit that was not used.
func (p *Permit) Cancel(now time.Time) {
	p.Slot.release(now)
	if p.fixed != nil {
		p.fixed.Cancel(struct{}{}, now)
	}
	if p.shared != nil {
		p.shared.Cancel(p.token, now)
	}
	if p.bucket != nil {
		p.bucket.Cancel(p.flight, now)
	}
}

// renew updates the permit of a request that has waited for something else. It returns false if
// the quota no longer admits the request, or if the server has named another bucket for it.
// Otherwise all calls that waited for the first response of a process would bypass that quota.
func (p *Permit) renew(now time.Time) bool {
	b := p.bucket
	if b == nil {
		return true
	}
	if b.shared != nil && p.set.routeBucket(b.account, p.method, p.path) != b {
		return false
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	now = b.tick(now)
	// It waited for a slot or a token, and rejections may have come meanwhile.
	if o := b.opening(now, p.cost); o.at.After(now) && p.probe == nil {
		return false
	}
	b.finish(&p.flight, false)
	b.use(&p.flight, now)
	return true
}

// Done reports the result of the request.
func (p *Permit) Done(resp *Response, now time.Time) {
	defer p.Slot.release(now) // after what the response says about the quota
	b := p.bucket
	var of *bucket // the bucket that the response names
	if b != nil {
		b.Mu.Lock()
		of = p.set.learn(p, resp, now)
		if p.probe != nil {
			b.endProbe(p, resp, b.tick(now))
		}
		// The server may have counted a request of which no response came.
		if resp.Status == 0 && !resp.NotSent {
			b.lose(p)
		}
		// Such a request took no units, and no count in a response says so.
		if resp.NotSent || resp.rejected() && len(resp.Quota.Dimensions) == 0 {
			b.giveBack(&p.flight)
		}
		b.finish(&p.flight, true)
		b.Dispatch(now)
		b.Mu.Unlock()
	}
	if p.shared == nil {
		return
	}
	var seen sharedquota.Observation
	if of != nil && resp.Status != 0 {
		seen = of.observed(resp, now)
		if of.shared != nil && of.shared != p.shared {
			of.shared.Observe(seen, sharedquota.Permit(0), now)
			seen = sharedquota.Observation{Served: true}
		}
	}
	p.shared.Observe(seen, p.token, now)
}
