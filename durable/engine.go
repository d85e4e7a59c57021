package durable

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Engine sends what a Store keeps, until it is done, dead or cancelled. Its fields are
// frozen at the first use. It is safe for concurrent use, must not be copied, and has
// no goroutine but inside of Run, Work and WorkOne. Several, on several machines, share
// a Store.
type Engine struct {
	// Store keeps the intents. It must be set.
	Store Store

	// Gateways send them, by Intent.Gateway. There must be one, unless the Engine only
	// enqueues elsewhere. Roll out a new one to all that Run before the first intent.
	Gateways map[string]Gateway

	// Policy says what comes after an attempt that did not succeed. nil: Schedule{}. A
	// Gateway that is a Policy brings its own.
	Policy Policy

	// Concurrency is the number of workers: the maximum number of sends at once. Default: 100.
	Concurrency int

	// PerTenant is the maximum number of workers for the intents of one scope. Default: a
	// quarter of Concurrency, at least 1. Each gateway has its part of it, as it has of
	// Concurrency.
	PerTenant int

	// PerGateway is the number of workers of each gateway. Default: Concurrency divided by the
	// number of gateways, at least 1. A Gateway with a method Concurrency() int brings its own
	// number, at most Concurrency. A gateway does not use the idle workers of another, so one
	// that hangs does not slow down the others.
	PerGateway int

	// Lease is how long a worker counts as alive that is not heard of; it is heard of
	// every third of it. 0: 30 s. Poll is the longest between two looks for what is due, at
	// least 1 ms; 0: 1 s. Drain is how long Run waits for what is being sent, when its context ends;
	// 0: 30 s; negative: not at all.
	LeaseDuration, PollInterval, DrainTimeout time.Duration

	// Timeout is the longest that a send or a question may take. 0: 5 min; negative: none.
	// It is the deadline of its context. A Gateway that has not come back 200 ms after
	// that is over is not listened to any more, and keeps its sender until it does.
	Timeout time.Duration

	// KeyTTL is how long the other side remembers a key, from its first use. 0: 24 h;
	// negative: keys protect nothing, and what is unknown is only asked for. VisibilityDelay is
	// how long after its end a send may yet be done; 0: 15 min. They are enforced
	// whatever a Policy says.
	KeyTTL, VisibilityDelay time.Duration

	// TTL is how long what is done or cancelled is kept: no less than KeyTTL, also that
	// of each Gateway. 0: 90 d, or as long as keys live; negative: for ever.
	Retention time.Duration

	// Trace is told what happens. nil: nobody is.
	Trace *Trace

	once sync.Once
	core *core
	err  error
}

const (
	defaultConcurrency     = 100
	defaultLease           = 30 * time.Second
	defaultPoll            = time.Second
	defaultDrain           = 30 * time.Second
	defaultTimeout         = 5 * time.Minute
	defaultKeyTTL          = 24 * time.Hour
	defaultVisibilityDelay = 15 * time.Minute
	defaultTTL             = 90 * 24 * time.Hour

	maxConcurrency = 1 << 20

	leastLease = time.Second

	// leastPoll is no more than a store needs for an answer.
	leastPoll = time.Millisecond
)

// Validate says what is wrong with the configuration, all of it; call it at start. The
// error is an ErrInvalid. Wrong is also what nobody can mean, a time whose unit was
// forgotten: 30 is thirty nanoseconds. A Gateway that is a Validator is asked, too.
func (e *Engine) Validate() error {
	wrong := validate.Errors{Of: ErrInvalid}
	wrong.Check(e.Store == nil, "Store is nil")
	wrong.Check(e.Concurrency < 0 || e.PerTenant < 0 || e.PerGateway < 0, "Concurrency, PerTenant or PerGateway is negative")
	wrong.Check(e.Concurrency > maxConcurrency, fmt.Sprintf("Concurrency is %d, want at most %d", e.Concurrency, maxConcurrency))
	wrong.Check(e.LeaseDuration != 0 && e.LeaseDuration < leastLease || e.LeaseDuration > driver.MaxWait, fmt.Sprintf("LeaseDuration is %v, want %v to %v", e.LeaseDuration, leastLease, driver.MaxWait))
	wrong.Check(e.PollInterval != 0 && e.PollInterval < leastPoll, fmt.Sprintf("PollInterval is %v, want at least %v", e.PollInterval, leastPoll))
	wrong.Duration("DrainTimeout", e.DrainTimeout)
	wrong.Duration("Timeout", e.Timeout)
	wrong.Duration("KeyTTL", e.KeyTTL)
	wrong.Duration("VisibilityDelay", e.VisibilityDelay)
	wrong.Check(e.VisibilityDelay < 0, fmt.Sprintf("VisibilityDelay is %v, must not be negative", e.VisibilityDelay))
	e.validPolicy(&wrong)
	for _, name := range slices.Sorted(maps.Keys(e.Gateways)) {
		e.validGateway(&wrong, name, e.Gateways[name])
	}
	// What is done and forgotten could be enqueued again while its key lives (D11).
	wrong.Duration("Retention", e.Retention)
	if keyLife := e.longestKeyTTL(); e.Retention > 0 && e.Retention < keyLife {
		wrong.Check(true, fmt.Sprintf("Retention is %v, want at least KeyTTL (%v)", e.Retention, keyLife))
	}
	return wrong.Err()
}

