package quota

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Set is the quotas of one scope: the fixed limit, and those of all credentials. It is safe for
// concurrent use.
type Set struct {
	scope.Refs

	limiter *Limiter
	scope   string
	active  atomic.Bool
	named   atomic.Bool        // some routes have their own bucket
	limited atomic.Int64       // time of the last 429 since the limiter's origin; 0: never
	fixed   *fixedLimit        // the fixed limit of this process; nil: none
	shared  *sharedquota.Quota // the fixed limit of many processes; nil: none
	slots   *fixedLimit        // the requests at once; nil: no limit

	first atomic.Pointer[bucket] // made the Set active, and counts the requests without a permit

	mu   sync.Mutex
	keys map[string]string // of requests; guarded by mu
}

// maxKeys is the number of keys of a Set. otherKeys is the key that further ones share.
const (
	maxKeys   = 64
	otherKeys = "other"
)

// key returns the key of a request's bucket, in memory of its own.
func (s *Set) key(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.keys[key]; ok {
		return known
	}
	if len(s.keys) >= maxKeys {
		return otherKeys
	}
	if s.keys == nil {
		s.keys = map[string]string{}
	}
	key = strings.Clone(key)
	s.keys[key] = key
	return key
}

func (s *Set) init(l *Limiter, scope string) {
	s.limiter, s.scope = l, scope
	switch {
	case l.Limit > 0 && l.Shared == nil:
		s.fixed = newFixedLimit(float64(l.Limit), l.Burst, nil, l.origin)
	case l.Limit > 0:
		s.shared = sharedquota.NewFixed(l.Shared, s.scope, float64(l.Limit), l.Burst)
	}
	if l.MaxInFlight > 0 {
		s.slots = newFixedLimit(0, l.MaxInFlight, s.fixed, l.origin)
	}
	s.active.Store(l.Limit > 0 || l.MaxInFlight > 0 || l.Follow && l.Shared != nil)
}

// Active reports whether a request needs a permit. It is false as long as there is no limit of the
// client's own, and no response has shown a quota or was a rejection. Once true, it stays true. A nil Set has none.
func (s *Set) Active() bool { return s != nil && s.active.Load() }

// Admit waits for a permit, or rejects the request. It returns as soon as ctx is done. First the
// server's quota must admit the request. Then Admit takes the tokens and the slot: see count.
func (s *Set) Admit(ctx context.Context, r Request, now time.Time) (Permit, *waitqueue.Rejection) {
	l := s.limiter
	g := passage{now: now}
	g.limits = waitqueue.Limits{Ctx: ctx, Deadline: r.Deadline, MaxWait: cmp.Or(r.MaxWait, l.MaxWait), MaxBlock: r.MaxBlock, Waiter: r.Waiter, Cost: r.Cost}
	if r.NoWait || r.AtOnce {
		g.limits.MaxWait = 0
	}
	for {
		p := Permit{set: s}
		if l.Follow {
			if r.NoWait && s.limitedLately(g.now) {
				return Permit{}, &waitqueue.Rejection{Reason: waitqueue.MaxWaitExceeded, NotBefore: g.now}
			}
			p = Permit{set: s, bucket: s.bucketOf(&r), method: r.Method, path: r.Path}
			waited, rejected := p.bucket.enter(&p, &r, g.now, &g.limits)
			if g.pass(waited); rejected != nil {
				return Permit{}, rejected
			}
		}
		waits := g.waits
		if rejected := s.count(&g, &p, r.Around); rejected != nil {
			return Permit{}, rejected
		}
		// Without a wait, nothing has changed since the quota admitted the request.
		if g.waits == waits || p.renew(g.now) {
			p.Waited = g.waits > 0
			return p, nil
		}
		p.Cancel(g.now) // during the wait the server blocked the scope, or named another bucket
	}
}

