package quota

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// credential is whose quota it is: servers count by credential, not by client.
type credential struct {
	scope string // its classes share a quota
	hash  uint64
}

func (c credential) clone() credential { return credential{strings.Clone(c.scope), c.hash} }

// account is what a server has said to one credential.
type quotaSet struct {
	once    sync.Once
	who     credential
	naming  atomic.Bool  // some routes have a bucket of their own
	limited atomic.Int64 // when the last 429 came, since the limiter's origin; 0: never
	shared  bucket       // of all other routes
}

// account is whose quota the request uses.
func (l *Limiter) account(r *Request) *quotaSet {
	who := credential{r.Scope.Name, r.Credential}
	a := l.accounts.Get(who)
	a.once.Do(func() {
		a.who = who.clone()
		a.shared.init(l, a, "", 0)
	})
	return a
}

// busy keeps what matters from being evicted first.
func (a *quotaSet) busy() bool { return a.shared.busy() }

// bucket is one of a server's quotas, with the calls that wait for it. Until a response
// says something, requests are only counted, without a lock. From then on a request may be
// sent if in each dimension more remains than is in flight; else it queues, unless the
// estimate says that its permit would come too late.
//
// At the reset the quota is assumed to be whole. The reset may have been rounded, clocks
// differ, and other clients use the quota too: so one request goes alone, and the others
// follow evenly when its response is there.
type bucket struct {
	once     sync.Once
	limiter  *Limiter
	account  atomic.Pointer[quotaSet]
	own      bool         // it is not the account's default
	inflight atomic.Int64 // changed under the lock while armed
	armed    atomic.Bool  // something is known, or a call waits
	blocks   blocks
	shared   *sharedquota.Quota // of many processes; nil: none

	mu      sync.Mutex // guards what follows
	queues  [numClasses]*classQueue
	alone   alone
	pacer   pacer
	probe   probe
	version uint64 // grows with each response, to tell old observations from new
	dims    []dimension
	clock   serverClock
	latest  time.Time     // now
	trip    time.Duration // the shortest time from sending a request to its response
}

// alone is the request that is sent first after a reset.
type alone struct {
	until time.Time // it goes alone until then, at most
	since time.Time // requests sent before this are not the one
	sent  bool
}

// probe is how far the test of an exhaustion is that no rejection has shown to the route:
// after a call was rejected for it, the next one is sent.
type probe uint8

const (
	probeNone probe = iota
	probeDue
	probeSent
)

func (b *bucket) init(l *Limiter, who *quotaSet, name string, id uint64) {
	b.once.Do(func() {
		b.limiter, b.own = l, name != "" || id != 0
		if l.Shared != nil && l.Limit == 0 {
			b.shared = new(sharedquota.Quota)
			b.shared.Init(l.Shared, l.origin, fmt.Sprintf("quota|%s|%x|%s|%x", who.who.scope, who.who.hash, name, id))
		}
	})
	if b.account.Load() != who {
		b.account.Store(who)
	}
}

// busy keeps what matters from being evicted first.
func (b *bucket) busy() bool { return b.armed.Load() || b.blocks.busy() }

// free reports whether nothing is known that could hold a request up.
func (b *bucket) free() bool {
	return !b.armed.Load() && !b.blocks.busy() && !b.account.Load().shared.blocks.busy()
}

// tick is now, and never earlier than before: the goroutine that read the clock first may
// get the lock last.
func (b *bucket) tick(now time.Time) time.Time {
	b.latest = later(b.latest, b.limiter.steady(now))
	return b.latest
}

// blockedUntil is until when rejections have blocked the bucket, or its account, for a
// class, and whether for that class alone; the zero time if they have not.
func (b *bucket) blockedUntil(class int8, now time.Time) (until time.Time, alone bool) {
	until, alone = b.blocks.blockedUntil(class, now)
	if b.own {
		if all, just := b.account.Load().shared.blocks.blockedUntil(class, now); all.After(until) {
			return all, just
		}
	}
	return until, alone
}

// enter takes a permit, and waits for it if the request may wait that long.
func (b *bucket) enter(now time.Time, r *Request, limits waitqueue.Limits) (Permit, *Rejection) {
	class := r.Scope.Class
	if r.NoWait && b.limitedLately(now) {
		return Permit{}, &Rejection{Reason: MaxWaitExceeded, NotBefore: now}
	}
	free := b.free()
	if free {
		b.inflight.Add(1)
		if !b.armed.Load() {
			return Permit{bucket: b, class: class, method: r.Method, path: r.Path, after: now.Sub(b.limiter.origin)}, nil
		}
		b.inflight.Add(-1) // in this very moment something was learned
	}
	b.mu.Lock()
	now = b.tick(now)
	b.armed.Store(true)
	if free {
		b.dispatch(now) // a call may wait for what seemed to be in flight
	}
	q := b.queue(class)
	if o := b.opening(now, class); b.ahead(q) == 0 && o.free(now) {
		defer b.mu.Unlock()
		if r.NoWait && b.short() {
			return Permit{}, &Rejection{Reason: MaxWaitExceeded, NotBefore: now}
		}
		return b.take(now, r), nil
	}
	limits.RTT = b.trip
	e, refused := q.Join(now, limits)
	if refused != nil {
		t, sent := b.trySending(now, r)
		b.mu.Unlock()
		if sent {
			return t, nil
		}
		return Permit{}, refused
	}
	b.mu.Unlock()
	t, refused := q.Wait(e)
	t.Waited, t.method, t.path = true, r.Method, r.Path
	return t, refused
}

