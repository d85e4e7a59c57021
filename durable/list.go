package durable

import (
	"context"
	"iter"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Intents lists the intents that the filter selects, oldest first unless the filter says
// NewestFirst. It reads them in pages, without Payload and Result: Find reads these. An error
// ends the sequence.
func (e *Engine) Intents(ctx context.Context, filter Filter) iter.Seq2[Record, error] {
	return pages(e, func(after *Record) ([]Record, error) {
		return e.Store.Intents(ctx, filter, after, listPage)
	})
}

// Dead lists the dead letters that the filter selects, oldest first unless the filter says
// NewestFirst. It reads them in pages, and meets letters that are written meanwhile. An
// error ends the sequence.
func (e *Engine) Dead(ctx context.Context, filter Filter) iter.Seq2[DeadLetter, error] {
	return pages(e, func(after *DeadLetter) ([]DeadLetter, error) {
		return e.Store.DeadLetters(ctx, filter, after, listPage)
	})
}

// listPage is the number of rows that are read at once.
const listPage = 500

// pages is the sequence of all rows of all pages.
func pages[T any](e *Engine, read func(after *T) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		if _, err := e.start(); err != nil {
			yield(zero, err)
			return
		}
		for after := (*T)(nil); ; {
			page, err := read(after)
			if err != nil {
				yield(zero, err)
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			after = &page[len(page)-1]
		}
	}
}

// Counts counts the intents in these states by state, gateway and scope. None: all states.
// The numbers are exact, and take a look at each of the intents.
func (e *Engine) Counts(ctx context.Context, states ...State) ([]Count, error) {
	return ask(e, func(s Store) ([]Count, error) { return s.Counts(ctx, states) })
}

// Erase removes the payload, the result, the error texts and the notes of an intent that is
// done or canceled, or dead and not in doubt: a dead one is canceled by it. States, times,
// codes, references and the fingerprint stay, so that enqueueing the intent again still
// finds it. The journal notes the person and the time. Erasing twice is harmless.
//
// ErrInvalidState: the intent is not over. ErrNotFound: there is none. ErrInvalid: by is
// empty.
func (e *Engine) Erase(ctx context.Context, id idempotency.ID, by string) error {
	return e.decide(ctx, Event{Kind: EventErase, Intent: Intent{ID: id}, By: by})
}
