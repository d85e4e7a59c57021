package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

const (
	// storeWait is the longest that a request waits for a Store.
	storeWait = 50 * time.Millisecond

	// storePause is how long a Store is left alone that was too slow. After that one
	// request asks it, and the others when that was answered.
	storePause = time.Second
)

// errStoreDown is that the store was too slow a moment ago, and was not asked.
var errStoreDown = errors.New("it was too slow a moment ago")

// watchedStore is a Store that nobody waits for longer than storeWait, even where it
// does not care for its context.
type storeWithFallback struct {
	store  Store
	prefix string // of its keys: other quotas may be in the same store

	mu      sync.Mutex
	slow    bool
	until   time.Time // it is not asked before
	probing bool      // somebody asks it to find out
}

type storeAnswer struct {
	ticket quotastore.Result
	err    error
}

func (s *storeWithFallback) take(ctx context.Context, key string, n int, r Rule) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	probe, ok := s.mayAsk()
	if !ok {
		return Result{}, errStoreDown
	}
	limited, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	answers := make(chan storeAnswer, 1)
	go func() {
		a := storeAnswer{err: errors.New("admission: the store has ended its goroutine")}
		defer func() {
			if p := recover(); p != nil {
				a = storeAnswer{err: fmt.Errorf("admission: the store panicked: %v", p)}
			}
			answers <- a
		}()
		a.ticket, a.err = s.store.Take(limited, s.prefix+key, n, n, r)
	}()
	var a storeAnswer
	select {
	case a = <-answers:
	case <-limited.Done():
		select {
		case a = <-answers: // in this very moment
		default:
			a.err = limited.Err()
		}
	}
	slow := a.err != nil && limited.Err() != nil && ctx.Err() == nil
	s.heard(probe, slow, a.err == nil)
	return a.ticket, a.err
}

// mayAsk reports whether the store is to be asked, and whether that is to find out if
// it is well again.
func (s *storeWithFallback) mayAsk() (probe, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.slow {
		return false, true
	}
	if s.probing || time.Now().Before(s.until) {
		return false, false
	}
	s.probing = true
	return true, true
}

// heard notes how the store did.
func (s *storeWithFallback) heard(probe, slow, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if probe {
		s.probing = false
	}
	switch {
	case slow:
		s.slow, s.until = true, time.Now().Add(storePause)
	case probe && answered:
		s.slow = false
	}
}
