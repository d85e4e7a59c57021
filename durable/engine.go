package durable

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Engine sends the intents of a Store until they are done, dead or canceled. Several Engines,
// in several processes, may share a Store. Its fields must not be changed after the first use.
// It is safe for concurrent use, must not be copied, and runs goroutines only inside Run, Work
// and WorkOne.
type Engine struct {
	// Store keeps the intents. It must be set.
	Store Store

	// Gateways send the intents, by Intent.Gateway. An Engine without Gateways can list, hold
	// and resolve, but not enqueue or send. Deploy a new Gateway to all processes that Run
	// before you enqueue for it: see ReasonNoGateway.
	Gateways map[string]Gateway

	// Policy decides what follows an attempt without success. nil means Schedule{}. A Gateway that
	// is a Policy is its own.
	Policy Policy

	// Concurrency is the number of workers: the maximum number of sends at once. Zero means 100.
	Concurrency int

	// PerTenant is the maximum number of workers for the intents of one scope. Zero means a
	// quarter of Concurrency, at least 1. Each gateway has its part of it, as it has of
	// Concurrency.
	PerTenant int

	// PerGateway is the number of workers of each gateway. Zero means Concurrency divided by the
	// number of gateways, at least 1. A Gateway with a method Concurrency() int brings its own
	// number, at most Concurrency. A gateway does not use the idle workers of another, so one that
	// hangs does not slow down the others.
	PerGateway int

	// LeaseDuration is the time after which a worker without a heartbeat is considered dead.
	// Workers send a heartbeat every third of it. Zero means 30 s. The minimum is 1 s.
	LeaseDuration time.Duration

	// PollInterval is the maximum time between two looks for due intents. Commits wake Run
	// earlier. Zero means 1 s. The minimum is 1 ms.
	PollInterval time.Duration

	// DrainTimeout is how long Run waits for sends in flight when its context ends. Zero means 30
	// s. A negative duration means that it does not wait.
	DrainTimeout time.Duration

	// Timeout is the maximum duration of a send or a status query, and the deadline of its
	// context. Zero means 5 min. A negative duration means none. If a Gateway does not return 200
	// ms after the end of its context, the result is unknown, and its worker is busy until it
	// returns.
	Timeout time.Duration

	// KeyTTL is the time for which the provider remembers a key, from its first use. Zero means 24
	// h. A negative duration means that keys protect nothing, and unknown results are only
	// queried. No Policy changes it.
	KeyTTL time.Duration

	// VisibilityDelay is the time after its end in which a send may still take effect. Zero means
	// 15 min. It must not be negative. No Policy changes it.
	VisibilityDelay time.Duration

	// Retention is the time for which done and canceled intents are kept, at least KeyTTL. After
	// it, the same ID is a new intent. Zero means 90 d, or the longest KeyTTL if that is longer. A
	// negative duration means for ever.
	Retention time.Duration

	// Trace has hooks for logs and metrics. nil: none.
	Trace *Trace

	once sync.Once
	core *core
	err  error
}

const (
	defaultConcurrency     = 100
	defaultLeaseDuration   = 30 * time.Second
	defaultPollInterval    = time.Second
	defaultDrainTimeout    = 30 * time.Second
	defaultTimeout         = 5 * time.Minute
	defaultKeyTTL          = 24 * time.Hour
	defaultVisibilityDelay = 15 * time.Minute
	defaultRetention       = 90 * 24 * time.Hour

	maxConcurrency = 1 << 20

	minLeaseDuration = time.Second

	// minPollInterval is about the time that a store needs for an answer.
	minPollInterval = time.Millisecond
)

