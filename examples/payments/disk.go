package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"
)

// diskFault is a disk that is full for SQLite: no file of the services' can become
// longer than its log is now. A commit, which appends to the log, fails in the middle
// of that. Then there is room again.
type diskFault struct{}

func (diskFault) name() string      { return "disk" }
func (diskFault) befalls() []string { return []string{sqlite} }

func (diskFault) strike(ctx context.Context, at *site, random *rand.Rand) error {
	var size int64
	if log, err := os.Stat(at.path("payments.db-wal")); err == nil {
		size = log.Size()
	}
	full := size + random.Int64N(16<<10)
	if err := at.limitFiles(full); err != nil {
		return err
	}
	rest(ctx, 200*time.Millisecond+upTo(random, 500*time.Millisecond))
	return at.limitFiles(-1)
}

func (at *site) limitFiles(size int64) error {
	var errs []error
	for _, p := range at.services {
		errs = append(errs, p.do(func(p *os.Process) error { return limitFiles(p, size) }))
	}
	return errors.Join(errs...)
}
