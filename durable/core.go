package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// core is an Engine with its defaults and its state.
type core struct {
	*settings

	routes  map[string]*route
	wake    chan struct{}
	batcher outcomeBatcher

	mu       sync.Mutex
	workers  []*worker                  // the last is the one that claims
	busy     int                        // worker slots that are in use
	unstored int                        // outcomes that are not stored yet
	inFlight map[QueueKey]int           // intents that are sent
	waits    map[QueueKey]*providerHold // without a scope: of the whole gateway
	alone    aloneTurn
	clock    storeClock
}

// settings are the Engine's fields, with the defaults.
type settings struct {
	Store                                                         Store
	Concurrency                                                   int
	LeaseDuration, PollInterval, DrainTimeout, Timeout, Retention time.Duration
	Trace                                                         *Trace
}

// route is a gateway with its settings and its state.
type route struct {
	gateway Gateway
	finder  Finder // nil: the provider cannot be queried
	policy  Policy
	terms   Terms

	workers, perTenant int
	perScope           bool // the provider limits each scope

	// core.mu guards these.
	inFlight int
	cursor   string // the scope that was served last
	health   gatewayHealth
}

func newCore(e *Engine) *core {
	s := &settings{
		Store: e.Store, Concurrency: cmp.Or(e.Concurrency, defaultConcurrency),
		LeaseDuration: cmp.Or(e.LeaseDuration, defaultLeaseDuration), PollInterval: cmp.Or(e.PollInterval, defaultPollInterval),
		DrainTimeout: max(cmp.Or(e.DrainTimeout, defaultDrainTimeout), 0),
		Timeout:      cmp.Or(e.Timeout, defaultTimeout), Retention: cmp.Or(e.Retention, defaultRetention), Trace: e.Trace,
	}
	c := &core{settings: s, routes: make(map[string]*route), wake: make(chan struct{}, 1), inFlight: make(map[QueueKey]int), waits: make(map[QueueKey]*providerHold)}
	c.batcher.core = c
	perTenant := min(cmp.Or(e.PerTenant, max(s.Concurrency/4, 1)), s.Concurrency)
	for name, gateway := range e.Gateways {
		r := newRoute(e, gateway)
		r.workers = min(cmp.Or(ownConcurrency(gateway), e.PerGateway, max(s.Concurrency/len(e.Gateways), 1)), s.Concurrency)
		r.perTenant = max(perTenant*r.workers/s.Concurrency, 1)
		r.health.workers = r.workers
		c.routes[name] = r
		if s.Retention > 0 {
			s.Retention = max(s.Retention, r.terms.KeyTTL)
		}
	}
	return c
}

// ownConcurrency is the number of workers that a Gateway brings, or 0.
func ownConcurrency(gateway Gateway) int {
	if own, ok := gateway.(interface{ Concurrency() int }); ok {
		return own.Concurrency()
	}
	return 0
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
	if own, ok := gateway.(interface{ LimitsPerScope() bool }); ok {
		r.perScope = own.LimitsPerScope()
	}
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

// claim claims due intents, no more than there are free worker slots, and sends them. It
// returns how many it claimed, and how many it asked for.
func (c *core) claim(ctx context.Context, s *session, limit int, only *idempotency.ID) (taken, asked int, err error) {
	taken, asked, err = c.claimOnce(ctx, s, limit, only)
	if err == nil && taken == 0 && c.waitsAlone(s) { // only a Suspect is due
		return c.claimOnce(ctx, s, limit, only)
	}
	return taken, asked, err
}

func (c *core) claimOnce(ctx context.Context, s *session, limit int, only *idempotency.ID) (taken, asked int, err error) {
	if only == nil {
		c.waitForSlots(ctx)
	}
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	claim, w := c.prepare(s, limit, only)
	if w == nil {
		return 0, 0, nil
	}
	began := time.Now()
	claiming, cancel := s.claiming(ctx)
	defer cancel()
	claimed, err := bounded(claiming, c, func(ctx context.Context) (Claimed, error) { return c.Store.Claim(ctx, claim) })
	rebase := false
	if err == nil {
		rebase = c.readClock(claimed.Now, began)
		w.lease.extend(began, cmp.Or(claimed.Lease, c.LeaseDuration))
	}
	c.take(s, &claim, &claimed, w, began, err)
	if err != nil {
		return 0, claim.Limit, err
	}
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		c.Trace.changed(change)
		if change.StartedAttempt == nil {
			c.wakeUp() // a buried intent uses no slot: claim the next at once
		} else {
			route := c.routes[change.Record.Gateway]
			s.send(&attempt{
				core: c, worker: w, change: change, route: route, terms: c.termsOf(route, &change.Record),
				now: claimed.Now, asked: began, alone: claim.Alone,
			})
		}
	}
	if rebase {
		c.rebase(ctx)
	}
	return len(claimed.Changes), claim.Limit, nil
}

// prepare reserves worker slots for a claim. nil: none are free, or a Suspect is sent alone.
func (c *core) prepare(s *session, limit int, only *idempotency.ID) (Claim, *worker) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := Claim{Lease: c.LeaseDuration, Limit: min(limit, c.freeSlots()), ID: only, Gateways: make(map[string]Allowance, len(c.routes)), Waiting: make(map[QueueKey]bool)}
	may, alone := c.mayClaim(s, now)
	if !may || claim.Limit <= 0 {
		return claim, nil
	}
	if alone {
		claim.Alone = true
		claim.Limit = 1
	}
	for name, r := range c.routes {
		a := Allowance{Terms: r.terms, PerScope: r.perTenant, Cursor: r.cursor}
		permits := c.permits(&claim, QueueKey{Gateway: name}, r.inFlight, now)
		if only == nil {
			a.Limit = r.health.take(now, min(r.workers-r.inFlight, claim.Limit, permits))
		}
		claim.Gateways[name] = a
	}
	claim.InFlight = maps.Clone(c.inFlight)
	c.permitScopes(&claim, now)
	w := c.currentWorker()
	w.holds++
	c.busy += claim.Limit
	claim.Worker = w.name
	return claim, w
}

