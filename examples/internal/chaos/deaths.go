package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// kill ends a service by SIGKILL.
type kill struct{}

func (kill) Name() string      { return "kill" }
func (kill) Befalls() []string { return []string{SQLite, Postgres} }

func (kill) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
	victim := at.Services[random.IntN(len(at.Services))]
	err := victim.Kill()
	_ = victim.Healthy(ctx) // Or the database is not there for now.
	return err
}

// stop lets a service sleep for longer than its lease, by SIGSTOP: what it wakes up
// to it does not know.
type stop struct{}

func (stop) Name() string      { return "stop" }
func (stop) Befalls() []string { return []string{SQLite, Postgres} }

func (stop) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
	victim := at.Services[random.IntN(len(at.Services))]
	if err := victim.Do(process.Freeze); err != nil {
		return err
	}
	began := time.Now()
	_ = sleep.Context(ctx, at.longerThanALease(random))
	if time.Since(began) > 2*at.Lease+tooLate {
		return victim.Kill() // the machine has stood still, too: others rely on a stop being no longer
	}
	return victim.Do(process.Thaw)
}

// tooLate is how much later than planned nothing happens any more that must not happen late.
const tooLate = 300 * time.Millisecond

// upTo is a random time.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
