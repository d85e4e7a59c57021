package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// errWorking: joined work of this store is at the operation.
var errWorking = errors.New("sqlitestore: a transaction of the operation is open")

// turn is the order in which this store's writers come to SQLite's one write
// lock: holders of leases first, so that a lease which ends while they wait is not
// somebody else's before they had their say; and else first come, first served.
// Each leaves the line when its context ends. SQLite's own waiting is neither fair
// nor does it end with a context. Writers that are not this store's (other
// processes, and transactions that the work begins by itself) do not stand in this
// line: see Store.retry.
type turn struct {
	mu     sync.Mutex
	holder *ticket
	lines  [2][]*ticket               // of the holders of leases, and of all others
	works  map[idempotency.ID]*ticket // the operations of joined work that has the turn, or waits for it
	given  uint64                     // how often somebody got it
}

// ticket is a writer's place. It is used once.
type ticket struct {
	// holds: it is for the holder of a lease.
	holds bool

	// claims is the operation that it claims; nil: none. It is told errWorking if joined work is
	// at that.
	claims *idempotency.ID

	// joins: it is for joined work, which keeps the turn while its transaction is open.
	joins bool

	ready chan struct{}
}

func (k *ticket) line() int {
	if k.holds {
		return 0
	}
	return 1
}

// enter waits for the ticket's turn. Who gets nil must leave.
func (t *turn) enter(ctx context.Context, k *ticket) error {
	k.ready = make(chan struct{})
	if done, err := t.join(k); done {
		return err
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
func (t *turn) join(k *ticket) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.claims != nil && t.works[*k.claims] != nil {
		return true, errWorking
	}
	if k.joins {
		if t.works == nil {
			t.works = make(map[idempotency.ID]*ticket)
		}
		t.works[*k.claims] = k
	}
	if t.holder == nil {
		t.give(k)
		return true, nil
	}
	t.lines[k.line()] = append(t.lines[k.line()], k)
	return false, nil
}

// quit leaves the line. false: the ticket is not in it any more.
func (t *turn) quit(k *ticket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := &t.lines[k.line()]
	i := slices.Index(*line, k)
	if i < 0 {
		return false
	}
	*line = slices.Delete(*line, i, i+1)
	t.forget(k)
	return true
}

// leave gives the turn to the next in line. For a ticket that does not have the
// turn it does nothing.
func (t *turn) leave(k *ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != k {
		return
	}
	t.holder = nil
	t.forget(k)
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
func (t *turn) give(k *ticket) {
	t.holder = k
	t.given++
}

// forget is called under the lock.
func (t *turn) forget(k *ticket) {
	if k.joins {
		delete(t.works, *k.claims)
	}
}

// count is how often somebody got the turn.
func (t *turn) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.given
}
