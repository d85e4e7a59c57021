package durable

import (
	"context"
	"time"
)

// Hold stops sending to a gateway, in all processes that share the Store: from now on
// nothing of it is claimed. Its intents keep their attempts and times. Zero until: it lasts
// until Release. A second Hold replaces the first. by must not be empty.
func (e *Engine) Hold(ctx context.Context, gateway string, until time.Time, by, note string) error {
	c, err := e.start()
	if err != nil {
		return err
	}
	return c.setHold(ctx, Hold{Gateway: gateway, Until: until, By: by, Note: note})
}

// Release ends the hold of a gateway. ErrNotFound: it is not held.
func (e *Engine) Release(ctx context.Context, gateway, by string) error {
	c, err := e.start()
	if err != nil {
		return err
	}
	return c.setHold(ctx, Hold{Gateway: gateway, ReleasedBy: by})
}

// Holds lists the gateways that are held: by persons, and by this Engine itself. By is empty
// for the latter.
func (e *Engine) Holds(ctx context.Context) ([]Hold, error) {
	c, err := e.start()
	if err != nil {
		return nil, err
	}
	return c.Store.Holds(ctx)
}

func (c *core) setHold(ctx context.Context, hold Hold) error {
	if err := hold.Validate(); err != nil {
		return err
	}
	return c.Store.SetHold(ctx, hold)
}
