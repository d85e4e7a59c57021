package durable

import (
	"context"
)

// batchPage is the number of intents of one commit.
const batchPage = 1000

// EnqueueBatch enqueues many intents, a thousand in a commit. It returns a Result for each, in
// their order, with its own Err; Result.Receipt is its receipt. After an error some intents may
// be stored, and it is safe to enqueue all again.
func (e *Engine) EnqueueBatch(ctx context.Context, intents []Intent) ([]Result, error) {
	c, err := e.start()
	if err != nil {
		return nil, err
	}
	results := make([]Result, 0, len(intents))
	events := make([]Event, 0, min(len(intents), batchPage))
	for len(intents) > 0 {
		page := intents[:min(len(intents), batchPage)]
		intents = intents[len(page):]
		events = events[:0]
		for i := range page {
			events = append(events, Event{Kind: EventEnqueue, Intent: page[i]})
		}
		done, err := c.enqueueAll(ctx, events)
		results = append(results, done...)
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// enqueueAll enqueues the intents for the gateways of the Engine.
func (c *core) enqueueAll(ctx context.Context, events []Event) ([]Result, error) {
	results := make([]Result, len(events))
	known := make([]Event, 0, len(events))
	places := make([]int, 0, len(events))
	for i := range events {
		if results[i].Err = c.routed(events[i].Intent.Gateway); results[i].Err == nil {
			known = append(known, events[i])
			places = append(places, i)
		}
	}
	if len(known) == 0 {
		return results, nil
	}
	done, err := c.applyAll(ctx, known)
	if err != nil {
		return nil, err
	}
	for i := range done {
		results[places[i]] = done[i]
	}
	c.wakeUp()
	return results, nil
}

// routed returns an ErrInvalid if the Engine has no such gateway.
func (c *core) routed(gateway string) error {
	if _, ok := c.routes[gateway]; !ok {
		return invalidf("Intent.Gateway is %q, want a key of Engine.Gateways", gateway)
	}
	return nil
}

// applyAll applies events for a caller.
func (c *core) applyAll(ctx context.Context, events []Event) ([]Result, error) {
	results, err := c.Store.Apply(ctx, events)
	if err != nil {
		return nil, err
	}
	for i := range results {
		if results[i].Err == nil && results[i].Step != StepKeep {
			c.Trace.changed(&results[i].Change)
		}
	}
	return results, nil
}
