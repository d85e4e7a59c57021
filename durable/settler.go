package durable

import (
	"context"
	"sync"
	"time"
)

// settler stores outcomes, those that come at the same time in one commit: whoever
// finds nobody at it does it for all who come meanwhile.
type settler struct {
	store Store
	trace *Trace

	mu     sync.Mutex
	queue  []*settlement
	active bool
}

// settlement is one outcome to be stored.
type settlement struct {
	event  Event
	result Result
	err    error
	done   chan struct{}
}

// settleBatch is the most outcomes of one commit.
const settleBatch = 500

// settle stores the outcome. It goes on trying until ctx ends: then the intent is reaped
// in its time.
func (s *settler) settle(ctx context.Context, event Event) (Result, error) {
	for {
		own := &settlement{event: event, done: make(chan struct{})}
		s.mu.Lock()
		s.queue = append(s.queue, own)
		lead := !s.active
		s.active = true
		s.mu.Unlock()
		if lead {
			s.lead(ctx)
		}
		<-own.done
		if own.err == nil || ctx.Err() != nil {
			return own.result, own.err
		}
		// Whoever led has given up, because its own time was over.
	}
}

// lead stores until nothing is left.
func (s *settler) lead(ctx context.Context) {
	for {
		s.mu.Lock()
		batch := s.queue[:min(len(s.queue), settleBatch)]
		s.queue = s.queue[len(batch):]
		if len(batch) == 0 {
			s.active = false
			s.queue = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.store1(ctx, batch)
	}
}

func (s *settler) store1(ctx context.Context, batch []*settlement) {
	events := make([]Event, len(batch))
	for i, b := range batch {
		events[i] = b.event
	}
	results, err := s.store.Apply(ctx, events)
	for wait := 10 * time.Millisecond; err != nil && sleep(ctx, wait); wait = min(2*wait, time.Second) {
		s.trace.failed(err)
		results, err = s.store.Apply(ctx, events)
	}
	for i, b := range batch {
		if b.err = err; err == nil {
			b.result = results[i]
		}
		close(b.done)
	}
}
