package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// bouncerFault puts PgBouncer between the services and PostgreSQL, and kills it.
type bouncerFault struct{}

func (bouncerFault) name() string      { return "pgbouncer" }
func (bouncerFault) befalls() []string { return []string{postgres} }

func (bouncerFault) strike(ctx context.Context, at *site, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := at.bouncer.Crash(); err != nil {
		return err
	}
	rest(ctx, upTo(random, 100*time.Millisecond))
	return at.bouncer.Restart(ctx)
}