// Validate returns all errors of the configuration, joined. Each is an ErrInvalid. Call it when
// the program starts. It also rejects durations without a unit: 30 is thirty nanoseconds. It
// calls the method Validate() error of each Gateway that has one.
func (e *Engine) Validate() error {
	wrong := validate.Errors{Of: ErrInvalid}
	wrong.Check(e.Store == nil, "Store is nil")
	wrong.Check(e.Concurrency < 0 || e.PerTenant < 0 || e.PerGateway < 0, "Concurrency, PerTenant or PerGateway is negative")
	wrong.Check(e.Concurrency > maxConcurrency, fmt.Sprintf("Concurrency is %d, want at most %d", e.Concurrency, maxConcurrency))
	wrong.Check(e.LeaseDuration != 0 && e.LeaseDuration < minLeaseDuration || e.LeaseDuration > maxWait, fmt.Sprintf("LeaseDuration is %v, want %v to %v", e.LeaseDuration, minLeaseDuration, maxWait))
	wrong.Check(e.PollInterval != 0 && e.PollInterval < minPollInterval, fmt.Sprintf("PollInterval is %v, want at least %v", e.PollInterval, minPollInterval))
	wrong.Duration("DrainTimeout", e.DrainTimeout)
	wrong.Duration("Timeout", e.Timeout)
	wrong.Duration("KeyTTL", e.KeyTTL)
	wrong.Duration("VisibilityDelay", e.VisibilityDelay)
	wrong.Check(e.VisibilityDelay < 0, fmt.Sprintf("VisibilityDelay is %v, must not be negative", e.VisibilityDelay))
	e.validPolicy(&wrong)
	for _, name := range slices.Sorted(maps.Keys(e.Gateways)) {
		e.validGateway(&wrong, name, e.Gateways[name])
	}
	// An intent that is done and deleted could be enqueued again while its key lives (D11).
	wrong.Duration("Retention", e.Retention)
	if keyTTL := e.longestKeyTTL(); e.Retention > 0 && e.Retention < keyTTL {
		wrong.Addf("Retention is %v, want at least KeyTTL (%v)", e.Retention, keyTTL)
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
	wrong.Append(validateName("gateway", name))
	wrong.Check(gateway == nil, fmt.Sprintf("gateway %q is nil", name))
	wrong.Check(ownConcurrency(gateway) < 0, fmt.Sprintf("gateway %q: Concurrency is negative", name))
	if v, ok := gateway.(validator); ok {
		if err := v.Validate(); err != nil {
			wrong.Append(fmt.Errorf("%w: gateway %q: %w", ErrInvalid, name, err))
		}
	}
	if p, ok := gateway.(Protector); ok {
		keyTTL, visibilityDelay := p.KeyPolicy()
		wrong.Duration(fmt.Sprintf("gateway %q: KeyTTL", name), keyTTL)
		wrong.Duration(fmt.Sprintf("gateway %q: VisibilityDelay", name), visibilityDelay)
	}
}

// longestKeyTTL returns the longest KeyTTL of the gateways.
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

// start returns the core. The fields must not be changed from then on.
func (e *Engine) start() (*core, error) {
	e.once.Do(func() {
		if e.err = e.Validate(); e.err == nil {
			e.core = newCore(e)
		}
	})
	return e.core, e.err
}

// Enqueue stores an intent, durably when it returns nil. Any Engine that runs on the Store
// sends it. ErrMismatch: the ID belongs to another intent. ErrInvalid: the intent is invalid,
// or the Engine has no such gateway. After any other error the intent may be stored: enqueue it
// again.
func (e *Engine) Enqueue(ctx context.Context, in Intent) (Receipt, error) {
	c, err := e.start()
	if err != nil {
		return Receipt{}, err
	}
	if err := c.routed(in.Gateway); err != nil {
		return Receipt{}, err
	}
	result, err := c.apply(ctx, Event{Kind: EventEnqueue, Intent: in})
	if err != nil {
		return Receipt{}, err
	}
	e.Wake()
	return result.Receipt(), nil
}

// Cancel cancels an intent that is pending or waiting. Canceling twice is no error.
// ErrInvalidState: it is too late, or the result is unknown. ErrNotFound: there is no such
// intent.
func (e *Engine) Cancel(ctx context.Context, id idempotency.ID) error {
	return e.decide(ctx, Event{Kind: EventCancel, Intent: Intent{ID: id}})
}

// Find returns an intent. ErrNotFound: there is none.
func (e *Engine) Find(ctx context.Context, id idempotency.ID) (Record, error) {
	return ask(e, func(s Store) (Record, error) { return s.Find(ctx, id) })
}

// Attempts returns an intent's journal, oldest first. ErrNotFound: there is no such intent.
func (e *Engine) Attempts(ctx context.Context, id idempotency.ID) ([]Attempt, error) {
	return ask(e, func(s Store) ([]Attempt, error) { return s.Attempts(ctx, id) })
}

// DeclineCountsFrom returns the time from which a decline of the intent counts, if the provider
// declined it while it was in doubt. Until then an earlier send may take effect, so the intent is
// unknown: it waits, or the provider is queried. Zero: there is no such decline, or the Engine has
// no gateway of that name.
func (e *Engine) DeclineCountsFrom(r *Record) time.Time {
	c, err := e.start()
	if err != nil || c.routes[r.Gateway] == nil {
		return time.Time{}
	}
	return r.DeclineCountsFrom(new(c.termsOf(c.routes[r.Gateway], r)))
}

// Stats returns the numbers of intents and workers in the Store.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	return ask(e, func(s Store) (Stats, error) { return s.Stats(ctx) })
}

// Wake makes Run look for due intents at once. Call it after a commit of this process that
// enqueued through an Outbox. It does not block.
func (e *Engine) Wake() {
	if c, err := e.start(); err == nil {
		c.wakeUp()
	}
}

// ask calls a verb of the store, of an Engine that is valid.
func ask[T any](e *Engine, verb func(Store) (T, error)) (T, error) {
	if _, err := e.start(); err != nil {
		var none T
		return none, err
	}
	return verb(e.Store)
}

// decide applies the event of a person.
func (e *Engine) decide(ctx context.Context, event Event) error {
	c, err := e.start()
	if err == nil {
		_, err = c.apply(ctx, event)
	}
	return err
}

// apply applies one event for a caller.
func (c *core) apply(ctx context.Context, event Event) (*Result, error) {
	results, err := c.applyAll(ctx, []Event{event})
	if err != nil {
		return nil, err
	}
	if results[0].Err != nil {
		return nil, results[0].Err
	}
	return &results[0], nil
}