// count takes a token of the quota that processes share, then a slot, then a token of the fixed limit.
// The order loses nothing. A call that waits for a quota has no slot: calls with another credential could
// use it. All calls of a scope need the fixed limit, so a slot that waits for it keeps no other call back;
// a token that waits for a slot would be sent too late and together with others. After a rejection, or if a
// Waiter panics, count cancels p.
func (s *Set) count(g *passage, p *Permit, around *Slot) (rejected *waitqueue.Rejection) {
	admitted := false
	defer func() {
		if !admitted {
			p.Cancel(time.Now())
		}
	}()
	var waited bool
	if b := p.bucket; b != nil && b.shared != nil {
		rejected = g.takeToken(p, b.shared)
	}
	if rejected == nil && s.slots != nil {
		p.Slot, waited, rejected = s.slots.enterSlot(around, g.now, g.limits)
		g.pass(waited)
	}
	if rejected == nil && s.shared != nil {
		rejected = g.takeToken(p, s.shared)
	}
	if rejected == nil && s.fixed != nil {
		if _, waited, rejected = s.fixed.Enter(g.now, g.limits); rejected == nil {
			p.fixed = s.fixed
		}
		g.pass(waited)
	}
	admitted = rejected == nil
	return rejected
}

// passage is the way of one request through the gates.
type passage struct {
	now    time.Time
	limits waitqueue.Limits
	waits  int // in how many of them it waited
}

// pass notes that a gate is passed. A wait there takes a part of MaxWait.
func (g *passage) pass(waited bool) {
	if waited {
		now := time.Now()
		g.limits.MaxWait -= now.Sub(g.now)
		g.now = now
		g.waits++
	}
}

// takeToken takes a token of a shared quota.
func (g *passage) takeToken(p *Permit, of *sharedquota.Quota) *waitqueue.Rejection {
	token, waited, rejected := of.Enter(g.now, g.limits)
	if g.pass(waited); rejected == nil {
		p.shared, p.token = of, token
	}
	return rejected
}

// Observe learns from the result of a request without a permit, because the Set was not active.
// The first response that shows a quota or is a rejection makes the Set active. inFlight is the
// number of other requests without a permit that are in flight then. Each of them must call
// Observe too, also without a response.
func (s *Set) Observe(r Request, resp *Response, sent, now time.Time, inFlight int64) {
	if !s.limiter.Follow || !s.active.Load() && !resp.Shows() {
		return
	}
	p := Permit{set: s, bucket: s.bucketOf(&r), method: r.Method, path: r.Path}
	p.sent, p.cost = s.limiter.steady(sent), r.Cost
	p.bucket.Mu.Lock()
	of := s.learn(&p, resp, now)
	if s.first.CompareAndSwap(nil, of) {
		of.early = inFlight + 1
		of.inflight += of.early
	}
	first := s.first.Load()
	p.bucket.Dispatch(now) // a success may end the block of calls that wait in it
	p.bucket.Mu.Unlock()
	first.Mu.Lock()
	defer first.Mu.Unlock()
	if first.early > 0 { // the request is no longer one of those in flight without a permit
		first.early--
		first.finish(&p.flight, true)
	}
	first.Dispatch(now)
}

// learn learns from a response, and returns the bucket that the response names. The account is locked.
func (s *Set) learn(p *Permit, a *Response, now time.Time) (of *bucket) {
	of = p.bucket
	if a.Status == 0 {
		return of
	}
	switch {
	case a.Quota.Bucket != "":
		of = s.learnRoute(p, namedBucket{name: a.Quota.Bucket, ofID: a.Quota.PerID})
	// A store counts for all processes, so a process must not divide its quota by itself.
	case of.shared == nil && (p.otherRoute && a.served() || of.ofOtherRoute(p, a, now)):
		of = s.learnRoute(p, namedBucket{}) // the route has its own quota
	}
	if !s.active.Load() && a.Shows() {
		s.active.Store(true)
	}
	if a.rejected() {
		s.limited.Store(s.limiter.sinceOrigin(now))
	}
	if of.learn(p, a, now); of != p.bucket {
		of.Dispatch(now)
	}
	return of
}

// BlockedUntil returns the end of the block of a request, or zero. The caller calls it before it
// waits for a retry.
func (s *Set) BlockedUntil(r Request, now time.Time) time.Time {
	if !s.Active() || !s.limiter.Follow {
		return time.Time{}
	}
	b := s.bucketOf(&r)
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.blockedUntil(b.tick(now))
}
