package quota

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// bucketKey names one of a server's quotas: servers count by credential, not by client.
type bucketKey struct {
	scope      string
	credential uint64
	name       string // the server's; "" and an id of 0: of all routes without a bucket of their own
	id         uint64
}

func (k bucketKey) clone() bucketKey {
	k.scope, k.name = strings.Clone(k.scope), strings.Clone(k.name)
	return k
}

// bucket is one of a server's quotas, with the calls that wait for it. A request may be
// sent if in each dimension more remains than is in flight; else it queues, unless the
// estimate says that its permit would come too late.
//
// At the reset the quota is assumed to be whole. The reset may have been rounded, clocks
// differ, and other clients use the quota too: so one request goes alone, and the others
// follow evenly when its response is there.
type bucket struct {
	once    sync.Once
	limiter *Limiter
	general atomic.Pointer[bucket] // of the credential's routes without a bucket; maybe itself
	known   atomic.Bool            // a response has shown a quota or was a rejection
	block   block
	shared  *sharedquota.Quota // of many processes; nil: none

	mu sync.Mutex // guards what follows
	waitqueue.Queue[Permit]
	heldSince time.Time // its calls wait for a reset or the end of a block since then; zero: not
	heldUntil time.Time // and for so long
	inflight  int64
	early     int64 // requests in flight without a permit; negative: their results came before their number
	alone     alone
	pacer     pacer
	probeDue  bool   // in this window a call was rejected that may be a probe
	probed    bool   // a probe is in flight, or was rejected
	version   uint64 // grows with each response, to tell old observations from new
	dims      []dimension
	clock     serverClock
	latest    time.Time     // now
	trip      time.Duration // the shortest time from sending a request to its response
}

// alone is the request that is sent first after a reset.
type alone struct {
	until time.Time // it goes alone until then, at most
	since time.Time // requests sent before this are not the one
	sent  bool
}

// bucket is the bucket with the key. general is the credential's other bucket; nil: the key
// is that of it.
func (l *Limiter) bucket(k bucketKey, general *bucket) *bucket {
	b := l.buckets.Get(k)
	b.once.Do(func() {
		b.limiter, b.Mu, b.Gate = l, &b.mu, b
		if l.Shared != nil && l.Limit == 0 {
			b.shared = sharedquota.New(l.Shared, l.origin, fmt.Sprintf("quota|%s|%x|%s|%x", k.scope, k.credential, k.name, k.id))
		}
	})
	if general == nil {
		general = b
	}
	if b.general.Load() != general {
		b.general.Store(general)
	}
	return b
}

// own reports whether the bucket is of some of the credential's routes only.
func (b *bucket) own() bool { return b.general.Load() != b }

// keep evicts the buckets first of which nothing is known.
func (b *bucket) keep() bool { return b.known.Load() }

// tick is now, and never earlier than before: the goroutine that read the clock first may
// get the lock last.
func (b *bucket) tick(now time.Time) time.Time {
	b.latest = later(b.latest, b.limiter.steady(now))
	return b.latest
}

// blockedUntil is until when rejections have blocked the bucket, or the general one; the
// zero time if they have not.
func (b *bucket) blockedUntil(now time.Time) time.Time {
	until := b.block.at(now)
	if b.own() {
		return later(until, b.general.Load().block.at(now))
	}
	return until
}

// enter takes the permit, and waits for it if the request may wait that long.
func (b *bucket) enter(p *Permit, noWait bool, now time.Time, limits waitqueue.Limits) *Rejection {
	b.mu.Lock()
	now = b.tick(now)
	if b.Len() == 0 {
		if granted, ok := b.Take(now); ok {
			defer b.mu.Unlock()
			if noWait && b.short() {
				b.land(&granted, false)
				return &Rejection{Reason: MaxWaitExceeded, NotBefore: now}
			}
			p.version, p.sent = granted.version, granted.sent
			return nil
		}
	}
	limits.RTT = b.trip
	e, rejected := b.Join(now, limits)
	if rejected != nil {
		defer b.mu.Unlock()
		if p.probe = !noWait && b.mayProbe(p, now); p.probe {
			b.probed = true
			b.use(p, now)
			return nil
		}
		return rejected
	}
	b.mu.Unlock()
	granted, rejected := b.Wait(e)
	p.Waited, p.version, p.sent = true, granted.version, granted.sent
	return rejected
}

// flying is the number of requests in flight, with and without a permit.
func (b *bucket) flying() int64 { return b.inflight + max(b.early, 0) }

// short reports whether less than half of a quota was left before the newest request.
func (b *bucket) short() bool {
	return slices.ContainsFunc(b.dims, func(d dimension) bool {
		return !d.mute() && d.limit > 0 && 2*d.left(b.flying()-1) < d.limit
	})
}

// mayProbe reports whether a request that would be rejected is sent nevertheless, as a probe:
// the exhaustion may be untrue, or that of other routes. There is one for each window, after
// a first call was rejected.
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
		if d.confirmed && (!d.rejected || p.set.wasRejected(p.method, p.path)) {
			return false
		}
		may, p.otherRoute = true, p.otherRoute || d.rejected
	}
	due := b.probeDue && !b.probed
	b.probeDue = b.probeDue || may
	return may && due
}

// use counts one request as in flight, with the permit.
func (b *bucket) use(p *Permit, now time.Time) {
	b.inflight++
	for i := range b.dims {
		b.dims[i].sent(now)
	}
	b.alone.sent = b.alone.sent || now.Before(b.alone.until)
	p.version, p.sent = b.version, now
}

// opening is when the next request may be sent.
type opening struct {
	at      time.Time // not before; the zero time is now
	blocked bool      // by rejections
	recheck time.Time // when one in flight is back, or at the latest then; zero: without that
}

func (o *opening) free(now time.Time) bool { return o.recheck.IsZero() && !o.at.After(now) }

func (b *bucket) opening(now time.Time) opening {
	o := opening{at: b.blockedUntil(now)}
	o.blocked = !o.at.IsZero()
	for i := range b.dims {
		d := &b.dims[i]
		if d.roll(now, b.inflight, b.trip) {
			b.probeDue, b.probed, b.early = false, false, 0
			b.hold(now)
		}
		switch {
		case d.mute(), d.left(b.flying()) > 0:
		case d.remaining <= 0 || d.costed:
			if d.reset.After(o.at) {
				o.at, o.blocked = d.reset, false
			}
		default:
			o.recheck = sooner(o.recheck, d.reset)
		}
	}
	if b.alone.sent && now.Before(b.alone.until) {
		o.recheck = sooner(o.recheck, b.alone.until)
	}
	return o
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

// land takes one request from those in flight. If it was not sent, the next one goes alone
// instead. If a probe was not rejected, the next call may be one.
func (b *bucket) land(p *Permit, sent bool) {
	b.inflight--
	for i := range b.dims {
		if d := &b.dims[i]; d.old > 0 && p.sent.Before(d.since) {
			d.old--
		}
	}
	if b.alone.sent && !p.sent.Before(b.alone.since) {
		if b.alone.sent = false; sent {
			b.alone.until = time.Time{}
		}
	}
	if p.probe {
		b.probed = false
	}
}
