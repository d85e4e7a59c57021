package resilienthttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/netfail"
)

// LogTrace returns hooks that write structured records: "attempt" (debug, or
// warn when it failed), "retry" (info), "call" (debug, or error when it failed)
// and "breaker" (warn), each with an "event" attribute of that name. They hold
// method, host, scope, attempt number, status, error, verdict, waits and
// latencies, and a short hash of the idempotency key; never a path, a query
// string, a header value or a body. nil means slog.Default at the time of each
// record.
func LogTrace(logger *slog.Logger) *Trace {
	l := traceLogger{logger}
	return &Trace{AttemptDone: l.attempt, RetryWait: l.retry, CallDone: l.call, BreakerChange: l.breaker}
}

type traceLogger struct{ logger *slog.Logger }

func (l traceLogger) log(ctx context.Context, level slog.Level, event string, attrs ...slog.Attr) {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	if logger.Enabled(ctx, level) {
		//nolint:sloglint // one of four messages, each a constant
		logger.LogAttrs(ctx, level, "resilienthttp "+event, append([]slog.Attr{slog.String("event", event)}, attrs...)...)
	}
}

func (l traceLogger) attempt(a *Attempt) {
	level := slog.LevelDebug
	if a.Verdict.retryable() || a.Err != nil && !errors.Is(a.Err, errLost) { // to lose is no failure
		level = slog.LevelWarn
	}
	l.log(a.Request.Context(), level, "attempt", append(attemptAttrs(a), slog.Duration("latency", a.Latency))...)
}

func (l traceLogger) retry(a *Attempt) {
	l.log(a.Request.Context(), slog.LevelInfo, "retry", append(attemptAttrs(a), slog.Duration("wait", a.Wait))...)
}

func (l traceLogger) call(c *Call) {
	level := slog.LevelDebug
	attrs := []slog.Attr{
		slog.String("method", method(c.Request)), slog.String("host", c.Request.URL.Host), slog.String("scope", c.Scope),
		slog.Int("attempts", len(c.Attempts)), slog.Duration("latency", c.Latency),
	}
	if c.Response != nil {
		attrs = append(attrs, slog.Int("status", c.Response.StatusCode))
	}
	for _, a := range c.Attempts { // at most one was the last; a hedge may stand behind it
		if a.Stop != nil {
			level = slog.LevelError
			attrs = append(attrs, slog.String("stop", a.Stop.Error()))
		}
	}
	if c.Err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", netfail.Describe(c.Err)))
	}
	if !c.NotBefore.IsZero() {
		attrs = append(attrs, slog.Time("not_before", notEarlier(c.NotBefore)))
	}
	l.log(c.Request.Context(), level, "call", attrs...)
}

func (l traceLogger) breaker(change BreakerChange) {
	l.log(context.Background(), slog.LevelWarn, "breaker", slog.String("scope", change.Scope),
		slog.String("from", change.From.String()), slog.String("to", change.To.String()), slog.Time("at", change.At))
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
		attrs = append(attrs, slog.String("error", netfail.Describe(a.Err)))
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
