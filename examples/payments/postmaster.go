package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// postmasterFault ends the whole PostgreSQL server, and starts it again.
type postmasterFault struct{}

func (postmasterFault) name() string      { return "postmaster" }
func (postmasterFault) befalls() []string { return []string{postgres} }

func (postmasterFault) strike(ctx context.Context, at *site, random *rand.Rand) error {
	at.serving.Lock()
	defer at.serving.Unlock()
	if err := end(ctx, at.server, random.IntN(3) == 0); err != nil {
		return err
	}
	rest(ctx, upTo(random, 100*time.Millisecond))
	return at.server.Restart(ctx)
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
