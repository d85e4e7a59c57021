package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// restartPostmaster stops or kills the whole PostgreSQL server, and restarts it.
func restartPostmaster(ctx context.Context, at *Stack, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := stopServer(ctx, at.Server, random.IntN(3) == 0); err != nil {
		return err
	}
	_ = sleep.Context(ctx, upTo(random, 100*time.Millisecond))
	return at.Server.Restart(ctx)
}

// stopServer shuts the server down, or kills it. A shutdown waits for connections, which may be
// halted, so it has a time limit.
func stopServer(ctx context.Context, server *postgrestest.Server, orderly bool) error {
	if orderly {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if server.Shutdown(ctx) == nil {
			return nil
		}
	}
	if err := server.Crash(); !errors.Is(err, os.ErrNotExist) { // it may have exited meanwhile
		return err
	}
	return nil
}