// take notes what a claim got, and gives back what it did not use.
func (c *core) take(s *session, claim *Claim, claimed *Claimed, w *worker, began time.Time, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy -= claim.Limit
	started := false
	for i := range claimed.Changes {
		change := &claimed.Changes[i]
		key := QueueKeyOf(&change.Record)
		r := c.routes[key.Gateway]
		if r != nil && claim.ID == nil {
			r.cursor = key.Scope
			a := claim.Gateways[key.Gateway]
			a.Limit--
			claim.Gateways[key.Gateway] = a
		}
		if change.StartedAttempt != nil {
			started = true
			c.busy++
			c.inFlight[key]++
			r.inFlight++
			w.holds++
		}
	}
	for name, r := range c.routes {
		r.health.giveBack(claim.Gateways[name].Limit)
		if err == nil {
			r.health.setByPerson(slices.Contains(claimed.Held, name), now)
		}
	}
	if err == nil {
		c.noticeHolds(claimed, began, now)
	}
	c.noticeSuspect(s, claim.Alone, claimed.Suspect, started, now)
	c.release(w, err != nil)
}

// freeSlots is how many more intents may be claimed: as many as there are free worker slots,
// and not so many that outcomes pile up. core.mu is held.
func (c *core) freeSlots() int { return min(c.Concurrency-c.busy, 2*c.Concurrency-c.busy-c.unstored) }

// fetchCooldown is how long a claim waits for more free slots, and an outcome for others.
const fetchCooldown = time.Millisecond

// waitForSlots waits for the cooldown if some slots are busy and some are free: mostly more
// become free, and one claim serves them all.
func (c *core) waitForSlots(ctx context.Context) {
	c.mu.Lock()
	some := 0 < c.busy && c.busy < c.Concurrency
	c.mu.Unlock()
	if some {
		_ = sleep.Context(ctx, fetchCooldown)
	}
}

// hasInFlight reports whether any intents are being sent.
func (c *core) hasInFlight() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy > 0
}

// wait returns the time until a gateway may have one more: a probe, the next of its rate, or the
// first after a provider's hold.
// A gateway without a free worker does not count: a worker that becomes free wakes the loop.
func (c *core) wait() time.Duration {
	now, least := time.Now(), time.Duration(math.MaxInt64)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freeSlots() <= 0 {
		return least
	}
	for _, r := range c.routes {
		if r.inFlight < r.workers {
			least = min(least, r.health.wait(now))
		}
	}
	for _, p := range c.waits {
		if now.Before(p.begin) {
			least = min(least, p.begin.Sub(now))
		}
	}
	return least
}

// answered notes the outcome of an attempt, before it is stored. If the provider asked to wait, it
// returns the Hold to store.
func (c *core) answered(a *attempt, outcome *Outcome) *Hold {
	c.mu.Lock()
	c.unstored++
	if wait := asked(outcome); wait > 0 {
		defer c.mu.Unlock()
		return c.holdFor(a, outcome, wait)
	}
	h := &a.route.health
	changed := h.recordOutcome(outcome, time.Now())
	hold := Hold{}
	if changed {
		hold = h.hold(a.change.Record.Gateway)
	}
	c.mu.Unlock()
	if changed {
		c.Trace.hold(&hold, !hold.Since.IsZero())
		c.wakeUp()
	}
	return nil
}

// stored ends an attempt after the store was asked to store its outcome. ok means that the
// outcome is stored.
func (c *core) stored(s *session, a *attempt, ok bool) {
	c.mu.Lock()
	awaited := c.unstored > c.Concurrency || c.alone.session != nil
	c.unstored--
	c.release(a.worker, !ok)
	if a.alone {
		c.endTurn(s)
	}
	c.mu.Unlock()
	if awaited { // else the free slot has woken the loop
		c.wakeUp()
	}
}

// free gives back the slot of an attempt.
func (c *core) free(a *attempt) {
	key := QueueKeyOf(&a.change.Record)
	c.mu.Lock()
	c.busy--
	a.route.inFlight--
	if c.inFlight[key]--; c.inFlight[key] <= 0 {
		delete(c.inFlight, key)
	}
	c.mu.Unlock()
	c.wakeUp()
}

// reap marks the intents of dead workers as unknown.
func (c *core) reap(ctx context.Context) {
	const page = 100
	for {
		changes, err := bounded(ctx, c, func(ctx context.Context) ([]Change, error) { return c.Store.Reap(ctx, page) })
		c.report(ctx, changes, err)
		if err != nil || len(changes) < page {
			return
		}
	}
}

// report calls the hooks for what a verb did, or for its error.
func (c *core) report(ctx context.Context, changes []Change, err error) {
	if err != nil && ctx.Err() == nil {
		c.Trace.failed(err)
	}
	for i := range changes {
		c.Trace.changed(&changes[i])
	}
}

// minStoreTimeout is more than any store waits for a lock.
const minStoreTimeout = 15 * time.Second

var errNoAnswer = errors.New("durable: the store does not answer")

// bounded calls a verb of the store, and gives up after a lease: by then the lease of a claim
// is over. A longer wait is mostly on a dead connection, which the kernel notices after a
// quarter of an hour.
func bounded[T any](ctx context.Context, c *core, verb func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, max(c.LeaseDuration, minStoreTimeout))
	defer cancel()
	answer, err := verb(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return answer, err
}
