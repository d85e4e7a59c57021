package peers

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
)

// turnstile permits one caller at a time to ask the limiter of aws-sdk-go-v2 for a token. Otherwise
// all that wait would ask again and again, and with thousands of callers this takes minutes of real
// time for a virtual minute. The next caller is random, as without a turnstile, so only the real time
// differs.
type turnstile struct {
	mu      sync.Mutex
	busy    bool
	waiting []chan struct{}
}

// enter waits until the caller is the only one. It must call leave then.
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
		t.leaveQueue(turn)
		return context.Cause(ctx)
	}
}

// leaveQueue leaves the queue, or lets the next caller enter if it has entered meanwhile.
func (t *turnstile) leaveQueue(turn chan struct{}) {
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
