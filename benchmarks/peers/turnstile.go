package peers

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
)

// turnstile lets one caller at a time wait for a limiter. Some libraries' limiters
// wake all who wait for each token, and send all but one of them back to sleep:
// with the thousands that wait in an experiment, that is minutes of work for each
// virtual one. Who comes next is drawn, as it is among those who are woken at once,
// so that it takes nothing from a library but the work.
type turnstile struct {
	mu      sync.Mutex
	busy    bool
	waiting []chan struct{}
}

// enter waits for the caller's turn, which ends when leave is called.
func (t *turnstile) enter(ctx context.Context) error {
	t.mu.Lock()
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.giveUp(turn)
		return context.Cause(ctx)
	}
}

// giveUp leaves the queue, or passes on the turn that has come meanwhile.
func (t *turnstile) giveUp(turn chan struct{}) {
	t.mu.Lock()
	i := slices.Index(t.waiting, turn)
	if i >= 0 {
		t.remove(i)
	}
	t.mu.Unlock()
	if i < 0 {
		t.leave()
	}
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	i := rand.IntN(len(t.waiting))
	t.waiting[i] <- struct{}{}
	t.remove(i)
}

func (t *turnstile) remove(i int) {
	last := len(t.waiting) - 1
	t.waiting[i] = t.waiting[last]
	t.waiting = t.waiting[:last]
}
