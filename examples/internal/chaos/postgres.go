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

// postmasterFault stops or kills the whole PostgreSQL server, and restarts it.
type postmasterFault struct{}

func (postmasterFault) Name() string        { return "postmaster" }
func (postmasterFault) Databases() []string { return []string{Postgres} }

func (postmasterFault) Strike(ctx context.Context, at *Stack, random *rand.Rand) error {
	return at.restart(ctx, random, random.IntN(3) == 0)
}

// crash kills the whole PostgreSQL server, and restarts it.
type crash struct{}

func (crash) Name() string        { return "crash" }
func (crash) Databases() []string { return []string{Postgres} }

func (crash) Strike(ctx context.Context, at *Stack, random *rand.Rand) error {
	return at.restart(ctx, random, false)
}

func (at *Stack) restart(ctx context.Context, random *rand.Rand, orderly bool) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := stopServer(ctx, at.Server, orderly); err != nil {
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
