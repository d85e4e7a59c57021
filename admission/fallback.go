package admission

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

const (
	defaultStoreTimeout = 100 * time.Millisecond

	// connectTimeout is the time for connecting, from the first call of the store.
	connectTimeout = time.Second

	// The fallback begins when more than half of the last answers were late or failed:
	// of at least minAnswers and at most maxAnswers, within answerWindow.
	minAnswers   = 3
	maxAnswers   = 20
	answerWindow = 10 * time.Second

	probeInterval = time.Second

	// maxStoreCalls limits the calls in progress, and so the goroutines that a store
	// without regard for its context can hold.
	maxStoreCalls = 1000
)

var (
	// errStoreNotCalled means that the store was not called: during the fallback, or
	// because maxStoreCalls calls are in progress.
	errStoreNotCalled = errors.New("the store is not called")

	errStorePanicked = errors.New("admission: the store panicked") // the value may be a secret

	errStoreGoexit = errors.New("admission: the store ended its goroutine")
)

// storeWithFallback calls a Store and waits no longer than timeout for its answer. It
// decides when the fallback begins and ends; the Quota decides requests meanwhile.
//
// Until its first good answer, and for at most connectTimeout, a store may be
// connecting. Late answers do not count then, and with failClosed requests wait for it.
type storeWithFallback struct {
	store      Store
	timeout    time.Duration
	failClosed bool

	calls atomic.Int32 // in progress

	mu        sync.Mutex
	connected bool      // there was a good answer
	connectBy time.Time // zero before the first call
	fallback  hold.Hold // only probes call the store
	period    int       // counts the first good answer, and each change of fallback
	answers   [maxAnswers]storeAnswer
	next      int // the index in answers of the next one
}

// storeAnswer is the result of a call in the past.
type storeAnswer struct {
	at  time.Time
	bad bool // late or failed
}

// storeCall is a call that allow has permitted.
type storeCall struct {
	timeout time.Duration
	period  int
	probe   bool
}

type takeResult struct {
	result Result
	err    error
}

// take calls the store's Take.
func (s *storeWithFallback) take(ctx context.Context, key string, want, least int, r Rule) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	call, ok := s.allow()
	if !ok {
		return Result{}, errStoreNotCalled
	}
	limited, cancel := context.WithTimeout(ctx, call.timeout)
	defer cancel()
	results := make(chan takeResult, 1)
	go func() {
		t := takeResult{err: errStoreGoexit}
		defer func() {
			if recover() != nil {
				t = takeResult{err: errStorePanicked}
			}
			s.calls.Add(-1)
			results <- t
		}()
		t.result, t.err = s.store.Take(limited, key, want, least, r)
	}()
	var t takeResult
	select {
	case t = <-results:
	case <-limited.Done():
		select {
		case t = <-results: // both were ready
		default:
			t.err = limited.Err()
		}
	}
	if t.err != nil && sleep.HasEnded(ctx) {
		s.abandon(call)
	} else {
		s.note(call, t.err != nil, t.err != nil && sleep.HasEnded(limited))
	}
	return t.result, t.err
}

// allow reports whether the store may be called. The caller must then pass the call to
// note or abandon.
func (s *storeWithFallback) allow() (storeCall, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(s.fallback.Next(now)) || s.calls.Load() >= maxStoreCalls {
		return storeCall{}, false
	}
	s.calls.Add(1)
	call := storeCall{timeout: s.timeout, period: s.period, probe: s.fallback.Held()}
	if call.probe {
		s.fallback.Test(now)
	}
	if !s.connected {
		if s.connectBy.IsZero() {
			s.connectBy = now.Add(connectTimeout)
		}
		if s.failClosed {
			call.timeout = max(call.timeout, s.connectBy.Sub(now))
		}
	}
	return call, true
}

// abandon is called when the request ended before the store answered. This says
// nothing about the store, so the next request may send the probe instead.
func (s *storeWithFallback) abandon(call storeCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.probe && call.period == s.period {
		s.fallback.Cancel(time.Now())
	}
}

// note counts the answer to a call, and begins or ends the fallback. bad means that
// the answer was late or an error.
func (s *storeWithFallback) note(call storeCall, bad, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !bad && !s.connected {
		s.connected = true
		s.period++
		call.period = s.period
	}
	switch {
	case call.period != s.period:
		return // it says nothing about the store as it is now
	case call.probe && bad:
		s.fallback.Fail(now, probeInterval, probeInterval)
		return
	case call.probe:
		s.fallback.End(now)
		s.changed()
		return
	case late && !s.connected && now.Before(s.connectBy):
		return // the store may be connecting
	}
	s.answers[s.next] = storeAnswer{now, bad}
	s.next = (s.next + 1) % maxAnswers
	if bad && s.mostlyBad(now) {
		s.fallback.Begin(now, probeInterval)
		s.changed()
	}
}

// changed forgets the answers of before the fallback began or ended. The caller holds the lock.
func (s *storeWithFallback) changed() {
	s.answers = [maxAnswers]storeAnswer{}
	s.period++
}

// mostlyBad reports whether more than half of the last answers were bad. The caller
// holds the lock.
func (s *storeWithFallback) mostlyBad(now time.Time) bool {
	answers, bad := 0, 0
	for i := range s.answers {
		a := &s.answers[i]
		if a.at.IsZero() || now.Sub(a.at) > answerWindow {
			continue
		}
		answers++
		if a.bad {
			bad++
		}
	}
	return answers >= minAnswers && 2*bad > answers
}
