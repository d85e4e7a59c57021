package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// errWorking: the record that was to be taken over is held by an open
// transaction.
var errWorking = errors.New("sqlitestore: a transaction of the record is open")

// turn is the order in which this store's writers come to SQLite's one write
// lock: first come, first served, and each leaves the line when its context ends.
// SQLite's own waiting is neither fair nor does it end with a context. Writers
// that are not this store's (other processes, and transactions that the work
// begins by itself) do not stand in this line: see Store.retry.
type turn struct {
	mu     sync.Mutex
	holder *ticket
	line   []*ticket
	given  uint64 // how often somebody got it
}

// ticket is a writer's place. It is used once.
type ticket struct {
	// work is the record whose execution keeps the turn while its transaction is
	// open; nil: the turn is for a single statement.
	work *idempotency.ID

	// over is the record that is to be taken over; nil: none. Such a writer does
	// not wait for a transaction of that record, but is told errWorking.
	over *idempotency.ID

	ready chan error
}

// enter waits for the ticket's turn. Who gets nil must leave.
func (t *turn) enter(ctx context.Context, k *ticket) error {
	k.ready = make(chan error, 1)
	if done, err := t.join(k); done {
		return err
	}
	select {
	case err := <-k.ready:
		return err
	case <-ctx.Done():
		if !t.quit(k) && <-k.ready == nil {
			t.leave(k) // it came in the same moment
		}
		return ctx.Err()
	}
}

// join takes the turn or a place in the line. true: there is nothing to wait for.
func (t *turn) join(k *ticket) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.holder == nil:
		t.holder = k
		t.given++
		return true, nil
	case t.holder.worksOn(k.over):
		return true, errWorking
	}
	t.line = append(t.line, k)
	return false, nil
}

// quit leaves the line. false: the ticket is not in it any more.
func (t *turn) quit(k *ticket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.line, k)
	if i < 0 {
		return false
	}
	t.line = slices.Delete(t.line, i, i+1)
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
	if len(t.line) == 0 {
		return
	}
	t.holder = t.line[0]
	t.given++
	t.line = slices.Delete(t.line, 0, 1)
	t.holder.ready <- nil
	t.sendAway(t.holder.work)
}

// refuse tells all who want to take the record over what one of them has found:
// errWorking. Otherwise each would find it for himself, one after the other.
func (t *turn) refuse(id *idempotency.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sendAway(id)
}

// sendAway is called under the lock. It does nothing for nil.
func (t *turn) sendAway(id *idempotency.ID) {
	t.line = slices.DeleteFunc(t.line, func(waiting *ticket) bool {
		blocked := waiting.over != nil && id != nil && *waiting.over == *id
		if blocked {
			waiting.ready <- errWorking
		}
		return blocked
	})
}

// count is how often somebody got the turn.
func (t *turn) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.given
}

func (k *ticket) worksOn(id *idempotency.ID) bool {
	return k.work != nil && id != nil && *k.work == *id
}