// limitedLately reports whether there was a 429 within the last minute.
func (b *bucket) limitedLately(now time.Time) bool {
	last := b.account.Load().limited.Load()
	return last != 0 && b.limiter.steady(now).Sub(b.limiter.origin)-time.Duration(last) < time.Minute
}

// short reports whether less than half of a quota is left.
func (b *bucket) short() bool {
	inflight := b.inflight.Load()
	for i := range b.dims {
		if b.dims[i].short(inflight) {
			return true
		}
	}
	return false
}

// trySending makes a probe of a request that would be rejected, where the exhaustion may be
// untrue, or that of other routes: one for each window, after a first call was rejected.
func (b *bucket) trySending(now time.Time, r *Request) (Permit, bool) {
	if r.NoWait || !b.mayProbe(now, r) {
		return Permit{}, false
	}
	if b.probe != probeDue {
		if b.probe == probeNone {
			b.probe = probeDue
		}
		return Permit{}, false
	}
	b.probe = probeSent
	t := b.take(now, r)
	t.probe = true
	return t, true
}

func (b *bucket) mayProbe(now time.Time, r *Request) bool {
	if until, _ := b.blockedUntil(r.Scope.Class, now); !until.IsZero() {
		return false
	}
	may := false
	for i := range b.dims {
		d := &b.dims[i]
		if !d.exhausted(now) {
			continue
		}
		if d.confirmed && (!d.rejected || b.limiter.wasRejected(b, r.Method, r.Path)) {
			return false
		}
		may = true
	}
	return may
}

// take counts one request as in flight.
func (b *bucket) take(now time.Time, r *Request) Permit {
	t := b.permit(now, r.Scope.Class)
	t.method, t.path = r.Method, r.Path
	return t
}

func (b *bucket) permit(now time.Time, class int8) Permit {
	b.inflight.Add(1)
	for i := range b.dims {
		b.dims[i].sent(now)
	}
	b.alone.sent = b.alone.sent || now.Before(b.alone.until)
	return Permit{bucket: b, class: class, version: b.version, after: now.Sub(b.limiter.origin)}
}

// opening is when the next request may be sent.
type opening struct {
	at      time.Time // not before; the zero time is now
	blocked bool      // by rejections
	class   bool      // for this class alone
	flight  bool      // and when one in flight is back
	recheck time.Time // with flight: when to look again at the latest
}

func (o *opening) wait(at time.Time) {
	if at.After(o.at) {
		o.at, o.blocked, o.class = at, false, false
	}
}

func (o *opening) awaitFlight(recheck time.Time) {
	o.flight, o.recheck = true, sooner(o.recheck, recheck)
}

func (o *opening) free(now time.Time) bool { return !o.flight && !o.at.After(now) }

func (b *bucket) opening(now time.Time, class int8) opening {
	var o opening
	if until, alone := b.blockedUntil(class, now); !until.IsZero() {
		o.at, o.blocked, o.class = until, true, alone
	}
	inflight := b.inflight.Load()
	for i := range b.dims {
		d := &b.dims[i]
		if d.roll(now, inflight, b.trip) {
			b.probe = probeNone
			b.begin(now)
		}
		switch {
		case d.mute(), d.left(inflight) > 0:
		case d.remaining <= 0 || d.costed:
			o.wait(d.reset)
		default:
			o.awaitFlight(d.reset)
		}
	}
	if b.alone.sent && now.Before(b.alone.until) {
		o.awaitFlight(b.alone.until)
	}
	return o
}

// begin is the beginning of a window: the calls that waited for it are released.
func (b *bucket) begin(now time.Time) {
	for _, q := range b.queues {
		if q != nil && q.Len() > 0 {
			q.held = true
			b.goAlone(now)
		}
	}
}

// goAlone lets the next request go alone.
func (b *bucket) goAlone(now time.Time) {
	longest := maxAlone
	for i := range b.dims {
		if d := &b.dims[i]; !d.denied && d.window > 0 {
			longest = min(longest, d.alone())
		}
	}
	b.alone = alone{until: now.Add(longest), since: now}
}

// land takes one request from those in flight.
func (b *bucket) land(t Permit) {
	b.inflight.Add(-1)
	for i := range b.dims {
		if d := &b.dims[i]; d.old > 0 && t.sent().Before(d.since) {
			d.old--
		}
	}
	if b.alone.sent && !t.sent().Before(b.alone.since) {
		b.alone = alone{}
	}
	if t.probe && !t.rejected && b.probe == probeSent {
		b.probe = probeDue
	}
}

