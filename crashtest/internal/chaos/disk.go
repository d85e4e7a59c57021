package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/process"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// fillDisk is a full disk for SQLite: a limit for the size of the services' files, a little above
// the size of the log. A commit, which appends to the log, fails in the middle. Then the limit is
// removed.
func fillDisk(ctx context.Context, at *Stack, random *rand.Rand) error {
	var size int64
	if log, err := os.Stat(at.file() + "-wal"); err == nil {
		size = log.Size()
	}
	full := size + random.Int64N(16<<10)
	if err := at.limitFiles(full); err != nil {
		return err
	}
	_ = sleep.Context(ctx, 200*time.Millisecond+upTo(random, 500*time.Millisecond))
	return at.limitFiles(-1)
}

func (at *Stack) limitFiles(size int64) error {
	var errs []error
	for _, p := range at.Services {
		errs = append(errs, p.Do(func(p *os.Process) error { return process.LimitFiles(p, size) }))
	}
	return errors.Join(errs...)
}
