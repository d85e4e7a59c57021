package quota

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// bucket is one quota of a server, with the queue of calls that wait for it. A request may be
// sent if each dimension has more left than there are requests in flight. Otherwise it queues, or
// is rejected if the estimate of its wait is too long.
//
// At the reset, the quota is assumed to be full again. The reset may have been rounded, clocks
// differ, and other clients use the quota too. So one request is sent alone, and the others
// follow evenly after its response.
type bucket struct {
	limiter *Limiter
	account *account           // its lock guards the fields below shared
	name    string             // the server's name
	shared  *sharedquota.Quota // the quota of many processes; nil: none

	waitqueue.Queue[flight]
	knowledge
	load
	early   int64     // of those in flight, without a permit
	version uint64    // number of responses, which orders observations
	latest  time.Time // the latest time that tick returned
}

// knowledge is what a bucket knows about the server, with the times of it.
type knowledge struct {
	block     block
	heldSince time.Time // since then, calls wait for a reset or the end of a block; zero: none waits
	heldUntil time.Time // the end of that wait
	after     release   // the last wait
	probes    probes    // of calls that would be rejected
	tests     probes    // of other paths than those that were rejected
	dims      []dimension
	clock     serverClock

	rejectedRoutes []uint64  // routes that were rejected, at most maxRejectedRoutes: see Set.route
	rejectedPath   uint64    // of the latest rejection
	asked, askedAt time.Time // until when the rejection of askedAt asks its calls to wait
}

// maxRejectedRoutes bounds the memory. If so many routes are rejected, the others are hardly different.
const maxRejectedRoutes = 64

// accountKey identifies the quotas of one credential in a scope. Servers count requests by credential,
// not by client. Its strings are those of the Set.
type accountKey struct {
	scope      string
	credential uint64
	key        string // Request.Key
}

// account is the quotas of one credential and key: the general bucket, and those of the Limiter that
// routes have of their own.
type account struct {
	accountKey

	limiter *Limiter
	known   atomic.Bool // a response has shown a quota or was a rejection
	mu      sync.Mutex  // guards all buckets of the account, and mixed
	mixed   bool        // the server counts by something else too, for example by a customer whom only a body names: see noteMixed
	general bucket
}

// bucketKey identifies a bucket that routes have of their own. Those of an evicted account are never
// found again.
type bucketKey struct {
	account *account
	name    string // the server's; may be "" for an id
	id      uint64
}

// Clone copies the name, which is a part of a header.
func (k bucketKey) Clone() bucketKey {
	k.name = strings.Clone(k.name)
	return k
}

// init makes a bucket of an account.
func (b *bucket) init(k bucketKey) {
	a := k.account
	b.account, b.limiter, b.name, b.Mu, b.Gate = a, a.limiter, k.name, &a.mu, b
	if l := a.limiter; l.Shared != nil && l.Limit == 0 {
		b.shared = sharedquota.New(l.Shared, fmt.Sprintf("quota|%s|%x|%s|%x%s", a.scope, a.credential, k.name, k.id, a.key))
	}
}

// tick returns now, or the latest time if that is later: the goroutine that read the clock first
// may get the lock last. If the clock goes back further, all that the bucket knows is forgotten: its
// times would come too late.
func (b *bucket) tick(now time.Time) time.Time {
	now = b.limiter.steady(now)
	if hold.WentBack(b.latest, now) { // a late report, unless the clock itself is behind
		if now = b.limiter.steady(time.Now()); hold.WentBack(b.latest, now) {
			b.knowledge, b.latest = knowledge{}, now
		}
	}
	if now.After(b.latest) {
		b.latest = now
	}
	return b.latest
}

// common returns the bucket of which a block holds this one too: the general one. That of a route of its own is held only by
// a block that no success ends.
func (b *bucket) common() *bucket {
	general := &b.account.general
	if b.name == "" && !general.block.cause.After(general.latest) {
		return b
	}
	return general
}

// blockedUntil returns the end of the block of the bucket or of the general one, or zero.
func (b *bucket) blockedUntil(now time.Time) time.Time {
	common := b.common()
	common.tick(now)
	until := later(b.block.until, common.block.until)
	if until.After(now) {
		return until
	}
	return time.Time{}
}

