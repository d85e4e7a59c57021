package durable

// Trace has hooks that an Engine calls synchronously, outside of locks, from many goroutines.
// nil hooks are not called. A Change has payload, result and error text: do not log them.
type Trace struct {
	// Changed is called for each change of an intent that this Engine made.
	Changed func(*Change)

	// Held is called when the Engine begins to hold a gateway, by itself, for a person or for its
	// provider, and when that ends: then held is false. A hold with an Until ends without a call.
	Held func(hold *Hold, held bool)

	// Failed is called with errors of the store, and with panics of a Policy or a Gateway. The
	// Engine goes on.
	Failed func(error)
}

func (t *Trace) changed(c *Change) {
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
