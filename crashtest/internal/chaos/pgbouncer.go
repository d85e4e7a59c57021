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
	at.supervise = Repeat(ctx, 50*time.Millisecond, func(ctx context.Context) {
		at.serving.Lock()
		defer at.serving.Unlock()
		if !at.bouncer.Runs() {
			_ = at.bouncer.Restart(ctx) // retried in the next round
		}
	})
}
