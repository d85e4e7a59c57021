package durable

import (
	"context"
	"log/slog"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// LogTrace returns hooks that write a structured record of each change:
//
//	row_accepted          enqueued (debug)
//	row_revised           enqueued again, mended (info)
//	row_sending           sent, or asked for (debug)
//	row_processed         done (info)
//	row_processed_error   an attempt that did not succeed, or the end of what may not be
//	                      sent any more (warn; error when it is dead)
//	row_redriven          brought back from the dead (info)
//	row_resolved          a person has said what became of it (info)
//	row_cancelled         withdrawn (info)
//	row_erased            payload, result and texts removed (info)
//	engine_error          what Trace.Failed is told (error)
//
// Each has "event" of that name, "batch" and "rowNumber", and a short hash of the key that
// is sent, "idempotencyKey": the value that the records of resilienthttp.LogTrace and of
// idempotency.LogTrace bear as "idempotency_key". After an attempt also "httpStatus", and
// "error", which is the class of its outcome or the reason of its death and never a text,
// with its "code". Nobody's payload, result, error text or key is in them. nil means slog.Default at the time of each record.
func LogTrace(logger *slog.Logger) *Trace {
	l := traceLogger{logger}
	return &Trace{Changed: l.changed, Failed: l.failed}
}

type traceLogger struct{ logger *slog.Logger }

func (l traceLogger) log(level slog.Level, event string, attrs ...slog.Attr) {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	if ctx := context.Background(); logger.Enabled(ctx, level) {
		//nolint:sloglint // one of a few messages, each a constant
		logger.LogAttrs(ctx, level, "durable "+event, append([]slog.Attr{slog.String("event", event)}, attrs...)...)
	}
}

func (l traceLogger) failed(err error) {
	l.log(slog.LevelError, "engine_error", slog.String("error", err.Error()))
}

func (l traceLogger) changed(c *driver.Change) {
	r := &c.Record
	level, event := told(c)
	attrs := []slog.Attr{
		slog.String("batch", r.Batch), slog.Int("rowNumber", r.Row), slog.String("idempotencyKey", idempotencykey.Hash(keyOf(c))),
		slog.String("gateway", r.Gateway), slog.String("state", r.State.String()), slog.Int("attempts", r.Attempts),
	}
	if c.FinishedAttempt != nil {
		attrs = append(attrs, slog.Int("httpStatus", c.FinishedAttempt.Status))
	}
	if event == eventError {
		attrs = append(attrs, slog.String("error", problem(c)), slog.String("code", r.Code))
	}
	l.log(level, event, attrs...)
}

// keyOf is the key that the change is about: after a refusal, that of the epoch before.
func keyOf(c *driver.Change) string {
	epoch := c.Record.Epoch
	if c.FinishedAttempt != nil && c.FinishedAttempt.Epoch != 0 {
		epoch = c.FinishedAttempt.Epoch
	}
	return IdempotencyKey(c.Record.ID, epoch)
}

const (
	eventAccepted  = "row_accepted"
	eventRevised   = "row_revised"
	eventSending   = "row_sending"
	eventProcessed = "row_processed"
	eventError     = "row_processed_error"
	eventRedriven  = "row_redriven"
	eventResolved  = "row_resolved"
	eventCancelled = "row_cancelled"
	eventErased    = "row_erased"
)

// told is how a change is told.
func told(c *driver.Change) (slog.Level, string) {
	switch {
	case c.Step == driver.StepInsert:
		return slog.LevelDebug, eventAccepted
	case c.Revised:
		return slog.LevelInfo, eventRevised
	case c.Erased:
		return slog.LevelInfo, eventErased
	case c.StartedAttempt != nil && c.StartedAttempt.Kind == KindResolve:
		return slog.LevelInfo, eventResolved
	case c.StartedAttempt != nil:
		return slog.LevelDebug, eventSending
	case c.Resolved != nil:
		return slog.LevelInfo, eventRedriven
	case c.Record.State == StateCancelled:
		return slog.LevelInfo, eventCancelled
	case c.Record.State == StateDone:
		return slog.LevelInfo, eventProcessed
	case c.Record.State == StateDead:
		return slog.LevelError, eventError
	default:
		return slog.LevelWarn, eventError
	}
}

// problem names what went wrong, in words of this package's or a Policy's.
func problem(c *driver.Change) string {
	if c.DeadLettered != nil {
		return c.DeadLettered.Reason
	}
	return c.Record.Class.String()
}
