package sqlitekit

import (
	"context"
	"database/sql"
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

	// work is what the writer would do in a transaction by itself, and lets another do
	// in its own. nil: it must be alone.
	work work

	ready chan struct{} // closed when it has the turn, or another has done the work
	taken bool          // another does the work; written before it leaves the line
	err   error         // what came of that; written before ready is closed
}

// work is what is done in a transaction. It may be called again, when that has failed.
type work func(context.Context, *sql.Tx) error

func (k *Ticket) line() int {
	if k.Holds {
		return 0
	}
	return 1
}

// enter waits for the ticket's turn. Who gets nil must leave, unless the ticket was taken.
func (t *turn) enter(ctx context.Context, k *Ticket) error {
	k.ready = make(chan struct{})
	if t.join(k) {
		return nil
	}
	select {
	case <-k.ready:
		return nil
	case <-ctx.Done():
		if t.quit(k) {
			return ctx.Err()
		}
	}
	<-k.ready // it came in the same moment, or what has begun is brought to its end
	if k.taken {
		return nil
	}
	t.leave(k)
	return ctx.Err()
}

// take takes those out of the line who let another do their work, in their order: so many
// at most.
func (t *turn) take(most int) []*Ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*Ticket
	for i, line := range t.lines {
		t.lines[i] = slices.DeleteFunc(line, func(k *Ticket) bool {
			if k.work == nil || len(all) == most {
				return false
			}
			k.taken = true
			all = append(all, k)
			return true
		})
	}
	return all
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
