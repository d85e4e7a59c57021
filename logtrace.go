package resilienthttp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// LogTrace returns hooks that write structured records to logger. nil means slog.Default at the
// time of each record. Failed attempts and changes of a circuit are warnings, failed calls are
// errors (warnings if another layer owns their retries), and waits are written at the level info. If the logger writes the level debug, the record
// of a failed call has the transcript of Call.Explain. A record has no path, query, header value or
// body, and only a short hash of the idempotency key. In a second, at most 100 failed calls are written, and all
// that are in doubt, and at most ten records of each other event. docs/telemetry.md lists the events and keys.
func LogTrace(logger *slog.Logger) *Trace {
	l := &traceLogger{logger: logger, events: map[string]eventCount{}}
	return &Trace{
		AttemptStart: l.pace, AttemptDone: l.attempt, QueueWait: l.queued, ConnectionLeft: l.connectionLeft, RetryWait: l.retry,
		CallDone: l.call, BreakerChange: l.breaker,
	}
}

type traceLogger struct {
	logger *slog.Logger

	mu     sync.Mutex
	events map[string]eventCount // a few
}

func (l *traceLogger) to() *slog.Logger { return cmp.Or(l.logger, slog.Default()) }

// when adds attributes that only some records have.
func when(present bool, attrs []slog.Attr, more ...slog.Attr) []slog.Attr {
	if present {
		attrs = append(attrs, more...)
	}
	return attrs
}

// log writes a record, unless too many of its event were written. A rate of 0 means that each is written.
func (l *traceLogger) log(ctx context.Context, level slog.Level, event string, rate int, attrs []slog.Attr) {
	logger := l.to()
	if !logger.Enabled(ctx, level) {
		return
	}
	if level > slog.LevelDebug && rate > 0 {
		suppressed, ok := l.admit(event, rate, time.Now())
		if !ok {
			return
		}
		attrs = when(suppressed > 0, attrs, slog.Int("suppressed", suppressed))
	}
	//nolint:sloglint // one of a few messages, each a constant
	logger.LogAttrs(ctx, level, strings.ReplaceAll(event, "_", " "), append([]slog.Attr{slog.String("event", event)}, attrs...)...)
}

func (l *traceLogger) attempt(a *Attempt) {
	level, event := slog.LevelDebug, "attempt_done"
	if a.Verdict.retryable() || a.Err != nil && !errors.Is(a.Err, neterr.ErrSuperseded) {
		level, event = slog.LevelWarn, "attempt_failed"
	}
	attrs := append(attemptAttrs(a), slog.Duration("duration", a.Latency))
	attrs = when(a.QueueWait >= precision, attrs, slog.Duration("queue_wait", a.QueueWait))
	l.log(a.Request.Context(), level, event, otherRate, attrs)
	l.pace(a)
}

func (l *traceLogger) queued(a *Attempt) {
	attrs := append(a.attrs(), slog.Duration("estimated_wait", a.RetryWait))
	l.log(a.Request.Context(), slog.LevelInfo, "attempt_queued", otherRate, append(attrs, quotaAttrs(a.quota)...))
}

// pace logs that the scope of an attempt is slow, and that it is no longer. An attempt that begins shows only the age of
// those in flight, and only one that succeeds tells that the server is quick again.
func (l *traceLogger) pace(a *Attempt) {
	if a.of == nil {
		return
	}
	r, at := a.of.call.record, time.Since(a.of.call.origin)
	said := r.said.Load()
	wasSlow := said != nil && said.slowSince.Load() != 0
	switch {
	case a.Latency == 0 && r.attemptsAreOld(at), a.Latency >= latency.SlowMore:
	case wasSlow && a.Verdict == VerdictSuccess:
	default:
		return
	}
	s := r.latency(at)
	attrs := append(requestAttrs(a.Request),
		slog.String("scope", r.name), slog.Duration("usual_latency", s.UsualP50), slog.Duration("latency", s.P50), slog.Int("samples", s.Samples))
	said = made(&r.said)
	if s.Slow && due(&said.slowAt, at) {
		said.slowSince.CompareAndSwap(0, int64(at))
		l.log(a.Request.Context(), slog.LevelWarn, "scope_slow", 0, append(attrs,
			slog.Int("attempts_in_flight", r.inFlight.Count()), slog.Duration("in_flight_age", s.InFlightAge)))
	}
	if s.Slow || !wasSlow || s.Samples < latency.FewestSamples {
		return
	}
	if since := time.Duration(said.slowSince.Swap(0)); since != 0 {
		l.log(a.Request.Context(), slog.LevelWarn, "scope_recovered", 0, append(attrs, slog.Duration("duration", at-since)))
	}
}

