package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// storm is what happens while the workers charge.
type storm struct {
	at       *site
	result   *result
	answered atomic.Int64

	strikes sync.WaitGroup
	mu      sync.Mutex
	failed  error              // a fault that could not strike, or not be mended
	end     context.CancelFunc // then
}

// rage lets the workers charge, and everything of the plan happen meanwhile.
func (s *storm) rage(ctx context.Context, out io.Writer) error {
	ctx, s.end = context.WithCancel(ctx)
	defer s.end()
	orders := make(chan int, s.at.charges)
	var workers sync.WaitGroup
	for range s.at.workers {
		workers.Go(func() {
			for i := range orders {
				s.result.outcomes[i] = s.charge(ctx, i)
				s.answered.Add(1)
			}
		})
	}
	s.unfold(ctx, out, orders)
	close(orders)
	workers.Wait()
	s.strikes.Wait()
	return errors.Join(s.failed, ctx.Err())
}

// charge is for one order. One of ten clients goes away soon, and does not come back
// before the storm is over. The others wait for as long as their patience lasts, which
// is to be long enough.
func (s *storm) charge(ctx context.Context, i int) outcome {
	if i%10 == 9 {
		ctx, cancel := context.WithTimeout(ctx, rand.N(100*time.Millisecond))
		defer cancel()
		return s.result.client.charge(ctx, s.at.order(i))
	}
	began := time.Now()
	known := s.result.client.charge(ctx, s.at.order(i))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.longest = max(s.result.longest, time.Since(began))
	if known.err != nil {
		s.result.impatient++
	}
	return known
}

// unfold hands out the orders in as many parts as the plan has, and one. Something
// strikes at a random moment after a part was handed out, and most of what went
// before it answered: in the middle of the work.
func (s *storm) unfold(ctx context.Context, out io.Writer, orders chan<- int) {
	random := rand.New(rand.NewPCG(s.at.seed, 1))
	plan := s.at.plan()
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	before := 0
	for part := 1; part <= len(plan)+1 && ctx.Err() == nil; part++ {
		share := s.at.charges * part / (len(plan) + 1)
		for i := before; i < share; i++ {
			orders <- i
		}
		if part > len(plan) {
			return
		}
		s.wait(ctx, before-s.at.workers)
		before = share
		rest(ctx, upTo(random, longestPeace))
		s.strike(ctx, plan[part-1], rand.New(rand.NewPCG(s.at.seed, uint64(1+part))))
		if part%10 == 0 {
			fmt.Fprintf(out, "%3d of %d strikes, %4d of %d charges answered\n", part, len(plan), s.answered.Load(), s.at.charges)
		}
	}
}

// longestPeace is from the end of one thing to the next.
const longestPeace = 100 * time.Millisecond

// strike lets something happen. If it takes long, other things happen beside it.
func (s *storm) strike(ctx context.Context, f fault, random *rand.Rand) {
	over := make(chan struct{})
	s.strikes.Go(func() {
		defer close(over)
		err := f.strike(ctx, s.at, random)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.result.struck[f.name()]++
		if err != nil && ctx.Err() == nil {
			s.failed = errors.Join(s.failed, fmt.Errorf("%s: %w", f.name(), err))
			s.end()
		}
	})
	select {
	case <-over:
	case <-time.After(3 * longestPeace):
	}
}

// wait is until so many charges have been answered.
func (s *storm) wait(ctx context.Context, n int) {
	for s.answered.Load() < int64(n) && ctx.Err() == nil {
		rest(ctx, time.Millisecond)
	}
}
