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

// postmasterFault ends the whole PostgreSQL server, and starts it again.
type postmasterFault struct{}

func (postmasterFault) Name() string      { return "postmaster" }
func (postmasterFault) Befalls() []string { return []string{Postgres} }

func (postmasterFault) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
	return at.restart(ctx, random, random.IntN(3) == 0)
}

// crash is a stop of the whole server without warning, and a start.
type crash struct{}

func (crash) Name() string      { return "crash" }
func (crash) Befalls() []string { return []string{Postgres} }

func (crash) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
	return at.restart(ctx, random, false)
}

func (at *Site) restart(ctx context.Context, random *rand.Rand, orderly bool) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := end(ctx, at.Server, orderly); err != nil {
		return err
	}
	_ = sleep.Context(ctx, upTo(random, 100*time.Millisecond))
	return at.Server.Restart(ctx)
}

// end ends the server, in good order if it is to, and if it does so in time: it waits
// for connections, whose wires may be halted.
func end(ctx context.Context, server *postgrestest.Server, orderly bool) error {
	if orderly {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if server.Shutdown(ctx) == nil {
			return nil
		}
	}
	if err := server.Crash(); !errors.Is(err, os.ErrNotExist) { // it may have ended at last
		return err
	}
	return nil
}
