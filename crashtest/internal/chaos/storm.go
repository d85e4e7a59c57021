package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Storm injects the faults of a plan while workers process items.
type Storm struct {
	At *Stack

	// Workers is the number of workers, Items the number of items.
	Workers, Items int

	// Struck has the number of strikes of each fault, after Run.
	Struck map[string]int

	finished atomic.Int64
	strikes  sync.WaitGroup
	mu       sync.Mutex
	failed   error              // an error of a fault
	end      context.CancelFunc // ends Run after an error
}

// Run calls work for each item, with concurrent workers, and injects the faults meanwhile.
func (s *Storm) Run(ctx context.Context, out io.Writer, work func(ctx context.Context, item int)) error {
	ctx, s.end = context.WithCancel(ctx)
	defer s.end()
	s.Struck = map[string]int{}
	items := make(chan int, s.Items)
	var workers sync.WaitGroup
	for range s.Workers {
		workers.Go(func() {
			for i := range items {
				work(ctx, i)
				s.finished.Add(1)
			}
		})
	}
	s.distribute(ctx, out, items)
	close(items)
	workers.Wait()
	s.strikes.Wait()
	return errors.Join(s.failed, ctx.Err())
}

// distribute passes the items to the workers in one part more than there are faults. A fault strikes
// at a random time after a part was passed and most earlier items are finished, so that requests
// are in progress.
func (s *Storm) distribute(ctx context.Context, out io.Writer, items chan<- int) {
	seed := s.At.Seed
	random := rand.New(rand.NewPCG(seed, 1))
	plan := s.At.list()
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	before := 0
	for part := 1; part <= len(plan)+1 && ctx.Err() == nil; part++ {
		end := s.Items * part / (len(plan) + 1)
		for i := before; i < end; i++ {
			items <- i
		}
		if part > len(plan) {
			return
		}
		for s.finished.Load() < int64(before-s.Workers) && ctx.Err() == nil {
			_ = sleep.Context(ctx, time.Millisecond)
		}
		before = end
		_ = sleep.Context(ctx, upTo(random, maxPause))
		s.strike(ctx, plan[part-1], rand.New(rand.NewPCG(seed, uint64(1+part))))
		if part%10 == 0 {
			fmt.Fprintf(out, "%3d of %d faults, %4d of %d requests finished\n", part, len(plan), s.finished.Load(), s.Items)
		}
	}
}

// maxPause is the maximum time between two faults.
const maxPause = 100 * time.Millisecond

// strike injects a fault. If it takes long, strike returns before its end.
func (s *Storm) strike(ctx context.Context, f fault, random *rand.Rand) {
	done := make(chan struct{})
	s.strikes.Go(func() {
		defer close(done)
		err := f.strike(ctx, s.At, random)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Struck[f.name]++
		if err != nil && ctx.Err() == nil {
			s.failed = errors.Join(s.failed, fmt.Errorf("%s: %w", f.name, err))
			s.end()
		}
	})
	select {
	case <-done:
	case <-time.After(3 * maxPause):
	}
}

// Repeat calls do again and again in the background, until stop is called.
func Repeat(ctx context.Context, every time.Duration, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for ; ctx.Err() == nil; _ = sleep.Context(ctx, every) {
			do(ctx)
		}
	})
	return func() { cancel(); work.Wait() }
}
