package durable

import "github.com/resilienthttp/resilienthttp/durable/driver"

// Trace has hooks that an Engine calls, synchronously and outside of locks, from many
// goroutines at once. nil ones are not called. A Change holds payload and result: log
// neither, nor the text of an Outcome's error.
type Trace struct {
	// Changed is told of each change that the Engine has made to an intent.
	Changed func(*driver.Change)

	// Held is called when the Engine begins to hold a gateway, by itself or for a person, and
	// when that ends: then held is false.
	Held func(hold *Hold, held bool)

	// Failed is told when the store, a Policy, or a Gateway that panicked has failed the
	// Engine. It goes on.
	Failed func(error)
}

func (t *Trace) changed(c *driver.Change) {
	if t != nil && t.Changed != nil {
		t.Changed(c)
	}
}

func (t *Trace) failed(err error) {
	if t != nil && t.Failed != nil {
		t.Failed(err)
	}
}

func (t *Trace) hold(h *Hold, held bool) {
	if t != nil && t.Held != nil {
		t.Held(h, held)
	}
}
