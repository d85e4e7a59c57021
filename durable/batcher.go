package durable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// outcomeBatcher stores outcomes in groups, as databases commit: the first one without a leader
// leads, and stores all that are queued. The first of the next group leads next.
type outcomeBatcher struct {
	core *core

	mu    sync.Mutex
	queue []*pendingOutcome
	led   bool
}

// pendingOutcome is an outcome that is not stored yet.
type pendingOutcome struct {
	record *Record // as it was claimed
	event  Event
	again  bool // it was tried before, and may have been stored then
	result Result
	err    error
	over   chan bool // true: it was tried; false: lead
}

// maxOutcomeBatch is the maximum number of outcomes of one commit.
const maxOutcomeBatch = 500

// store stores the outcome of an attempt. It tries until ctx ends; after that the intent is
// reaped.
func (s *outcomeBatcher) store(ctx context.Context, record *Record, event Event) (Change, error) {
	own := &pendingOutcome{record: record, event: event, over: make(chan bool, 1)}
	for {
		if s.join(own) || !<-own.over {
			s.lead(ctx)
			<-own.over
		}
		if own.err == nil {
			return s.outcome(ctx, own)
		}
		if ctx.Err() != nil {
			return Change{}, own.err
		}
		// The leader has given up, because its own context has ended.
	}
}

// join reports whether the outcome must lead.
func (s *outcomeBatcher) join(own *pendingOutcome) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, own)
	lead := !s.led
	s.led = true
	return lead
}

// lead stores the first group of the queue.
func (s *outcomeBatcher) lead(ctx context.Context) {
	if s.core.hasInFlight() {
		_ = sleep.Context(ctx, fetchCooldown)
	}
	s.mu.Lock()
	batch := slices.Clone(s.queue[:min(len(s.queue), maxOutcomeBatch)])
	s.queue = slices.Delete(s.queue, 0, len(batch))
	s.mu.Unlock()
	s.storeAll(ctx, batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.led = len(s.queue) > 0; s.led {
		s.queue[0].over <- false
	}
}

func (s *outcomeBatcher) storeAll(ctx context.Context, batch []*pendingOutcome) {
	events := make([]Event, len(batch))
	for i, b := range batch {
		events[i] = b.event
	}
	apply := func(ctx context.Context) ([]Result, error) { return s.core.Store.Apply(ctx, events) }
	results, err := bounded(ctx, s.core, apply)
	for wait := 10 * time.Millisecond; err != nil; wait = min(2*wait, time.Second) {
		for _, b := range batch {
			b.again = true
		}
		if sleep.Context(ctx, wait) != nil {
			break
		}
		s.core.Trace.failed(err)
		results, err = bounded(ctx, s.core, apply)
	}
	for i, b := range batch {
		if b.err = err; err == nil {
			b.result = results[i]
		}
		b.over <- true
	}
}

// outcome returns the Change that the store made. If a repeated try is fenced, an earlier one
// may have been stored: then the journal has it, and Decide returns its Change.
func (s *outcomeBatcher) outcome(ctx context.Context, own *pendingOutcome) (Change, error) {
	if !own.again || !errors.Is(own.result.Err, ErrFenced) {
		return own.result.Change, own.result.Err
	}
	attempts, err := bounded(ctx, s.core, func(ctx context.Context) ([]Attempt, error) { return s.core.Store.Attempts(ctx, own.record.ID) })
	if err != nil {
		return Change{}, errors.Join(own.result.Err, err)
	}
	for i := range attempts {
		found := &attempts[i]
		if found.Generation != own.event.Generation || found.FinishedAt.IsZero() {
			continue
		}
		change, err := Decide(own.record, &own.event, found.FinishedAt)
		if err == nil && change.FinishedAttempt.SameEnd(found) {
			return change, nil
		}
	}
	return Change{}, own.result.Err
}
