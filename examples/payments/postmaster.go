package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// postmasterFault ends the whole PostgreSQL server, and starts it again.
type postmasterFault struct{}

func (postmasterFault) name() string      { return "postmaster" }
func (postmasterFault) befalls() []string { return []string{postgres} }

func (postmasterFault) strike(ctx context.Context, at *site, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	end := func(context.Context) error { return at.server.Crash() }
	if random.IntN(3) == 0 {
		end = at.server.Shutdown
	}
	if err := end(ctx); err != nil {
		return err
	}
	rest(ctx, upTo(random, 100*time.Millisecond))
	return at.server.Restart(ctx)
}
