package resilienthttp

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/priority"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Priority is the importance of a call. An overloaded server (admission.Shedder) drops
// Batch first and Critical last. A Transport retries and hedges Batch only while the bucket
// of the [Budget] is more than half full. Each priority of a scope has a circuit of its own
// (see [Breaker]); quotas and blocks are shared (see [RateLimit]). The zero value is
// PriorityDefault. Any value that is not one of the three means PriorityDefault.
type Priority int8

const (
	// PriorityBatch is for calls that can be made later: imports, reports, prefetching.
	PriorityBatch = Priority(priority.Batch)

	// PriorityDefault is the priority of a call without one.
	PriorityDefault = Priority(priority.Default)

	// PriorityCritical is for calls that must not fail if the server can serve any: a
	// payment, a login. It works only for a small part of the load.
	PriorityCritical = Priority(priority.Critical)
)

// String is "batch", "default" or "critical", and a number for any other value.
func (p Priority) String() string {
	switch p {
	case PriorityDefault:
		return "default"
	case PriorityBatch, PriorityCritical:
		return priority.Format(int8(p))
	}
	return "Priority(" + strconv.Itoa(int(p)) + ")"
}

// known is p, or PriorityDefault for a value that is not one of the three.
func (p Priority) known() Priority {
	if p == PriorityBatch || p == PriorityCritical {
		return p
	}
	return PriorityDefault
}

// WithPriority returns a context whose calls have that priority. A Transport sends
// it on each attempt as X-Request-Priority: batch or critical, and sends nothing for
// PriorityDefault; a field that the caller has set on the request is not replaced.
// Deadline.Handler puts what it receives into the context of the request, so that a
// handler which calls out with that context passes it on.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return withOptions(ctx, func(o *options) { o.priority = p.known() })
}

// PriorityFromContext is the priority that calls with the context have: WithPriority's, or
// that of the request which Deadline.Handler or admission.Shedder has passed on.
// Without any it is PriorityDefault.
func PriorityFromContext(ctx context.Context) Priority { return optionsOf(ctx).priority }

// receivePriority puts the priority that a request's header names into the context.
func receivePriority(ctx context.Context, h http.Header) context.Context {
	if values := h[priority.Header]; len(values) > 0 {
		if p := Priority(priority.Parse(values[0])); p != PriorityFromContext(ctx) {
			return WithPriority(ctx, p)
		}
	}
	return ctx
}

// sends reports whether a request with this header needs the field.
func (p Priority) sends(h http.Header) bool {
	if p == PriorityDefault {
		return false
	}
	for name := range h { // in any spelling: net/http sends each as it is
		if len(name) == len(priority.Header) && strings.EqualFold(name, priority.Header) {
			return false
		}
	}
	return true
}

// mayHedge reports whether calls of this priority may be hedged: PriorityBatch only while
// the bucket of retry tokens is more than half full.
func (c *call) mayHedge(now time.Time) bool {
	if c.priority != PriorityBatch {
		return true
	}
	tokens := c.budget.status(c.scopeKey(), now)
	return tokens.Remaining < 0 || tokens.Remaining > tokens.Used
}

// suffixed is the name of what calls of one priority have to themselves in a scope.
func suffixed(key scope.Key) string {
	if key.Class == int8(PriorityDefault) {
		return key.Name
	}
	return key.Name + ";" + priority.Format(key.Class)
}

// keyNamed is what suffixed names so.
func keyNamed(name string) scope.Key {
	for _, class := range [...]Priority{PriorityBatch, PriorityCritical} {
		if of, ok := strings.CutSuffix(name, ";"+class.String()); ok {
			return scope.Key{Name: of, Class: int8(class)}
		}
	}
	return scope.Key{Name: name}
}
