package quota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
)

// Permit permits one request. The caller must call Done or Cancel once. Both do nothing on
// the zero Permit.
type Permit struct {
	Waited bool // for the permit

	probe      bool // sent although the quota seems to be exhausted,
	otherRoute bool // by rejections of other routes
	token      sharedquota.Permit
	set        *Set
	bucket     *bucket            // nil: headers are ignored
	static     *static            // has issued a token; nil: none is needed
	shared     *sharedquota.Quota // has issued token; nil: none is needed

	credential   uint64
	method, path string
	sent         time.Time
	version      uint64 // of the bucket at that time
}

// Cancel returns a permit that was not used.
func (p *Permit) Cancel(now time.Time) {
	if p.static != nil {
		p.static.cancel(now)
	}
	if p.shared != nil {
		p.shared.Cancel(p.token, now)
	}
	if b := p.bucket; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.land(p, false)
		b.Dispatch(now)
	}
}

// renew makes the permit one of now, for a request that has waited for something else. It
// returns false if the quota no longer admits it, or if the server has named another bucket
// for it: all calls that wait for the first response of a process would bypass that quota.
func (p *Permit) renew(now time.Time) bool {
	b := p.bucket
	if b == nil {
		return true
	}
	if b.shared != nil && p.set.bucketOf(p.credential, p.method, p.path) != b {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.tick(now)
	if o := b.opening(now); o.at.After(now) && !p.probe {
		return false
	}
	b.land(p, false)
	b.use(p, now)
	return true
}

// Done reports the result of the request.
func (p *Permit) Done(resp *Response, now time.Time) {
	b := p.bucket
	var of *bucket // that the response speaks of
	if b != nil {
		of = p.set.learn(p, resp, now)
		b.mu.Lock()
		p.probe = p.probe && !resp.rejected()
		b.land(p, true)
		b.Dispatch(now)
		b.mu.Unlock()
	}
	if p.shared == nil {
		return
	}
	var seen sharedquota.Observation
	if of != nil && resp.Status != 0 {
		seen = of.observed(resp, now)
		if of.shared != nil && of.shared != p.shared {
			of.shared.Observe(seen, sharedquota.Permit(0), now)
			seen = sharedquota.Observation{Responded: true}
		}
	}
	p.shared.Observe(seen, p.token, now)
}
