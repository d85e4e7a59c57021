package durable

import (
	"context"
	"time"
)

// Gateway sends intents to the other side. It is called by many goroutines at once.
type Gateway interface {
	// Send sends once, under s.Key, and says what came of it. It must not repeat by
	// itself: the Engine does. ctx ends when the intent may soon be somebody else's. A
	// Gateway that panics, or does not come back in time, has the zero Outcome: nobody
	// knows.
	Send(ctx context.Context, s *Send) Outcome
}

// Finder is a Gateway that can be asked.
type Finder interface {
	// Find asks the other side what became of the work of s.Key, and changes nothing
	// there. ClassSucceeded and ClassDeclined are its end. ClassNotFound says that the
	// other side knows nothing of it, which counts once VisibilityDelay has passed since the
	// last send. All else is no answer, and it is asked again.
	Find(ctx context.Context, s *Send) Outcome
}

// Protector is a Gateway that knows how long its keys protect.
type Protector interface {
	// KeyPolicy tells for how long the other side remembers keys, and how long a send may
	// go on unseen. 0: as the Engine has it. A negative keyLife: keys protect nothing.
	KeyPolicy() (keyLife, settles time.Duration)
}

// Validator is a Gateway that knows whether it is in order. Engine.Validate asks it, and an
// Engine with one that is not sends nothing.
type Validator interface {
	// Validate says what is wrong with the configuration; nil: nothing is.
	Validate() error
}

// Send is one attempt, as a Gateway is given it.
type Send struct {
	// Intent is what is sent. Its NotBefore is zero.
	Intent

	// Number counts the sends since the intent was enqueued, mended or redriven, this one
	// included, from 1. A question bears that of the last send.
	Number int

	// Key is the idempotency key to send, the same in all attempts of an Epoch.
	Key string

	// Epoch counts the keys, from 1.
	Epoch int

	// Generation is the fencing token: it rises with each attempt.
	Generation int64

	// First is when the first send under this key was claimed, by the database's clock.
	First time.Time
}