func quotaAttrs(q *QuotaStatus) []slog.Attr {
	if q == nil {
		return nil
	}
	until := later(q.Reset, q.BlockedUntil)
	attrs := []slog.Attr{slog.Int64("quota_limit", q.Limit), slog.Int64("quota_remaining", q.Remaining)}
	attrs = when(q.UsedByOthers > 0, attrs, slog.Int64("quota_used_by_others", q.UsedByOthers))
	return when(!until.IsZero(), attrs, slog.Time("quota_until", until.UTC()))
}

func (l *traceLogger) connectionLeft(a *Attempt) {
	l.log(a.Request.Context(), slog.LevelWarn, "connection_left", otherRate, append(a.attrs(), slog.Duration("duration", a.Latency)))
}

func (l *traceLogger) retry(a *Attempt) {
	attrs := append(attemptAttrs(a), slog.Duration("retry_wait", a.RetryWait))
	l.log(a.Request.Context(), slog.LevelInfo, "retry_scheduled", otherRate, attrs)
}

func (l *traceLogger) call(c *Call) {
	level, event, rate := slog.LevelDebug, "call_done", otherRate
	queueWait, inFlight, retryWait := c.Timings()
	if queueWait+retryWait >= latency.SlowMore { // slow, although its attempts were not
		level = slog.LevelInfo
	}
	attrs := append(requestAttrs(c.Request), slog.String("scope", c.Scope), slog.Int("attempts", len(c.Attempts)), slog.Duration("duration", c.Latency))
	attrs = when(queueWait+retryWait >= precision, attrs,
		slog.Duration("queue_wait", queueWait), slog.Duration("in_flight", inFlight), slog.Duration("retry_wait", retryWait))
	attrs, failed := c.endAttrs(attrs)
	if c.Err != nil {
		attrs = append(attrs, errorAttrs(c.Err)...)
	}
	if err, ok := errors.AsType[*Error](c.Err); ok {
		attrs = append(attrs, quotaAttrs(err.quota)...)
	}
	attrs = when(!c.NotBefore.IsZero(), attrs, slog.Time("not_before", notEarlier(c.NotBefore)))
	ctx, doubt := c.Request.Context(), InDoubt(c.Response, c.Err)
	if failed || doubt {
		level, event, rate = slog.LevelError, "call_failed", failedCallRate
		if c.of != nil && c.of.owner == ownerOther {
			level = slog.LevelWarn // the other layer decides whether its own call fails
		}
		attrs = append(attrs, keyAttrs(c.of)...)
		if doubt {
			rate = 0 // a person has to look at it
			attrs = append(attrs, slog.Bool("in_doubt", true))
		}
		if l.to().Enabled(ctx, slog.LevelDebug) {
			attrs = append(attrs, slog.String("transcript", c.Explain()))
		}
	}
	l.log(ctx, level, event, rate, attrs)
	if event == "call_done" && c.Response != nil {
		l.clientErrors(c)
	}
}

// endAttrs appends the response and the reason with which the call ended. It reports whether the call has failed.
func (c *Call) endAttrs(attrs []slog.Attr) (appended []slog.Attr, failed bool) {
	failed = c.Err != nil
	for i := range c.Attempts { // at most one has a StopReason; a hedge may follow it
		a := &c.Attempts[i]
		if a.Response != nil && a.Response == c.Response {
			attrs = append(attrs, a.statusAttrs()...)
			refused := a.status() >= http.StatusInternalServerError && a.Verdict != VerdictSuccess // permanent, such as 501
			failed = failed || refused
		}
		if a.StopReason != nil {
			failed = true
			attrs = append(attrs, slog.String("stop_reason", neterr.Name(a.StopReason)))
		}
	}
	return attrs, failed
}

func keyAttrs(c *call) []slog.Attr {
	if c == nil || c.key.value == "" {
		return nil
	}
	return []slog.Attr{slog.String("idempotency_key_hash", idempotencykey.Hash(c.key.value))}
}

// manyCalls is the number of calls of which one 4xx other than 401 and 403 is usual. More are logged.
const manyCalls = 20

// clientErrors logs a response 4xx that is not retried: each 401 and 403, and others if the scope
// has many.
func (l *traceLogger) clientErrors(done *Call) {
	c := done.of
	if c == nil || c.last.outcome.Count != outcome.CountClientError && c.last.outcome.Count != outcome.CountThrottled {
		return
	}
	at, code := time.Since(c.origin), done.Response.StatusCode
	responses := c.record.ended.read(at, window.Buckets, c.origin)
	many := responses.Calls >= manyCalls && responses.ClientErrors*manyCalls > responses.Calls
	if code != http.StatusUnauthorized && code != http.StatusForbidden && !many {
		return
	}
	if !due(&made(&c.record.said).clientsAt, at) {
		return
	}
	attrs := append(requestAttrs(done.Request), slog.String("scope", done.Scope))
	attrs = append(attrs, c.last.report.statusAttrs()...)
	l.log(done.Request.Context(), slog.LevelWarn, "client_errors", 0,
		append(attrs, slog.Int("client_errors", responses.ClientErrors), slog.Int("calls", responses.Calls)))
}

