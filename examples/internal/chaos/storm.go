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

// Storm is what happens while workers work.
type Storm struct {
	At *Site

	// Workers work on so many Items.
	Workers, Items int

	// Struck is how often each fault did, when it is over.
	Struck map[string]int

	answered atomic.Int64
	strikes  sync.WaitGroup
	mu       sync.Mutex
	failed   error              // a fault that could not strike, or not be mended
	end      context.CancelFunc // then
}

// Rage lets the workers work, each on one item at a time, and everything of the plan
// happen meanwhile.
func (s *Storm) Rage(ctx context.Context, out io.Writer, work func(ctx context.Context, item int)) error {
	ctx, s.end = context.WithCancel(ctx)
	defer s.end()
	s.Struck = map[string]int{}
	items := make(chan int, s.Items)
	var workers sync.WaitGroup
	for range s.Workers {
		workers.Go(func() {
			for i := range items {
				work(ctx, i)
				s.answered.Add(1)
			}
		})
	}
	s.unfold(ctx, out, items)
	close(items)
	workers.Wait()
	s.strikes.Wait()
	return errors.Join(s.failed, ctx.Err())
}

// unfold hands out the items in as many parts as the plan has, and one. Something
// strikes at a random moment after a part was handed out, and most of what went
// before it answered: in the middle of the work.
func (s *Storm) unfold(ctx context.Context, out io.Writer, items chan<- int) {
	seed := s.At.Seed
	random := rand.New(rand.NewPCG(seed, 1))
	plan := s.At.List()
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	before := 0
	for part := 1; part <= len(plan)+1 && ctx.Err() == nil; part++ {
		share := s.Items * part / (len(plan) + 1)
		for i := before; i < share; i++ {
			items <- i
		}
		if part > len(plan) {
			return
		}
		s.wait(ctx, before-s.Workers)
		before = share
		_ = sleep.Context(ctx, upTo(random, longestPeace))
		s.strike(ctx, plan[part-1], rand.New(rand.NewPCG(seed, uint64(1+part))))
		if part%10 == 0 {
			fmt.Fprintf(out, "%3d of %d strikes, %4d of %d answered\n", part, len(plan), s.answered.Load(), s.Items)
		}
	}
}

// longestPeace is from the end of one thing to the next.
const longestPeace = 100 * time.Millisecond

// strike lets something happen. If it takes long, other things happen beside it.
func (s *Storm) strike(ctx context.Context, f Fault, random *rand.Rand) {
	over := make(chan struct{})
	s.strikes.Go(func() {
		defer close(over)
		err := f.Strike(ctx, s.At, random)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Struck[f.Name()]++
		if err != nil && ctx.Err() == nil {
			s.failed = errors.Join(s.failed, fmt.Errorf("%s: %w", f.Name(), err))
			s.end()
		}
	})
	select {
	case <-over:
	case <-time.After(3 * longestPeace):
	}
}

// wait is until so many items have been answered.
func (s *Storm) wait(ctx context.Context, n int) {
	for s.answered.Load() < int64(n) && ctx.Err() == nil {
		_ = sleep.Context(ctx, time.Millisecond)
	}
}