func (e *Engine) validPolicy(wrong *validate.Errors) {
	switch p := e.Policy.(type) {
	case Schedule:
		wrong.Duration("Policy.MaxAge", p.MaxAge)
	case Declines:
		wrong.Duration("Policy.MaxAge", p.MaxAge)
	}
}

func (e *Engine) validGateway(wrong *validate.Errors, name string, gateway Gateway) {
	wrong.Check(name == "", "a gateway has no name")
	wrong.Append(driver.ValidateName("gateway", name))
	wrong.Check(gateway == nil, fmt.Sprintf("gateway %q is nil", name))
	wrong.Check(ownConcurrency(gateway) < 0, fmt.Sprintf("gateway %q: Concurrency is negative", name))
	if v, ok := gateway.(Validator); ok {
		if err := v.Validate(); err != nil {
			wrong.Append(fmt.Errorf("%w: gateway %q: %w", ErrInvalid, name, err))
		}
	}
	if p, ok := gateway.(Protector); ok {
		keyLife, settles := p.KeyPolicy()
		wrong.Duration(fmt.Sprintf("gateway %q: KeyTTL", name), keyLife)
		wrong.Duration(fmt.Sprintf("gateway %q: VisibilityDelay", name), settles)
	}
}

// longestKeyTTL is how long the longest of its keys live.
func (e *Engine) longestKeyTTL() time.Duration {
	longest := time.Duration(0)
	for _, gateway := range e.Gateways {
		if gateway != nil {
			longest = max(longest, newRoute(e, gateway).terms.KeyTTL)
		}
	}
	if len(e.Gateways) == 0 {
		longest = cmp.Or(e.KeyTTL, defaultKeyTTL)
	}
	return longest
}

// start freezes the fields.
func (e *Engine) start() (*core, error) {
	e.once.Do(func() {
		if e.err = e.Validate(); e.err == nil {
			e.core = newCore(e)
		}
	})
	return e.core, e.err
}

// Enqueue brings an intent in. It is durable when Enqueue has returned nil, and sent
// by whichever Engine runs. After another error than those of this package it may be
// there: enqueue it again. ErrMismatch: the ID is another intent's; ErrInvalid: the
// intent is not in order, or names no gateway of this Engine.
func (e *Engine) Enqueue(ctx context.Context, in Intent) (Receipt, error) {
	c, err := e.start()
	if err != nil {
		return Receipt{}, err
	}
	if err := c.routed(in.Gateway); err != nil {
		return Receipt{}, err
	}
	result, err := c.apply(ctx, driver.Event{Kind: driver.EventEnqueue, Intent: in})
	if err != nil {
		return Receipt{}, err
	}
	e.Wake()
	return result.Receipt(), nil
}

// Cancel withdraws an intent that is pending or waiting; one that was withdrawn before
// stays so. ErrInvalidState: it is too late, or not known whether it is. ErrNotFound: there is
// none.
func (e *Engine) Cancel(ctx context.Context, id idempotency.ID) error {
	c, err := e.start()
	if err != nil {
		return err
	}
	_, err = c.apply(ctx, driver.Event{Kind: driver.EventCancel, Intent: Intent{ID: id}})
	return err
}

// Find reads an intent. ErrNotFound: there is none.
func (e *Engine) Find(ctx context.Context, id idempotency.ID) (Record, error) {
	c, err := e.start()
	if err != nil {
		return Record{}, err
	}
	return c.Store.Find(ctx, id)
}

// Attempts reads an intent's journal, the first attempt first. ErrNotFound: there is no
// such intent.
func (e *Engine) Attempts(ctx context.Context, id idempotency.ID) ([]Attempt, error) {
	c, err := e.start()
	if err != nil {
		return nil, err
	}
	return c.Store.Attempts(ctx, id)
}

// Stats counts what the Store holds.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	c, err := e.start()
	if err != nil {
		return Stats{}, err
	}
	return c.Store.Stats(ctx)
}

// Wake makes Run look for what is due now and not at its next Poll: call it after a
// commit in this process that has enqueued through an Outbox. It never blocks.
func (e *Engine) Wake() {
	if c, err := e.start(); err == nil {
		c.wakeUp()
	}
}

// apply applies one event on a caller's behalf.
func (c *core) apply(ctx context.Context, event driver.Event) (*driver.Result, error) {
	results, err := c.applyAll(ctx, []driver.Event{event})
	if err != nil {
		return nil, err
	}
	if results[0].Err != nil {
		return nil, results[0].Err
	}
	return &results[0], nil
}
