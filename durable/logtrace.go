package durable

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// LogTrace returns hooks that log a record of each change, with these events:
//
//	intent_enqueued    DEBUG  a new intent
//	intent_revised     INFO   enqueued again with another payload, after a decline
//	send_started       DEBUG  a send or a status query begins
//	intent_done        INFO   the provider did the work
//	send_failed        WARN   an attempt without success
//	intent_dead        ERROR  a dead letter
//	intent_redriven    INFO   sent again by a person
//	intent_resolved    INFO   decided by a person
//	intent_canceled   INFO
//	intent_erased      INFO
//	gateway_held       WARN   see Engine.Holds
//	gateway_released   INFO
//	engine_error       ERROR  see Trace.Failed
//	clock_moved        ERROR  see ErrClockMoved
//
// An intent with a Row, as those of an Import, has the events row_accepted, row_revised,
// row_sending, row_processed, row_processed_error (WARN, or ERROR for a dead letter),
// row_redriven, row_resolved, row_canceled and row_erased instead.
//
// The keys are event, batch and row_number (of an import), idempotency_key_hash (as in the records
// of resilienthttp.LogTrace), gateway, state and attempts. Of a failure they are also
// http.response.status_code, error.type (the status, or by resilienthttp.ErrorType), class, code,
// reason (of a dead letter) and decline_counts_from (see Engine.DeclineCountsFrom). Of a hold they
// are gateway, scope, holder (person, provider or engine), until, error.type and next_probe. Keys without a
// value are left out. Payloads, results, error texts and keys are never logged. A nil logger is
// slog.Default at the time of each record.
func LogTrace(logger *slog.Logger) *Trace {
	l := traceLogger{logger}
	return &Trace{Changed: l.changed, Held: l.held, Failed: l.failed}
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
	event := "engine_error"
	if errors.Is(err, ErrClockMoved) {
		event = "clock_moved"
	}
	l.log(slog.LevelError, event, slog.String("error", err.Error()))
}

func (l traceLogger) held(h *Hold, held bool) {
	level, event := slog.LevelInfo, "gateway_released"
	attrs := known(nil, slog.String("gateway", h.Gateway), slog.String("scope", h.Scope), slog.String("holder", h.Holder()))
	if held {
		level, event = slog.LevelWarn, "gateway_held"
		attrs = known(attrs, slog.String("error.type", h.ErrorType), slog.Time("until", h.Until), slog.Time("next_probe", h.ProbeAt))
	}
	l.log(level, event, attrs...)
}

func (l traceLogger) changed(c *Change) {
	r := &c.Record
	level, event := eventOf(c)
	attrs := known(nil,
		slog.String("batch", r.Batch), slog.Int("row_number", r.Row), slog.String("idempotency_key_hash", idempotencykey.Hash(keyOf(c))),
		slog.String("gateway", r.Gateway), slog.String("state", r.State.String()), slog.Int("attempts", r.Attempts))
	if done := c.FinishedAttempt; done != nil {
		attrs = known(attrs, slog.Int("http.response.status_code", done.Status))
		if level >= slog.LevelWarn {
			attrs = append(attrs, slog.String("error.type", errorType(done.Status, c.Err)), slog.String("class", done.Class.String()))
		}
	}
	if level >= slog.LevelWarn {
		attrs = known(attrs, slog.String("code", r.Code), slog.String("reason", r.Reason), slog.Time("decline_counts_from", c.DeclineCountsFrom))
	}
	l.log(level, event, attrs...)
}

// known appends the attributes that have a value.
func known(to []slog.Attr, attrs ...slog.Attr) []slog.Attr {
	for _, a := range attrs {
		switch v := a.Value.Any().(type) {
		case string:
			if v == "" {
				continue
			}
		case int64:
			if v == 0 {
				continue
			}
		case time.Time:
			if v.IsZero() {
				continue
			}
		}
		to = append(to, a)
	}
	return to
}

// keyOf returns the key of the attempt that ended, and else of the record: a decline ends a key.
func keyOf(c *Change) string {
	epoch := c.Record.Epoch
	if c.FinishedAttempt != nil && c.FinishedAttempt.Epoch != 0 {
		epoch = c.FinishedAttempt.Epoch
	}
	return IdempotencyKey(c.Record.ID, epoch)
}

// eventOf returns the event of a change: of an imported row, or of another intent.
func eventOf(c *Change) (slog.Level, string) {
	level, intent, row := slog.LevelWarn, "send_failed", "row_processed_error"
	switch {
	case c.Step == StepInsert:
		level, intent, row = slog.LevelDebug, "intent_enqueued", "row_accepted"
	case c.Revised:
		level, intent, row = slog.LevelInfo, "intent_revised", "row_revised"
	case c.Erased:
		level, intent, row = slog.LevelInfo, "intent_erased", "row_erased"
	case c.StartedAttempt != nil && c.StartedAttempt.Kind == KindResolve:
		level, intent, row = slog.LevelInfo, "intent_resolved", "row_resolved"
	case c.StartedAttempt != nil:
		level, intent, row = slog.LevelDebug, "send_started", "row_sending"
	case c.Resolved != nil:
		level, intent, row = slog.LevelInfo, "intent_redriven", "row_redriven"
	case c.Record.State == StateCanceled:
		level, intent, row = slog.LevelInfo, "intent_canceled", "row_canceled"
	case c.Record.State == StateDone:
		level, intent, row = slog.LevelInfo, "intent_done", "row_processed"
	case c.Record.State == StateDead:
		level, intent = slog.LevelError, "intent_dead"
	}
	if c.Record.Row != 0 {
		return level, row
	}
	return level, intent
}

// Trace has hooks that an Engine calls synchronously, outside of locks, from many goroutines.
// nil hooks are not called. A Change has payload, result and error text: do not log them.
type Trace struct {
	// Changed is called for each change of an intent that this Engine made.
	Changed func(*Change)

	// Held is called when the Engine begins to hold a gateway, by itself, for a person or for its
	// provider, and when that ends: then held is false. A hold with an Until ends without a call.
	Held func(hold *Hold, held bool)

	// Failed is called with errors of the store, with panics of a Policy or a Gateway, and with
	// ErrClockMoved. The Engine goes on.
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
