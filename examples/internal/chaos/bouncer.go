package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// bouncerFault puts PgBouncer between the services and PostgreSQL, and kills it.
type bouncerFault struct{}

func (bouncerFault) Name() string      { return "pgbouncer" }
func (bouncerFault) Befalls() []string { return []string{Postgres} }

func (bouncerFault) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := at.bouncer.Crash(); err != nil {
		return err
	}
	_ = sleep.Context(ctx, upTo(random, 100*time.Millisecond))
	return at.bouncer.Restart(ctx)
}

// watchBouncer starts it again when it has ended by itself, as whoever runs a service does.
func (at *Site) watchBouncer(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	at.supervise = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			at.serving.Lock()
			if !at.bouncer.Runs() {
				_ = at.bouncer.Restart(ctx) // or the next time
			}
			at.serving.Unlock()
			_ = sleep.Context(ctx, 50*time.Millisecond)
		}
	}()
}
