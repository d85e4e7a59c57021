package resilienthttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// LogTrace returns hooks that write structured records: "attempt" (debug, or
// warn when it failed), "queued" (info) when a wait for a turn begins, "retry" (info),
// "call" (debug; error when it failed or a gate refused it; info when it stood waiting
// for a second or more) and "breaker" (warn), each with an "event" attribute of that
// name. They hold method, host, scope, attempt number, status, error,
// verdict, waits and latencies, and a short hash of the idempotency key; never a path, a
// query string, a header value or a body. That of a call says where its latency went:
// queued at the gates, sent and not answered yet, and waited before retries.
//
// In an outage it repeats itself within limits: of the records above debug that say the
// same, ten are written in ten seconds. How many were left out is said by the next that
// is written, as "left_out"; or by one more, "left out", once something else is to be
// written after those ten seconds.
//
// nil means slog.Default at the time of each record.
func LogTrace(logger *slog.Logger) *Trace {
	l := &traceLogger{logger: logger}
	return &Trace{
		AttemptDone: l.attempt, QueueWait: l.queued, RetryWait: l.retry, CallDone: l.call, BreakerChange: l.breaker,
	}
}

type traceLogger struct {
	logger   *slog.Logger
	repeated repetitions
}

// log writes a record, unless the same was written often enough. What tells whether it is
// the same are the event, the scope or host, and what came of it.
func (l *traceLogger) log(ctx context.Context, level slog.Level, same repetition, attrs []slog.Attr) {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	if level > slog.LevelDebug {
		left, write, silent := l.repeated.admit(same, time.Now())
		for _, s := range silent {
			logger.LogAttrs(ctx, slog.LevelWarn, "resilienthttp left out", slog.String("event", "left out"),
				slog.String("of", s.event), slog.String("scope", s.scope), slog.String("what", s.what), slog.Int("left_out", s.leftOut))
		}
		if !write {
			return
		}
		if left > 0 {
			attrs = append(attrs, slog.Int("left_out", left))
		}
	}
	//nolint:sloglint // one of a few messages, each a constant
	logger.LogAttrs(ctx, level, "resilienthttp "+same.event, append([]slog.Attr{slog.String("event", same.event)}, attrs...)...)
}

func (l *traceLogger) attempt(a *Attempt) {
	level := slog.LevelDebug
	if a.Verdict.retryable() || a.Err != nil && !errors.Is(a.Err, errLost) { // to lose is no failure
		level = slog.LevelWarn
	}
	attrs := append(attemptAttrs(a), slog.Duration("latency", a.Latency))
	if a.QueueWait >= time.Millisecond {
		attrs = append(attrs, slog.Duration("queued", a.QueueWait))
	}
	l.log(a.Request.Context(), level, attemptRepetition("attempt", a), attrs)
}

func (l *traceLogger) queued(a *Attempt) {
	same := repetition{event: "queued", scope: a.Request.URL.Host}
	l.log(a.Request.Context(), slog.LevelInfo, same, []slog.Attr{
		slog.String("method", method(a.Request)), slog.String("host", a.Request.URL.Host), slog.Int("attempt", a.Number),
		slog.Duration("likely_wait", a.RetryWait),
	})
}

func (l *traceLogger) retry(a *Attempt) {
	l.log(a.Request.Context(), slog.LevelInfo, attemptRepetition("retry", a), append(attemptAttrs(a), slog.Duration("wait", a.RetryWait)))
}

// slowWait is when a call that succeeded has stood waiting for so long that somebody may
// ask why.
const slowWait = time.Second

func (l *traceLogger) call(c *Call) {
	level := slog.LevelDebug
	queued, sent, waited := c.Timings()
	if queued+waited >= slowWait {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{
		slog.String("method", method(c.Request)), slog.String("host", c.Request.URL.Host), slog.String("scope", c.Scope),
		slog.Int("attempts", len(c.Attempts)), slog.Duration("latency", c.Latency),
	}
	if queued+waited >= time.Millisecond {
		attrs = append(attrs, slog.Duration("queued", queued), slog.Duration("sent", sent), slog.Duration("waited", waited))
	}
	same := repetition{event: "call", scope: c.Scope}
	if c.Response != nil {
		same.what = strconv.Itoa(c.Response.StatusCode)
		attrs = append(attrs, slog.Int("status", c.Response.StatusCode))
	}
	for _, a := range c.Attempts { // at most one was the last; a hedge may stand behind it
		if a.StopReason != nil {
			level = slog.LevelError
			same.what += " " + a.StopReason.Error()
			attrs = append(attrs, slog.String("stop", a.StopReason.Error()))
		}
	}
	if c.Err != nil {
		level = slog.LevelError
		same.what += " " + reasonOf(c)
		attrs = append(attrs, slog.String("error", neterr.SafeText(c.Err)))
	}
	if !c.NotBefore.IsZero() {
		attrs = append(attrs, slog.Time("not_before", notEarlier(c.NotBefore)))
	}
	l.log(c.Request.Context(), level, same, attrs)
}

func (l *traceLogger) breaker(change BreakerChange) {
	same := repetition{event: "breaker", scope: change.Scope, what: change.To.String()}
	l.log(context.Background(), slog.LevelWarn, same, []slog.Attr{
		slog.String("scope", change.Scope), slog.String("from", change.From.String()), slog.String("to", change.To.String()), slog.Time("at", change.At),
	})
}

// reasonOf is why the call ended without a response; "" if that is an attempt's error.
func reasonOf(c *Call) string {
	if failed, ok := errors.AsType[*Error](c.Err); ok && failed.Reason != nil {
		return failed.Reason.Error()
	}
	return ""
}

// attemptRepetition is what an attempt's records say: those of errors of one kind are the
// same, though their words may differ.
func attemptRepetition(event string, a *Attempt) repetition {
	what := a.Verdict.String()
	if a.Response != nil {
		what = strconv.Itoa(a.Response.StatusCode)
	}
	return repetition{event: event, scope: a.Request.URL.Host, what: what}
}

func attemptAttrs(a *Attempt) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", method(a.Request)), slog.String("host", a.Request.URL.Host),
		slog.Int("attempt", a.Number), slog.String("verdict", a.Verdict.String()),
	}
	if a.Hedge {
		attrs = append(attrs, slog.Bool("hedge", true))
	}
	if a.Response != nil {
		attrs = append(attrs, slog.Int("status", a.Response.StatusCode))
	}
	if a.Err != nil {
		attrs = append(attrs, slog.String("error", neterr.SafeText(a.Err)))
	}
	if c, ok := a.Request.Context().Value(callKey{}).(*call); ok && c.key != "" {
		attrs = append(attrs, slog.String("idempotency_key", idempotencykey.Hash(c.key)))
	}
	return attrs
}

func method(req *http.Request) string {
	if req.Method == "" {
		return http.MethodGet
	}
	return req.Method
}