// landUnarmed is land without the lock. It returns false if that is not possible.
func (b *bucket) landUnarmed(now time.Time) bool {
	if b.armed.Load() {
		return false
	}
	b.inflight.Add(-1)
	if b.armed.Load() { // in this very moment: a call may wait for it
		b.mu.Lock()
		defer b.mu.Unlock()
		b.dispatch(now)
	}
	return true
}

// settle releases calls by what has been learned.
func (b *bucket) settle(now time.Time) {
	b.dispatch(now)
	if len(b.dims) > 0 {
		return
	}
	for class := int8(-1); class <= 1; class++ {
		until, _ := b.blockedUntil(class, b.latest)
		if q := b.queues[class+1]; !until.IsZero() || q != nil && q.Len() > 0 {
			return
		}
	}
	b.armed.Store(false) // a block is over, and nothing else is known
}

// judge counts a success, or a rejection, for the blocks: those of the account, if it is
// unknown which bucket the rejection means.
func (b *bucket) judge(t *Permit, now time.Time, a *Response) {
	who, sent := b.account.Load(), t.sent()
	if a.served() {
		b.blocks.succeed(t.class, sent)
		who.shared.blocks.succeed(t.class, sent)
		return
	}
	if !a.rejected() {
		return
	}
	of := &who.shared
	if b.own && !a.Quota.Global {
		of = b
	}
	now = b.limiter.steady(now)
	who.limited.Store(max(int64(now.Sub(b.limiter.origin)), 1))
	known := b.blocksItself(now, a)
	if known && b.shared != nil {
		return // the processes that share the quota need no doubling to leave each other some
	}
	shown := a.Quota.Exhausted && a.AsksToWait && (known || len(a.Quota.Dimensions) == 0)
	if of.blocks.toReject(t.class, shown).reject(sent, now, a.RetryAfter, b.limiter.MaxBlock, b.inflight.Load(), shown, known) {
		of.armed.Store(true)
	}
}

// blocksItself reports whether a dimension that the response has is exhausted until a reset.
func (b *bucket) blocksItself(now time.Time, a *Response) bool {
	if len(a.Quota.Dimensions) == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.dims {
		if d := &b.dims[i]; d.exhausted(now) && a.on(d.name) >= 0 {
			return true
		}
	}
	return false
}

// learn joins what a response says of quotas to what is known.
func (b *bucket) learn(t *Permit, now time.Time, a *Response) {
	b.version++
	o := observation{sent: t.sent(), now: b.tick(now), longest: b.limiter.MaxBlock, version: b.version, rejected: a.rejected()}
	if took := o.now.Sub(o.sent); !o.rejected && (b.trip == 0 || took < b.trip) {
		b.trip = took
	} else if !o.rejected {
		b.trip += (took - b.trip) / 64
	}
	var clock *serverClock
	if !a.Quota.Date.IsZero() && b.clock.observe(a.Quota.Date, o.sent, o.now) {
		clock = &b.clock
	}
	own := t.bucket == b
	if own && a.served() {
		for i := range b.dims {
			d := &b.dims[i]
			if !o.sent.Before(d.from) {
				d.served++
			}
			if !d.denied && (d.contradicted(o.now) || t.probe && d.exhausted(o.now) && a.on(d.name) <= 0) {
				d.denied = true
				b.pacer = pacer{} // what it followed was no quota
			}
		}
	}
	for _, field := range a.Quota.Dimensions {
		b.armed.Store(true)
		d := b.dimension(field)
		o.newer = own && t.version >= d.version
		o.read(field, clock)
		current := d.learn(o)
		if o.rejected && a.exhausts(&field) {
			d.reject(o.now, current)
			b.limiter.markRejected(b, t)
		}
	}
	if !own || a.Status >= http.StatusInternalServerError || o.rejected {
		return
	}
	for i := range b.dims {
		if d := &b.dims[i]; d.mentioned != b.version {
			d.missing(o.sent)
		}
	}
}

// on is what remains of the dimension by the response; negative: it does not say.
func (a *Response) on(name string) int64 {
	for i := range a.Quota.Dimensions {
		if a.Quota.Dimensions[i].Name == name {
			return a.Quota.Dimensions[i].Remaining
		}
	}
	return -1
}

// maxDimensions bounds what a hostile server can make a bucket keep.
const maxDimensions = 2 * ratelimitheader.MaxDimensions

// dimension is what is known of that dimension. The one that was mentioned longest ago is
// replaced by a new one.
func (b *bucket) dimension(field ratelimitheader.Dimension) *dimension {
	stalest := 0
	for i := range b.dims {
		if b.dims[i].name == field.Name {
			return &b.dims[i]
		}
		if b.dims[i].mentioned < b.dims[stalest].mentioned {
			stalest = i
		}
	}
	if len(b.dims) < maxDimensions {
		b.dims = append(b.dims, dimension{})
		stalest = len(b.dims) - 1
	}
	b.dims[stalest] = dimension{name: field.Name, costed: field.Costed}
	return &b.dims[stalest]
}
