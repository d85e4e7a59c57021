package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Disposition is what was done with a request or message. Its text is the value in
// metrics and logs.
type Disposition string

// The dispositions.
const (
	// Executed means that the operation was executed and its result stored.
	Executed Disposition = "executed"

	// Released means that the execution had no effect, or may be repeated. The
	// operation may be executed again.
	Released Disposition = "released"

	// Replayed means that the result of the first execution was returned.
	Replayed Disposition = "replayed"

	// Unreplayable means that the operation took effect before, and that its result is
	// not stored.
	Unreplayable Disposition = "unreplayable"

	// InProgress means that another execution is in progress.
	InProgress Disposition = "in_progress"

	// Mismatched means that the key was used for another request.
	Mismatched Disposition = "mismatched"

	// OutcomeUnknown means that the operation may or may not have taken effect.
	OutcomeUnknown Disposition = "unknown"

	// LeaseLost means that the operation was executed, but another execution took
	// over, and its result counts.
	LeaseLost Disposition = "lease_lost"

	// Panicked means that the work panicked.
	Panicked Disposition = "panicked"

	// StoreFailed means that the store, or Handler.LoadResult, failed or was busy, or that the work's transaction
	// cannot be committed.
	StoreFailed Disposition = "store_failed"

	// Canceled means that the client left, or that the context was canceled, before
	// the store answered the claim. Nothing was executed. Many of these, with a long
	// Latency, mean that the store is slow.
	Canceled Disposition = "canceled"

	// Invalid means that the request has no valid key, no scope or no complete body.
	// Nothing was executed.
	Invalid Disposition = "invalid"

	// Misconfigured means that the Handler or Executor is invalid. Nothing was
	// executed.
	Misconfigured Disposition = "misconfigured"
)

// Event describes one request or message, one record or one lease.
type Event struct {
	// Lease is the operation and, if there was one, its execution. The key may be a
	// secret: log its KeyHash.
	Lease

	// Disposition is what was done.
	Disposition Disposition

	// Code is the HTTP status of the response. It is 0 outside of HTTP.
	Code int

	// Latency is the total duration.
	Latency time.Duration

	work time.Duration // the part of the handler or work

	// Err is the error, if there is one.
	Err error

	// Request is the request. It is nil outside of HTTP.
	Request *http.Request
}

// Trace is a set of hooks. Each may be nil. They are called synchronously and without
// locks, and must be safe for concurrent use. They must not keep the Event.
type Trace struct {
	// Done is called once for each request with a key, each request that was rejected
	// for its key, and each Do, just before the response is sent.
	Done func(*Event)

	// Unknown is called when a record becomes Unknown. It may be called twice for one
	// record. Notify a reconciler, which calls Store.Complete or Store.Release.
	Unknown func(*Event)

	// RenewalFailed is called when a lease could not be renewed, in the goroutine of
	// the heartbeat. The renewal is repeated, unless Err is ErrLeaseLost: then the
	// work's context is canceled.
	RenewalFailed func(*Event)
}

func (x *executor) traceRenewal(lease Lease, err error) {
	if x.trace != nil && x.trace.RenewalFailed != nil {
		x.trace.RenewalFailed(&Event{Lease: lease, Err: err})
	}
}

// traceEvent collects the Event of one request or message.
type traceEvent struct {
	trace *Trace
	event Event
	start time.Time
}

func (x *executor) traceEvent(event Event) traceEvent {
	return traceEvent{trace: x.trace, event: event, start: time.Now()}
}

// done calls Trace.Done.
func (t *traceEvent) done(d Disposition, code int, err error) {
	t.event.Disposition, t.event.Code, t.event.Err = d, code, err
	t.event.Latency = time.Since(t.start)
	if t.trace != nil && t.trace.Done != nil {
		t.trace.Done(&t.event)
	}
}

// emit calls Trace.Unknown if the record is Unknown, or may become so because the
// store did not answer.
func (t *traceEvent) emit(status Status, err error) {
	if status != Unknown || errors.Is(err, ErrLeaseLost) {
		return
	}
	t.event.Err = err
	if t.trace != nil && t.trace.Unknown != nil {
		t.trace.Unknown(&t.event)
	}
}

// unclaimed is the disposition of a claim that failed with err.
func unclaimed(ctx context.Context, err error) Disposition {
	if errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return Canceled
	}
	return StoreFailed
}

// LogTrace returns hooks that write structured log records with these events:
//
//	request_handled      debug; info for replays and rejections; error for failures
//	outcome_unknown      error
//	lease_renewal_failed warn
//
// The attributes never contain a key, a header or a body, but idempotency_key_hash.
// If logger is nil, slog.Default is used at the time of each record.
func LogTrace(logger *slog.Logger) *Trace {
	l := traceLogger{logger}
	return &Trace{Done: l.done, Unknown: l.unknown, RenewalFailed: l.renewalFailed}
}

type traceLogger struct{ logger *slog.Logger }

func (l traceLogger) log(e *Event, level slog.Level, message, event string, attrs ...slog.Attr) {
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
		slog.String("idempotency_key_hash", e.KeyHash()),
	}, attrs...)
	if e.Owner != "" {
		all = append(all, slog.String("execution", e.Owner), slog.Int64("generation", e.Generation))
	}
	if e.Err != nil {
		all = append(all, slog.String("error", e.Err.Error()))
	}
	logger.LogAttrs(ctx, level, message, all...) //nolint:sloglint // one of the three constants below
}

func (l traceLogger) done(e *Event) {
	attrs := []slog.Attr{
		slog.String("disposition", string(e.Disposition)), slog.Duration("duration", e.Latency), slog.Duration("work_duration", e.work),
	}
	if e.Code != 0 {
		attrs = append(attrs, slog.Int("http.response.status_code", e.Code))
	}
	l.log(e, e.Disposition.level(), "request handled", "request_handled", attrs...)
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

func (l traceLogger) unknown(e *Event) {
	l.log(e, slog.LevelError, "outcome unknown", "outcome_unknown")
}

func (l traceLogger) renewalFailed(e *Event) {
	l.log(e, slog.LevelWarn, "lease renewal failed", "lease_renewal_failed")
}
