// Package chaos injects faults in the crash tests: it kills and suspends processes, breaks
// connections, databases and disks, and makes servers lose or delay responses.
package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/procguard"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// The databases.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// fault is a kind of fault.
type fault struct {
	name string
	only string // the database for which it exists; "": both

	// strike injects the fault and returns after its end. Several calls may run concurrently.
	strike func(ctx context.Context, at *Stack, random *rand.Rand) error
}

// faults are all kinds. kill and stop have flags of their own, the others are the values of -faults.
var faults = []fault{
	{"kill", "", kill},
	{"stop", "", stop},
	{"wire", "", breakWires},
	{"backends", Postgres, endBackends},
	{"postmaster", Postgres, restartPostmaster},
	{"pgbouncer", Postgres, restartBouncer},
	{Clock, Postgres, moveClock},
}

// Clock is the name of the fault that sets the database's clock.
const Clock = "clock"

// furtherFaults returns the names for -faults.
func furtherFaults() (names []string) {
	for _, f := range faults[2:] {
		names = append(names, f.name)
	}
	return names
}

func parseFaults(list string) ([]string, error) {
	names := Words(list)
	for _, name := range names {
		if !slices.Contains(furtherFaults(), name) {
			return nil, fmt.Errorf("unknown fault %q (want %s)", name, strings.Join(furtherFaults(), ", "))
		}
	}
	return names, nil
}

// kill sends SIGKILL to a service.
func kill(ctx context.Context, at *Stack, random *rand.Rand) error {
	victim := at.Services[random.IntN(len(at.Services))]
	err := victim.Kill()
	_ = victim.Healthy(ctx) // it fails while the database is not available
	return err
}

// stop suspends a service for longer than its lease, with SIGSTOP and SIGCONT.
func stop(ctx context.Context, at *Stack, random *rand.Rand) error {
	victim := at.Services[random.IntN(len(at.Services))]
	if err := victim.Do(procguard.Freeze); err != nil {
		return err
	}
	start := time.Now()
	_ = sleep.Context(ctx, at.longerThanALease(random))
	if time.Since(start) > 2*at.Lease+tooLate {
		return victim.Kill() // the machine was suspended, and the tests expect a shorter stop
	}
	return victim.Do(procguard.Thaw)
}

// tooLate is the maximum delay after which a fault still continues.
const tooLate = 300 * time.Millisecond

// upTo returns a random duration below d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
