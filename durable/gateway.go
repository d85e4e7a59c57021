package durable

import (
	"context"
	"time"
)

// Gateway sends intents to a provider. It must be safe for concurrent use. A Gateway that is
// also a Policy is its own Policy. One with a method Concurrency() int brings its own number of
// workers: see Engine.PerGateway. If the provider limits each scope and not the gateway, a method
// LimitsPerScope() bool returns true: see Engine.Holds.
type Gateway interface {
	// Send sends once, under s.Key, and returns the outcome. It must not retry: the Engine
	// does. ctx ends before another worker may get the intent. A panic, or a Send that does not
	// return in time, is the zero Outcome: the result is unknown.
	Send(ctx context.Context, s *Send) Outcome
}

// Finder is a Gateway with status queries.
type Finder interface {
	// Find queries the provider for the result of s.Key, and changes nothing there.
	// ClassSucceeded and ClassDeclined are final. ClassNotFound means that the provider knows
	// no such work; it counts VisibilityDelay after the last send. Any other class means that
	// there was no answer, and the provider is queried again.
	Find(ctx context.Context, s *Send) Outcome
}

// Protector is a Gateway that knows how long its keys protect.
type Protector interface {
	// KeyPolicy returns how long the provider remembers keys, and how long a send may take
	// effect unseen. Zero means the Engine's value. A negative keyTTL means that keys protect nothing.
	KeyPolicy() (keyTTL, visibilityDelay time.Duration)
}

// validator is a Gateway that checks its configuration. An Engine with an invalid Gateway does not start.
type validator interface {
	// Validate returns what is wrong with the configuration.
	Validate() error
}

// Send is one attempt.
type Send struct {
	// Intent is what to send, without NotBefore and Fingerprint.
	Intent

	// Number is the number of this send since the intent was enqueued, revised or redriven,
	// from 1. A status query has the number of the last send.
	Number int

	// Key is the idempotency key, the same for all attempts of an Epoch.
	Key string

	// Epoch is the version of the key, from 1.
	Epoch int

	// Generation is the fencing token. It rises with each attempt.
	Generation int64

	// First is the time of the first send under this key, by the database's clock.
	First time.Time
}
