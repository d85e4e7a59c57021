package durable

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

// providerHold is how an Engine follows a provider that asked to wait: for a gateway, or for one
// scope of it. core.mu guards it.
//
// Until a random time in the first tenth after the hold, the Engine claims status queries only.
// Then it sends one intent at once, and the number doubles in each time as long as the longest hold,
// at most a minute. The next hold halves it. So the provider rejects few sends each time that its
// limit is reached, whatever the limit is.
//
// A provider may ask one tenant to wait for a day, and serve all others. So a hold is believed for a
// minute, and then the one intent is the test. If it is asked to wait too, the next hold is believed
// for twice as long, at most five minutes.
type providerHold struct {
	since, until time.Time
	begin        time.Time // when the Engine begins to send
	slots        float64   // sends at once then
	double       time.Duration

	// storedAt is the time from which claims list the hold, unless a person released it. Zero means
	// that the store does not have it yet.
	storedAt time.Time
}

const (
	maxJitter = time.Minute // of the release
	minDouble = time.Second
	maxDouble = time.Minute

	minBelieved = time.Minute
	maxBelieved = 5 * time.Minute
)

// extend begins the hold or extends it. It reports whether it is longer now.
func (p *providerHold) extend(now, since, until time.Time) bool {
	if !until.After(p.until) {
		return false
	}
	if !now.Before(p.begin) {
		p.slots, p.since = min(max(p.limit(now)/2, 1), maxConcurrency), since
	}
	p.until, p.storedAt = until, time.Time{}
	p.double = min(max(p.double, until.Sub(p.since), minDouble), maxDouble)
	p.begin = until.Add(rand.N(min(until.Sub(p.since)/10, maxJitter) + 1))
	return true
}

// believed is the longest wait that an answer can begin or extend at that time.
func (p *providerHold) believed(now time.Time) time.Duration {
	last := p.until.Sub(p.since)
	if !now.Before(p.begin) {
		last *= 2 // the test of the last hold was asked to wait again
	}
	return min(max(last, minBelieved), maxBelieved)
}

// limit is the number of sends at once at that time.
func (p *providerHold) limit(now time.Time) float64 {
	if p.slots == 0 { // before the first hold
		return 0
	}
	return p.slots * math.Exp2(now.Sub(p.begin).Seconds()/p.double.Seconds())
}

// asked returns the time for which the provider asked to wait, or 0: it answered 429, or 503,
// and when to come again.
func asked(o *Outcome) time.Duration {
	undecided := o.Class == ClassFailed || o.Class == ClassUnknown
	if !undecided || o.NotBefore.IsZero() || o.Status != http.StatusTooManyRequests && o.Status != http.StatusServiceUnavailable {
		return 0
	}
	return max(time.Until(o.NotBefore), 0)
}

// providerHold returns that of a queue. core.mu is held.
func (c *core) providerHold(key QueueKey) *providerHold {
	p := c.waits[key]
	if p == nil {
		p = new(providerHold)
		c.waits[key] = p
	}
	return p
}

// holdFor holds the gateway of the attempt, or its scope. It returns the Hold to store, if it is
// longer than the one before. core.mu is held.
func (c *core) holdFor(a *attempt, o *Outcome, wait time.Duration) *Hold {
	key := QueueKeyOf(&a.change.Record)
	if !a.route.perScope {
		key.Scope = ""
	}
	const step = 100 * time.Millisecond // so that the answers to several sends extend it rarely
	now := time.Now()
	p := c.providerHold(key)
	until := now.Add(min(wait, p.believed(now))).Truncate(step).Add(step)
	if !p.extend(now, now, until) {
		return nil
	}
	since := a.clock().UTC()
	return &Hold{
		Gateway: key.Gateway, Scope: key.Scope, Provider: true, Since: since, Until: since.Add(until.Sub(now)),
		ErrorType: errorType(o.Status, o.Err), Note: fmt.Sprintf("the provider answered %d and asked to wait %v", o.Status, wait.Round(time.Second)),
	}
}

// storeHold stores a hold of the provider, for the Engines of all processes.
func (c *core) storeHold(ctx context.Context, hold *Hold) {
	_, err := bounded(ctx, c, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.Store.SetHold(ctx, *hold) })
	if err != nil {
		c.Trace.failed(fmt.Errorf("durable: a hold of the provider was not stored: %w", err))
	} else {
		c.mu.Lock()
		if p := c.waits[QueueKey{Gateway: hold.Gateway, Scope: hold.Scope}]; p != nil { // nil: the hold is long over
			p.storedAt = time.Now()
		}
		c.mu.Unlock()
	}
	c.Trace.hold(hold, true)
}

// noticeHolds learns the provider's holds from a claim that began at that time. core.mu is held.
func (c *core) noticeHolds(claimed *Claimed, began, now time.Time) {
	ahead := now.Sub(claimed.Now)
	listed := make(map[QueueKey]bool, len(claimed.Waiting))
	for i := range claimed.Waiting {
		h := &claimed.Waiting[i]
		key := QueueKey{Gateway: h.Gateway, Scope: h.Scope}
		listed[key] = true
		until := h.Until.Add(ahead)
		if c.routes[h.Gateway] == nil || c.waits[key] != nil && !until.After(c.waits[key].until.Add(time.Second)) {
			continue // known, or the latency of the claim
		}
		p := c.providerHold(key)
		p.extend(now, h.Since.Add(ahead), until)
		p.storedAt = now
	}
	for key, p := range c.waits {
		if !listed[key] && !p.storedAt.IsZero() && began.After(p.storedAt) && now.Before(p.until.Add(-time.Second)) {
			p.release(now) // a person has done so in another process
		}
	}
}

// release ends the hold. The next one is believed for a minute.
func (p *providerHold) release(now time.Time) { p.since, p.until, p.begin = now, now, now }

// permits returns how many intents of a queue may be sent now in addition to those in flight. If
// none, it adds the queue to claim.Waiting. core.mu is held.
func (c *core) permits(claim *Claim, key QueueKey, inFlight int, now time.Time) int {
	p, workers := c.waits[key], c.routes[key.Gateway].workers
	if p == nil {
		return workers
	}
	limit := int(min(p.limit(now), maxConcurrency))
	switch {
	case now.Before(p.begin) || limit <= inFlight:
		claim.Waiting[key] = true
		return workers // for status queries
	case limit >= 2*workers:
		delete(c.waits, key)
	}
	return limit - inFlight
}

// permitScopes limits the scopes with providers' holds. core.mu is held.
func (c *core) permitScopes(claim *Claim, now time.Time) {
	for key := range c.waits {
		if key.Scope != "" {
			n := c.permits(claim, key, c.inFlight[key], now)
			claim.InFlight[key] = max(claim.InFlight[key], claim.Gateways[key.Gateway].PerScope-n)
		}
	}
}

// resumes returns the time at which the Engine sends the intent, if its provider asked to wait.
func (c *core) resumes(r *Record) (at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range [...]QueueKey{{Gateway: r.Gateway}, QueueKeyOf(r)} {
		if p := c.waits[key]; p != nil && p.begin.After(at) {
			at = p.begin
		}
	}
	return at
}
