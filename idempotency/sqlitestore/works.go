package sqlitestore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// errWorking: joined work of this store is at the operation.
var errWorking = errors.New("sqlitestore: a transaction of the operation is open")

// ticket is a writer's place in the store's line. It is used once.
type ticket struct {
	sqlitekit.Ticket

	// claims is the operation that it claims; nil: none. It is told errWorking if joined work is
	// at that.
	claims *driver.ID

	// joins: it is for joined work, which keeps the turn while its transaction is open.
	joins bool
}

// works are the operations of joined work that has the turn, or waits for it.
type works struct {
	mu sync.Mutex
	at map[driver.ID]*ticket
}

// enter is called before the ticket stands in line.
func (w *works) enter(k *ticket) error {
	if k.claims == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at[*k.claims] != nil {
		return errWorking
	}
	if k.joins {
		if w.at == nil {
			w.at = make(map[driver.ID]*ticket)
		}
		w.at[*k.claims] = k
	}
	return nil
}

// leave is called before the ticket gives its turn away, or when it has not got it. For
// one that did not enter it does nothing.
func (w *works) leave(k *ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.joins && w.at[*k.claims] == k {
		delete(w.at, *k.claims)
	}
}

// queue waits in this store's line of writers for the ticket's turn, no longer
// than patience. Who gets nil must leave.
func (s *Store) queue(ctx context.Context, k *ticket, patience time.Duration) error {
	if err := s.works.enter(k); err != nil {
		return err
	}
	err := s.kit.Enter(ctx, &k.Ticket, patience)
	if err != nil {
		s.works.leave(k)
	}
	return err
}

func (s *Store) leave(k *ticket) {
	s.works.leave(k)
	s.kit.Leave(&k.Ticket)
}

// alone calls write when it is the ticket's turn: see sqlitekit.DB.Alone. The ticket is
// not one that joins.
func (s *Store) alone(ctx context.Context, k *ticket, patience time.Duration, write func(context.Context) error) error {
	if err := s.kit.Usable(ctx); err != nil {
		return err
	}
	if err := s.works.enter(k); err != nil {
		return err
	}
	return s.kit.Alone(ctx, &k.Ticket, patience, write)
}