// enter takes the permit. It waits for it if the limits allow. A hedge takes none of the last half. A call that would
// be rejected may be a probe.
func (b *bucket) enter(p *Permit, r *Request, now time.Time, limits *waitqueue.Limits) (waited bool, rejected *waitqueue.Rejection) {
	b.Mu.Lock()
	now = b.tick(now)
	mayWait := !r.NoWait && !r.AtOnce
	// A test comes first, because it takes no part in the queue that it may end.
	if mayWait && b.mayTest(p, now) {
		defer b.Mu.Unlock()
		b.send(p, &b.tests, r, now)
		return false, nil
	}
	granted, e, rejected := b.TakeOrJoin(now, limits)
	if e != nil {
		b.Mu.Unlock()
		rejected = b.Wait(e)
		p.flight = e.Permit
		return true, rejected
	}
	defer b.Mu.Unlock()
	p.flight = granted
	switch {
	// A hedge would take a request from a call that has not been sent at all.
	case rejected == nil && r.NoWait && b.lessThanHalfLeft(now):
		b.finish(&granted, false)
		return false, &waitqueue.Rejection{Reason: waitqueue.MaxWaitExceeded, NotBefore: now}
	// The call would fail, so it may as well show whether the wait is needed. No call in the queue waits longer for it.
	case rejected != nil && mayWait && b.mayProbe(now):
		b.send(p, &b.probes, r, now)
		return false, nil
	}
	return false, rejected
}

// send permits a request that takes no part in the queue.
func (b *bucket) send(p *Permit, probe *probes, r *Request, now time.Time) {
	p.probe, p.cost = probe, r.Cost
	b.use(&p.flight, now)
}

// use counts a request as in flight.
func (b *bucket) use(f *flight, now time.Time) {
	b.inflight++
	b.spent += f.cost
	b.block.test = firstSince(b.block.test, b.block.shown, now)
	for i := range b.dims {
		d := &b.dims[i]
		d.own++
		d.first = firstSince(d.first, d.since, now)
		if d.end.reset.IsZero() && d.standing == followed { // the server may begin a window with it
			d.end = end{early: now, reset: now.Add(d.window), guessed: true}
		}
	}
	b.after.sent = now.Before(b.after.alone)
	if f.probe != nil {
		f.probe.inFlight = true
	}
	f.version, f.sent, f.spent = b.version, now, b.spent
}

// opening is the time at which the next request may be sent.
type opening struct {
	at      time.Time // the earliest time; zero: now
	blocked bool      // rejections have blocked the scope until then
	recheck time.Time // wait for a response of a request in flight, at most until then; zero: no wait
}

func (o opening) open(now time.Time) bool { return o.recheck.IsZero() && !o.at.After(now) }

// opening returns when a request of that cost may be sent.
func (b *bucket) opening(now time.Time, cost int64) opening {
	o := opening{at: b.blockedUntil(now)}
	o.blocked = !o.at.IsZero()
	for i := range b.dims {
		d := &b.dims[i]
		if d.over(now) {
			b.roll(d, now)
		}
		need := d.need(cost)
		switch {
		// An ignored quota never delays a call, whatever its last count was.
		case d.standing != followed, d.left(now, b.load) >= need:
		// A token bucket gains units before its reset, so calls wait for their units only.
		case d.refill() > 0:
			o.recheck = sooner(o.recheck, d.refilledAt(need, b.load))
		// Nothing can come back before the reset, so all calls are held until then.
		case d.remaining < need:
			if d.end.until().After(o.at) {
				o.at, o.blocked = d.end.until(), false
			}
		// All that is left is in flight, and a response may correct the count.
		default:
			o.recheck = sooner(o.recheck, d.end.until())
		}
	}
	// The first request after a wait is alone, because the server may still reject.
	if b.after.sent && now.Before(b.after.alone) {
		o.recheck = sooner(o.recheck, b.after.alone)
	}
	return o
}

// roll begins a new window of a dimension after its reset.
func (b *bucket) roll(d *dimension, now time.Time) {
	empty := d.left(now, b.load) < d.need(0)
	if !d.roll(now, b.load, b.Len() > 0) {
		return
	}
	b.hold(now)
	if empty {
		b.probes.begin()
		b.tests.inFlight = false
	}
}

// lose counts a request that lost its response: the server may have counted it.
func (b *bucket) lose(p *Permit) {
	for i := range b.dims {
		if d := &b.dims[i]; !d.costed && d.remaining > 0 && d.version <= p.version && !p.sent.Before(d.since) {
			d.remaining--
		}
	}
}

// finish removes a request from those in flight. If it was not sent, the next one is sent alone
// instead, or is the probe.
func (b *bucket) finish(f *flight, sent bool) {
	b.inflight--
	if !sent {
		b.giveBack(f)
	}
	for i := range b.dims {
		if d := &b.dims[i]; f.sent.Before(d.since) {
			d.old--
		}
	}
	if !f.sent.Before(b.after.since) {
		if b.after.sent = false; sent {
			b.after.alone = time.Time{}
		}
	}
	if f.probe != nil {
		f.probe.inFlight = false
	}
}
