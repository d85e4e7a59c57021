package durable

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// core is an Engine with its defaults, and what it does now.
type core struct {
	*settings

	routes map[string]*route
	terms  map[string]Terms
	worker string
	wake   chan struct{}
	lease  lease
	settle settler

	mu    sync.Mutex
	taken int            // senders that are at work
	held  map[string]int // intents held, by scope
	after string         // the scope that was served last
}

// settings are the Engine's fields, with the defaults put in.
type settings struct {
	Store                               Store
	Concurrency, PerTenant              int
	Lease, Poll, Drain, Timeout, Expiry time.Duration
	Trace                               *Trace
}

// route is a gateway with all that is said of it.
type route struct {
	gateway Gateway
	finder  Finder // nil: it cannot be asked
	policy  Policy
	terms   Terms
}

func newCore(e *Engine) *core {
	s := &settings{
		Store: e.Store, Concurrency: cmp.Or(e.Concurrency, defaultConcurrency), PerTenant: e.PerTenant,
		Lease: cmp.Or(e.Lease, defaultLease), Poll: cmp.Or(e.Poll, defaultPoll), Drain: max(cmp.Or(e.Drain, defaultDrain), 0),
		Timeout: cmp.Or(e.Timeout, defaultTimeout), Expiry: cmp.Or(e.TTL, defaultTTL), Trace: e.Trace,
	}
	if s.PerTenant == 0 {
		s.PerTenant = max(s.Concurrency/4, 1)
	}
	c := &core{
		settings: s, routes: make(map[string]*route), terms: make(map[string]Terms),
		worker: rand.Text(), wake: make(chan struct{}, 1), held: make(map[string]int),
	}
	c.lease.length = s.Lease
	c.settle.store = s.Store
	for name, gateway := range e.Gateways {
		r := newRoute(e, gateway)
		c.routes[name], c.terms[name] = r, r.terms
		if s.Expiry > 0 {
			s.Expiry = max(s.Expiry, r.terms.KeyLife)
		}
	}
	return c
}

func newRoute(e *Engine, gateway Gateway) *route {
	r := &route{gateway: gateway, policy: e.Policy}
	if r.policy == nil {
		r.policy = Schedule{}
	}
	if own, ok := gateway.(Policy); ok {
		r.policy = own
	}
	r.finder, r.terms.Finds = gateway.(Finder)
	if p, ok := gateway.(Protector); ok {
		r.terms.KeyLife, r.terms.Settles = p.Protects()
	}
	r.terms.KeyLife = cmp.Or(r.terms.KeyLife, e.KeyLife, defaultKeyLife)
	r.terms.Settles = max(cmp.Or(r.terms.Settles, e.Settles, defaultSettles), 0)
	return r
}

func (c *core) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// claim takes what is due, no more than there are free senders, and sends it. What it
// returns is how many it took, and how many it could have taken at most.
func (c *core) claim(ctx context.Context, r *round, limit int, only *idempotency.ID) (taken, room int, err error) {
	claim := Claim{Worker: c.worker, Lease: c.Lease, Terms: c.terms, PerScope: c.PerTenant, Only: only}
	c.mu.Lock()
	claim.Limit = min(limit, c.Concurrency-c.taken)
	claim.After = c.after
	claim.Held = maps.Clone(c.held)
	c.taken += max(claim.Limit, 0)
	c.mu.Unlock()
	if claim.Limit <= 0 {
		return 0, 0, nil
	}
	asked := time.Now()
	claimed, err := c.Store.Claim(ctx, claim)
	if err == nil {
		c.lease.extend(asked)
	}

	c.mu.Lock()
	c.taken -= claim.Limit
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		c.after = change.Record.ID.Scope
		if change.Begun != nil {
			c.taken++
			c.held[change.Record.ID.Scope]++
		}
	}
	c.mu.Unlock()
	if err != nil {
		return 0, claim.Limit, err
	}
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		c.Trace.changed(change)
		if change.Begun != nil {
			r.send(&attempt{core: c, change: change, route: c.routes[change.Record.Gateway], now: claimed.Now, asked: asked})
		}
	}
	return len(claimed.Changes), claim.Limit, nil
}

// free gives a sender back.
func (c *core) free(scope string) {
	c.mu.Lock()
	c.taken--
	if c.held[scope]--; c.held[scope] <= 0 {
		delete(c.held, scope)
	}
	c.mu.Unlock()
	c.wakeUp()
}

// beat keeps the worker alive until ctx ends.
func (c *core) beat(ctx context.Context) {
	wait := c.Lease / 3
	for sleep(ctx, wait) {
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, c.Lease/3)
		_, err := c.Store.Beat(limited, c.worker, c.Lease)
		cancel()
		wait = c.Lease / 3
		if err == nil {
			c.lease.extend(asked)
		} else if ctx.Err() == nil {
			c.Trace.failed(err)
			wait = c.Lease / 20
		}
	}
}

// reap makes unknown what dead workers held.
func (c *core) reap(ctx context.Context) {
	const page = 100
	for {
		changes, err := c.Store.Reap(ctx, page)
		if err != nil {
			if ctx.Err() == nil {
				c.Trace.failed(err)
			}
			return
		}
		for i := range changes {
			c.Trace.changed(&changes[i])
		}
		if len(changes) < page {
			return
		}
	}
}

// sleep reports whether it slept to its end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var (
	errLease   = errors.New("durable: the worker's lease is about to end")
	errDrained = errors.New("durable: the worker has stopped")
	errTimeout = errors.New("durable: the attempt took too long")
	errKeyLife = errors.New("durable: the key is about to protect no more")
)

// lease is how long the worker may be sure of what it holds: a quarter of a lease less
// than the store last promised.
type lease struct {
	length time.Duration

	mu     sync.Mutex
	until  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// extend is by a promise that was asked for then.
func (l *lease) extend(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := asked.Add(l.length * 3 / 4); until.After(l.until) {
		l.until = until
	}
	if l.ctx == nil || l.ctx.Err() != nil {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
		l.timer = time.AfterFunc(time.Until(l.until), l.end)
	}
}

// end ends the lease, if it is over.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := time.Until(l.until); left > 0 {
		l.timer.Reset(left)
		return
	}
	l.cancel(errLease)
}

// context ends with the lease.
func (l *lease) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}