// breaker logs the opening and the closing of a circuit, not each probe.
func (l *traceLogger) breaker(change BreakerChange) {
	if change.From != StateClosed && change.To != StateClosed {
		return
	}
	attrs := when(change.Priority != PriorityDefault, []slog.Attr{slog.String("scope", change.Scope)}, slog.String("priority", change.Priority.String()))
	attrs = append(attrs, slog.String("from", change.From.String()), slog.String("to", change.To.String()), slog.Time("at", change.At),
		slog.Int("openings", change.Openings), slog.Int("attempts", change.Attempts), slog.Int("failures", change.Failures))
	attrs = when(change.To == StateClosed, attrs, slog.Duration("duration", change.At.Sub(change.OpenedAt)), slog.Int("failed_probes", change.FailedProbes))
	l.log(context.Background(), slog.LevelWarn, "breaker_changed", 0, attrs)
}

func (a *Attempt) attrs() []slog.Attr {
	scope := a.Request.URL.Host
	if a.of != nil {
		scope = a.of.visit.Record.name
	}
	return append(requestAttrs(a.Request), slog.String("scope", scope), slog.Int("attempt", a.Number))
}

func requestAttrs(req *http.Request) []slog.Attr {
	port, err := strconv.Atoi(req.URL.Port())
	attrs := []slog.Attr{slog.String("http.request.method", cmp.Or(req.Method, http.MethodGet)), slog.String("server.address", req.URL.Hostname())}
	return when(err == nil, attrs, slog.Int("server.port", port))
}

func (a *Attempt) statusAttrs() []slog.Attr {
	kind := a.errorType()
	return when(kind != "", []slog.Attr{slog.Int("http.response.status_code", a.Response.StatusCode)}, slog.String("error.type", kind))
}

func attemptAttrs(a *Attempt) []slog.Attr {
	attrs := when(a.Hedge, append(a.attrs(), slog.String("verdict", a.Verdict.String())), slog.Bool("hedge", true))
	if a.Response != nil {
		attrs = append(attrs, a.statusAttrs()...)
	}
	if a.Err != nil {
		attrs = append(attrs, errorAttrs(a.Err)...)
	}
	if a.of != nil {
		attrs = append(attrs, keyAttrs(a.of.call)...)
	}
	attrs = when(len(a.Policies()) > 0, attrs, slog.String("quota_policies", strings.Join(a.Policies(), ", ")))
	return append(attrs, quotaAttrs(a.quota)...)
}

// errorAttrs are the type of an error, and its text without paths, queries and values. A canceled
// concurrent attempt has no error.
func errorAttrs(err error) []slog.Attr {
	if errors.Is(err, neterr.ErrSuperseded) {
		return []slog.Attr{slog.Bool("superseded", true)}
	}
	return []slog.Attr{slog.String("error.type", ErrorType(err)), slog.String("error", neterr.SafeText(err))}
}

// The most records of an event in a second, those of failed calls and of all others.
const (
	failedCallRate = 100
	otherRate      = 10
)

// eventCount counts the records of an event.
type eventCount struct {
	second              time.Time // its start
	written, suppressed int       // in this second, and since a record was written
}

// admit reports whether a record may be written, and how many of its event were suppressed before it.
func (l *traceLogger) admit(event string, rate int, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.events[event]
	defer func() { l.events[event] = c }()
	if now.Sub(c.second) >= time.Second {
		c.second, c.written = now, 0
	}
	if c.written >= rate {
		c.suppressed++
		return 0, false
	}
	c.written++
	suppressed, c.suppressed = c.suppressed, 0
	return suppressed, true
}

// scopeLog is what the log has said of a scope. Times are since the origin.
type scopeLog struct {
	slowSince         atomic.Int64 // 0: the scope is not slow
	slowAt, clientsAt atomic.Int64 // of the records; 0: there was none
}

// due reports whether a record may be written that is written once a minute.
func due(last *atomic.Int64, at time.Duration) bool {
	before := last.Load()
	recent := before != 0 && at-time.Duration(before) < time.Minute
	return !recent && last.CompareAndSwap(before, int64(max(at, 1)))
}
