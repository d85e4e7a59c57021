package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/procguard"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

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
