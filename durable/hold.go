package durable

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Hold stops sending to a gateway, in all processes that share the Store: from now on its
// intents are neither claimed nor journalled, and keep their attempts and times. Zero until:
// it lasts until Release. A second Hold replaces the first. ErrInvalid: by is empty, until
// has passed, or the Engine has Gateways and not this one.
//
// An intent may pass its Deadline, its Policy's MaxAge or the life of its key meanwhile.
func (e *Engine) Hold(ctx context.Context, gateway string, until time.Time, by, note string) error {
	if !until.IsZero() && !until.After(time.Now()) {
		return invalidf("Hold: until is %v, which has passed", until)
	}
	return e.setHold(ctx, Hold{Gateway: gateway, Until: until, By: by, Note: note})
}

// Release ends all holds of a gateway: by a person, by the provider, and that of this Engine. The
// rate then rises step by step: see Engine.Holds. ErrNotFound: the gateway is not held.
func (e *Engine) Release(ctx context.Context, gateway, by string) error {
	return e.setHold(ctx, Hold{Gateway: gateway, ReleasedBy: by})
}

// Holds lists the gateways that are held by persons, by providers and by this Engine itself. By is
// empty for the latter two.
//
// If a provider answers 429, or 503, and when to come again, it holds its gateway until then, at
// most for a minute. Then one intent tests it, and after each that is asked to wait again the hold
// is twice as long, at most five minutes. With a Gateway that has a method LimitsPerScope() bool that
// returns true, it holds the intent's scope there. See docs/durable.md.
//
// An Engine holds a gateway after 20 attempts in a row without an answer: no response, a 5xx,
// 408, 425 or 429, or a rejection by a circuit breaker or rate limiter. It then sends probes. The
// first answer ends the hold. After a long hold, the rate rises step by step for a minute. See
// docs/durable.md.
func (e *Engine) Holds(ctx context.Context) ([]Hold, error) {
	c, err := e.start()
	if err != nil {
		return nil, err
	}
	holds, err := c.Store.Holds(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.routes)) {
		if h := &c.routes[name].health; !h.heldAt.IsZero() {
			holds = append(holds, h.hold(name))
		}
	}
	return holds, nil
}

func (e *Engine) setHold(ctx context.Context, hold Hold) error {
	c, err := e.start()
	if err == nil && len(c.routes) > 0 {
		err = c.routed(hold.Gateway)
	}
	if err == nil {
		err = hold.Validate()
	}
	if err != nil {
		return err
	}
	err = c.Store.SetHold(ctx, hold)
	if hold.ReleasedBy != "" && (err == nil || errors.Is(err, ErrNotFound)) && c.endHold(hold.Gateway) {
		err = nil
	}
	if err == nil {
		c.Trace.hold(&hold, hold.ReleasedBy == "")
		c.wakeUp()
	}
	return err
}

// endHold ends the Engine's own hold, and reports whether there was one.
func (c *core) endHold(gateway string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for key, p := range c.waits {
		if key.Gateway == gateway && now.Before(p.begin) {
			p.release(now)
		}
	}
	r := c.routes[gateway]
	return r != nil && r.health.end(now)
}
