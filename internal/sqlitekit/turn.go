package sqlitekit

import (
	"context"
	"slices"
	"sync"
)

// turn is the order in which a store's writers come to SQLite's one write lock:
// holders of leases first, so that a lease which ends while they wait is not
// somebody else's before they had their say; and else first come, first served.
// Each leaves the line when its context ends. SQLite's own waiting is neither fair
// nor does it end with a context. Writers that are not this store's (other
// processes, and transactions that the work begins by itself) do not stand in this
// line: see DB.Retry.
type turn struct {
	mu     sync.Mutex
	holder *Ticket
	lines  [2][]*Ticket // of the holders of leases, and of all others
	given  uint64       // how often somebody got it
}

// Ticket is a writer's place in the line of its store. It is used once.
type Ticket struct {
	// Holds: it is for the holder of a lease.
	Holds bool

	ready chan struct{}
}

func (k *Ticket) line() int {
	if k.Holds {
		return 0
	}
	return 1
}

// enter waits for the ticket's turn. Who gets nil must leave.
func (t *turn) enter(ctx context.Context, k *Ticket) error {
	k.ready = make(chan struct{})
	if t.join(k) {
		return nil
	}
	select {
	case <-k.ready:
		return nil
	case <-ctx.Done():
		if !t.quit(k) {
			t.leave(k) // it came in the same moment
		}
		return ctx.Err()
	}
}

// join takes the turn or a place in the line. true: there is nothing to wait for.
func (t *turn) join(k *Ticket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == nil {
		t.give(k)
		return true
	}
	t.lines[k.line()] = append(t.lines[k.line()], k)
	return false
}

// quit leaves the line. false: the ticket is not in it any more.
func (t *turn) quit(k *Ticket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := &t.lines[k.line()]
	i := slices.Index(*line, k)
	if i < 0 {
		return false
	}
	*line = slices.Delete(*line, i, i+1)
	return true
}

// leave gives the turn to the next in line. For a ticket that does not have the
// turn it does nothing.
func (t *turn) leave(k *Ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != k {
		return
	}
	t.holder = nil
	for i, line := range t.lines {
		if len(line) > 0 {
			next := line[0]
			t.lines[i] = slices.Delete(line, 0, 1)
			t.give(next)
			close(next.ready)
			return
		}
	}
}

// give is called under the lock.
func (t *turn) give(k *Ticket) {
	t.holder = k
	t.given++
}

// count is how often somebody got the turn.
func (t *turn) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.given
}
