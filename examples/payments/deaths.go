package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// kill ends a service by SIGKILL.
type kill struct{}

func (kill) name() string      { return "kill" }
func (kill) befalls() []string { return []string{sqlite, postgres} }

func (kill) strike(ctx context.Context, at *site, random *rand.Rand) error {
	victim := at.services[random.IntN(len(at.services))]
	err := victim.kill()
	_ = victim.healthy(ctx) // Or the database is not there for now.
	return err
}

// stop lets a service sleep for longer than its lease, by SIGSTOP: what it wakes up
// to it does not know.
type stop struct{}

func (stop) name() string      { return "stop" }
func (stop) befalls() []string { return []string{sqlite, postgres} }

func (stop) strike(ctx context.Context, at *site, random *rand.Rand) error {
	victim := at.services[random.IntN(len(at.services))]
	if err := victim.do(freeze); err != nil {
		return err
	}
	rest(ctx, longerThanALease(random))
	return victim.do(thaw)
}

// rest is for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// upTo is a random time.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
