package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// core is an Engine with its defaults, and what it does now.
type core struct {
	*settings

	routes map[string]*route
	terms  map[string]driver.Terms
	wake   chan struct{}
	settle outcomeBatcher

	mu      sync.Mutex
	workers []*worker               // the last is the one that claims
	taken   int                     // senders that are at work
	open    int                     // outcomes that are to be stored
	held    map[driver.QueueKey]int // intents that are sent
	after   string                  // the scope that was served last
	behind  map[string]string       // the same of each gateway
}

// settings are the Engine's fields, with the defaults put in.
type settings struct {
	Store                               Store
	Concurrency, PerTenant, PerGateway  int
	Lease, Poll, Drain, Timeout, Expiry time.Duration
	Trace                               *Trace
}

// route is a gateway with all that is said of it.
type route struct {
	gateway Gateway
	finder  Finder // nil: it cannot be asked
	policy  Policy
	terms   driver.Terms
	pulse   pulse // by core.mu
}

func newCore(e *Engine) *core {
	s := &settings{
		Store: e.Store, Concurrency: cmp.Or(e.Concurrency, defaultConcurrency), PerTenant: e.PerTenant, PerGateway: e.PerGateway,
		Lease: cmp.Or(e.LeaseDuration, defaultLease), Poll: cmp.Or(e.PollInterval, defaultPoll), Drain: max(cmp.Or(e.DrainTimeout, defaultDrain), 0),
		Timeout: cmp.Or(e.Timeout, defaultTimeout), Expiry: cmp.Or(e.Retention, defaultTTL), Trace: e.Trace,
	}
	if s.PerTenant == 0 {
		s.PerTenant = max(s.Concurrency/4, 1)
	}
	if s.PerGateway == 0 {
		s.PerGateway = max(s.Concurrency/max(len(e.Gateways), 1), 1)
	}
	s.PerGateway = min(s.PerGateway, s.Concurrency)
	c := &core{
		settings: s, routes: make(map[string]*route), terms: make(map[string]driver.Terms),
		wake: make(chan struct{}, 1), held: make(map[driver.QueueKey]int), behind: make(map[string]string),
	}
	c.settle.core = c
	for name, gateway := range e.Gateways {
		r := newRoute(e, gateway)
		c.routes[name], c.terms[name] = r, r.terms
		if s.Expiry > 0 {
			s.Expiry = max(s.Expiry, r.terms.KeyTTL)
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
	r.finder, r.terms.CanQuery = gateway.(Finder)
	if p, ok := gateway.(Protector); ok {
		r.terms.KeyTTL, r.terms.VisibilityDelay = p.KeyPolicy()
	}
	r.terms.KeyTTL = cmp.Or(r.terms.KeyTTL, e.KeyTTL, defaultKeyTTL)
	r.terms.VisibilityDelay = max(cmp.Or(r.terms.VisibilityDelay, e.VisibilityDelay, defaultVisibilityDelay), 0)
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
	if only == nil {
		c.gather(ctx)
	}
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	claim := driver.Claim{Lease: c.Lease, Terms: c.terms, PerScope: c.PerTenant, ID: only}
	c.mu.Lock()
	claim.Limit = min(limit, c.room())
	if claim.Limit <= 0 {
		c.mu.Unlock()
		return 0, 0, nil
	}
	w := c.claimant()
	w.holds++
	c.taken += claim.Limit
	claim.Worker, claim.ScopeCursor, claim.GatewayCursors, claim.InFlight = w.name, c.after, maps.Clone(c.behind), maps.Clone(c.held)
	claim.MaxWorkers, claim.GatewayLimits = c.Concurrency, c.shares()
	c.mu.Unlock()

	asked := time.Now()
	claiming, cancel := r.claiming(ctx)
	defer cancel()
	claimed, err := patiently(claiming, c, func(ctx context.Context) (driver.Claimed, error) { return c.Store.Claim(ctx, claim) })
	if err == nil {
		r.ahead = time.Since(claimed.Now)
		w.lease.extend(asked, cmp.Or(claimed.Lease, c.Lease))
	}

	c.mu.Lock()
	c.taken -= claim.Limit
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		lane := driver.QueueKeyOf(&change.Record)
		if only == nil {
			c.after = lane.Scope
		}
		if route := c.routes[lane.Gateway]; route != nil && only == nil {
			c.behind[lane.Gateway] = lane.Scope
		}
		if change.StartedAttempt != nil {
			c.taken++
			c.held[lane]++
			w.holds++
		}
	}
	c.release(w, err != nil)
	c.mu.Unlock()
	if err != nil {
		return 0, claim.Limit, err
	}
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		c.Trace.changed(change)
		if change.StartedAttempt == nil {
			c.wakeUp() // what is buried leaves its place to the next at once
		} else {
			a := &attempt{core: c, worker: w, change: change, route: c.routes[change.Record.Gateway], now: claimed.Now, asked: asked}
			c.begin(a)
			r.send(a)
		}
	}
	return len(claimed.Changes), claim.Limit, nil
}

// room is how many more may be claimed: as many as there are free senders, and not so many
// that outcomes pile up. While those of one claim are stored the next is made, so that
// neither waits for the other's commit. mu is held.
func (c *core) room() int { return min(c.Concurrency-c.taken, 2*c.Concurrency-c.taken-c.open) }

// moment is how long is waited for company.
const moment = time.Millisecond

// gather waits a moment where some senders are at work and some are free: more of them
// come free mostly, and one claim takes for all.
func (c *core) gather(ctx context.Context) {
	c.mu.Lock()
	some := 0 < c.taken && c.taken < c.Concurrency
	c.mu.Unlock()
	if some {
		_ = sleep.Context(ctx, moment)
	}
}

// company reports whether any are being sent.
func (c *core) company() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken > 0
}

// answered is when a send has an outcome, which is to be stored.
func (c *core) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
}

// settled gives back what an attempt has held, whose outcome was stored or was not.
func (c *core) settled(w *worker, stored bool) {
	c.mu.Lock()
	awaited := c.open > c.Concurrency
	c.open--
	c.release(w, !stored)
	c.mu.Unlock()
	if awaited { // else who waits for a sender was told
		c.wakeUp()
	}
}

// begin notes an attempt, and hear what came of it.
func (c *core) begin(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.route.pulse.begin(a)
}

func (c *core) hear(a *attempt, outcome *Outcome, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.route.pulse.hear(outcome, time.Now(), took)
}

// free gives an attempt's sender back.
func (c *core) free(a *attempt) {
	lane := driver.QueueKeyOf(&a.change.Record)
	c.mu.Lock()
	a.route.pulse.end(a)
	c.taken--
	if c.held[lane]--; c.held[lane] <= 0 {
		delete(c.held, lane)
	}
	c.mu.Unlock()
	c.wakeUp()
}

// reap makes unknown what dead workers held.
func (c *core) reap(ctx context.Context) {
	const page = 100
	for {
		changes, err := patiently(ctx, c, func(ctx context.Context) ([]driver.Change, error) { return c.Store.Reap(ctx, page) })
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

// leastPatience is more than any store waits for a lock.
const leastPatience = 15 * time.Second

var errNoAnswer = errors.New("durable: the store does not answer")

// patiently calls a verb of the store, and gives it up after a Lease. By then the lease of
// a claim is over; and who waits longer waits on a connection whose other end has gone
// without a word, mostly, which the kernel notices after a quarter of an hour.
func patiently[T any](ctx context.Context, c *core, verb func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, max(c.Lease, leastPatience))
	defer cancel()
	answer, err := verb(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return answer, err
}
