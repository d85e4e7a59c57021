package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// restartBouncer kills PgBouncer, which is between the services and PostgreSQL.
func restartBouncer(ctx context.Context, at *Stack, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := at.bouncer.Crash(); err != nil {
		return err
	}
	_ = sleep.Context(ctx, upTo(random, 100*time.Millisecond))
	return at.bouncer.Restart(ctx)
}

// watchBouncer restarts PgBouncer if it has exited, as a supervisor does.
func (at *Stack) watchBouncer(ctx context.Context) {
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
				_ = at.bouncer.Restart(ctx) // retried in the next round
			}
			at.serving.Unlock()
			_ = sleep.Context(ctx, 50*time.Millisecond)
		}
	}()
}
