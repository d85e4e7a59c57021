package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// Disposition is what was done with a request or message, in lower case with
// underscores, as in metrics and logs.
type Disposition string

// The dispositions of requests and messages.
const (
	// Executed: the work was done, and its result stored.
	Executed Disposition = "executed"

	// Released: the work was tried and took no effect, or may be repeated whatever
	// it did; it may come again.
	Released Disposition = "released"

	// Replayed: it had been done before; the first result was given.
	Replayed Disposition = "replayed"

	// Unreplayable: it had been done before, and the result is too large to be
	// stored.
	Unreplayable Disposition = "unreplayable"

	// Duplicate: another execution is at it.
	InProgress Disposition = "in_progress"

	// Mismatched: the key was used for another request.
	Mismatched Disposition = "mismatched"

	// Doubtful: nobody knows whether it took effect. See Trace.Unknown.
	OutcomeUnknown Disposition = "unknown"

	// Overtaken: the work was done, but the operation was somebody else's by then, so
	// the result counts for nothing.
	LeaseLost Disposition = "lease_lost"

	// Panicked: the work panicked.
	Panicked Disposition = "panicked"

	// StoreFailed: the store did not answer, before the work or after it.
	StoreFailed Disposition = "store_failed"

	// Left: the client has gone, or Do's context was cancelled, before the store had
	// answered. The work was not begun. One or two are no failure of the store's; many,
	// with a long Latency, say that it is slow.
	Canceled Disposition = "canceled"

	// Refused: the request was not fit to be executed: no key, a malformed one, no
	// scope, a body too large or cut short. A message: no key, or a context that had
	// ended before.
	Invalid Disposition = "invalid"

	// Misconfigured: the Handler or Executor is.
	Misconfigured Disposition = "misconfigured"
)

// Event is what happened to one request or message.
type Event struct {
	// ID is the operation, as far as it is known. Its key is a secret in some
	// systems: log KeyHash.
	ID

	// Owner and Generation are those of the execution; empty when there was none.
	Owner      string
	Generation int64

	// Disposition is what was done.
	Disposition Disposition

	// Code is the HTTP status that was answered; 0 outside of HTTP.
	Code int

	// Latency is how long it took in all, Work how much of it the work itself.
	Latency, Work time.Duration

	// Err is what went wrong, nil for most.
	Err error

	// Request is the request; nil outside of HTTP.
	Request *http.Request
}

// KeyHash is a short hash of the key, the same that the client's LogTrace writes.
func (e *Event) KeyHash() string {
	if e.Key == "" {
		return ""
	}
	return idempotencykey.Hash(e.Key)
}

// Trace is a set of hooks. Each may be nil. They run synchronously, in the
// goroutine of the request or message, RenewalFailed in the heartbeat's; never
// under a lock. They must be safe for concurrent use, and must not keep the
// pointer.
type Trace struct {
	// Done is called once for every request with a key, every request refused for
	// its key, and every Do, when its response is about to be sent.
	Done func(*Event)

	// Unknown is called when an operation has become Unknown: an execution died, as
	// a claim or a Sweeper has found, or ended without knowing its effect. It may be
	// called twice for one, if the store did not hear of the first. Tell a reconciler:
	// it finds out what happened and settles the record with Store.Load and then
	// Complete or Release.
	Unknown func(*Event)

	// RenewalFailed is called when a lease could not be renewed. It is tried again,
	// unless Err is ErrLeaseLost: then the work's context is cancelled.
	RenewalFailed func(*Event)
}

func (r *executor) traceRenewal(lease driver.Lease, err error) {
	if r.trace != nil && r.trace.RenewalFailed != nil {
		r.trace.RenewalFailed(&Event{ID: lease.ID, Owner: lease.Owner, Generation: lease.Generation, Err: err})
	}
}

// LogTrace returns hooks that write structured records: "request" (debug; info
// when something was replayed or refused, error when the store failed or the work
// was overtaken), "unknown" (error) and "renewal" (warn), each with an "event"
// attribute of that name. They hold scope, operation, a short hash of the key,
// execution, disposition, status and durations; never a key, a header or a body.
// nil means slog.Default at the time of each record.
func LogTrace(logger *slog.Logger) *Trace {
	l := traceLogger{logger}
	return &Trace{Done: l.done, Unknown: l.unknown, RenewalFailed: l.renewal}
}

type traceLogger struct{ logger *slog.Logger }

func (l traceLogger) log(e *Event, level slog.Level, event string, attrs ...slog.Attr) {
	logger, ctx := l.logger, context.Background()
	if logger == nil {
		logger = slog.Default()
	}
	if e.Request != nil {
		ctx = e.Request.Context()
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	all := append([]slog.Attr{
		slog.String("event", event), slog.String("scope", e.Scope), slog.String("operation", e.Operation),
		slog.String("idempotency_key", e.KeyHash()),
	}, attrs...)
	if e.Owner != "" {
		all = append(all, slog.String("execution", e.Owner), slog.Int64("generation", e.Generation))
	}
	if e.Err != nil {
		all = append(all, slog.String("error", e.Err.Error()))
	}
	logger.LogAttrs(ctx, level, "idempotency "+event, all...) //nolint:sloglint // one of three messages, each a constant
}

func (l traceLogger) done(e *Event) {
	attrs := []slog.Attr{
		slog.String("disposition", string(e.Disposition)), slog.Duration("latency", e.Latency), slog.Duration("work", e.Work),
	}
	if e.Code != 0 {
		attrs = append(attrs, slog.Int("status", e.Code))
	}
	l.log(e, e.Disposition.level(), "request", attrs...)
}

func (d Disposition) level() slog.Level {
	switch d {
	case Executed:
		return slog.LevelDebug
	case StoreFailed, LeaseLost, Panicked, Misconfigured, OutcomeUnknown:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

func (l traceLogger) unknown(e *Event) { l.log(e, slog.LevelError, "unknown") }
func (l traceLogger) renewal(e *Event) { l.log(e, slog.LevelWarn, "renewal") }

// report is what is told of one request or message.
type traceEvent struct {
	trace *Trace
	event Event
	start time.Time
}

func (r *executor) traceEvent(event Event) traceEvent {
	return traceEvent{trace: r.trace, event: event, start: time.Now()}
}

// done tells what was done with it.
func (r *traceEvent) done(d Disposition, code int, err error) {
	r.event.Disposition, r.event.Code, r.event.Err = d, code, err
	r.event.Latency = time.Since(r.start)
	if r.trace != nil && r.trace.Done != nil {
		r.trace.Done(&r.event)
	}
}

// unclaimed is what was done for one who got no answer to his claim: the store has
// failed, unless he has left meanwhile, and err is about that.
func unclaimed(ctx context.Context, err error) Disposition {
	if errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return Canceled
	}
	return StoreFailed
}

// tell calls the hook for a record that has become Unknown, or that will if the
// store did not hear of it.
func (r *traceEvent) emit(status Status, err error) {
	if status != Unknown || errors.Is(err, ErrLeaseLost) {
		return
	}
	r.event.Err = err
	if r.trace != nil && r.trace.Unknown != nil {
		r.trace.Unknown(&r.event)
	}
}
