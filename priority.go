package resilienthttp

import (
	"context"
	"strconv"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// Priority is the importance of a call. An overloaded server (admission.Shedder) drops Batch
// first and Critical last. A Transport retries and hedges Batch only while the [Budget] is more
// than half full. Each priority of a scope has its own circuit; quotas and blocks are shared. The
// zero value is PriorityDefault, and so is any unknown value.
type Priority int8

const (
	// PriorityBatch is for calls that can wait: imports, reports, prefetching.
	PriorityBatch Priority = -1

	// PriorityDefault is the priority of a call without one.
	PriorityDefault Priority = 0

	// PriorityCritical is for calls that must succeed if the server can serve any: a payment, a
	// login. Use it for a small part of the load only.
	PriorityCritical Priority = 1
)

// String returns "batch", "default" or "critical", and a number for any other value.
func (p Priority) String() string {
	switch p {
	case PriorityDefault:
		return "default"
	case PriorityBatch, PriorityCritical:
		return field.FormatPriority(int8(p))
	}
	return "Priority(" + strconv.Itoa(int(p)) + ")"
}

// known returns p, or PriorityDefault for an unknown value.
func (p Priority) known() Priority {
	if p == PriorityBatch || p == PriorityCritical {
		return p
	}
	return PriorityDefault
}

// WithPriority returns a context with a priority for its calls. A Transport sends it on each
// attempt as X-Request-Priority: batch or critical. It sends nothing for PriorityDefault, and
// does not replace a field that the caller has set.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return withOptions(ctx, func(o *callOptions) { o.priority = int8(p.known()) })
}

// PriorityFromContext returns the priority of calls with the context: that of WithPriority, or of
// a request that a DeadlineHandler or admission.Shedder has received. The default is
// PriorityDefault.
func PriorityFromContext(ctx context.Context) Priority { return Priority(optionsOf(ctx).priority) }
