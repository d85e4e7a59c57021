package resilienthttp

import (
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
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// LogTrace returns hooks that write structured records to logger. nil means slog.Default at the
// time of each record. Failed attempts and changes of a circuit are warnings, failed calls are
// errors, and waits are written at the level info. If the logger writes the level debug, the record
// of a failed call has the transcript of Call.Explain. A record has no path, query, header value or
// body, and only a short hash of the idempotency key. At most ten equal records are written in
// ten seconds, and ten of any kind in a second. docs/telemetry.md lists the events and keys.
func LogTrace(logger *slog.Logger) *Trace {
	l := &traceLogger{logger: logger}
	return &Trace{
		AttemptStart: l.slow, AttemptDone: l.attempt, QueueWait: l.queued, ConnectionLeft: l.connectionLeft, RetryWait: l.retry,
		CallDone: l.call, BreakerChange: l.breaker,
	}
}

type traceLogger struct {
	logger *slog.Logger
	limit  logLimiter
}

func (l *traceLogger) to() *slog.Logger {
	if l.logger == nil {
		return slog.Default()
	}
	return l.logger
}

// log writes a record, unless too many equal ones were written.
func (l *traceLogger) log(ctx context.Context, level slog.Level, key logKey, attrs []slog.Attr) {
	logger := l.to()
	enabled := logger.Enabled(ctx, level)
	if level == slog.LevelDebug && l.limit.pending.Load() && logger.Enabled(ctx, slog.LevelWarn) {
		logSuppressed(ctx, logger, slog.LevelWarn, l.limit.flush(time.Now()))
	}
	if !enabled {
		return
	}
	if level > slog.LevelDebug {
		suppressed, write, others := l.limit.admit(key, level, time.Now())
		logSuppressed(ctx, logger, max(level, slog.LevelWarn), others)
		if !write {
			return
		}
		if suppressed > 0 {
			attrs = append(attrs, slog.Int("suppressed", suppressed))
		}
	}
	//nolint:sloglint // one of a few messages, each a constant
	logger.LogAttrs(ctx, level, strings.ReplaceAll(key.event, "_", " "), append([]slog.Attr{slog.String("event", key.event)}, attrs...)...)
}

// logSuppressed reports the suppressed records.
func logSuppressed(ctx context.Context, logger *slog.Logger, level slog.Level, others []suppressedRecords) {
	for _, s := range others {
		logger.LogAttrs(ctx, level, "records suppressed", slog.String("event", "records_suppressed"),
			slog.String("suppressed_event", s.event), slog.String("scope", s.scope), slog.String("suppressed_kind", s.kind),
			slog.Int("suppressed", s.suppressed))
	}
}

func (l *traceLogger) attempt(a *Attempt) {
	level, event := slog.LevelDebug, "attempt_done"
	if a.Verdict.retryable() || a.Err != nil && !errors.Is(a.Err, neterr.ErrSuperseded) {
		level, event = slog.LevelWarn, "attempt_failed"
	}
	attrs := append(attemptAttrs(a), slog.Duration("duration", a.Latency))
	if a.QueueWait >= time.Millisecond {
		attrs = append(attrs, slog.Duration("queue_wait", a.QueueWait))
	}
	l.log(a.Request.Context(), level, attemptKeyOf(event, a), attrs)
	if a.Latency >= latency.SlowMore {
		l.slow(a)
	}
}

func (l *traceLogger) queued(a *Attempt) {
	attrs := append(a.attrs(), slog.Duration("estimated_wait", a.RetryWait))
	l.log(a.Request.Context(), slog.LevelInfo, logKey{event: "attempt_queued", scope: a.scope()}, append(attrs, quotaAttrs(a.quota)...))
}

// slow logs that the scope of an attempt is slow. An attempt that begins shows it only by the age of
// those in flight.
func (l *traceLogger) slow(a *Attempt) {
	if a.of == nil {
		return
	}
	r, at := a.of.call.record, time.Since(a.of.call.origin)
	if a.Latency == 0 && !r.attemptsAreOld(at) {
		return
	}
	if s := r.latency(at); s.Slow {
		l.log(a.Request.Context(), slog.LevelWarn, logKey{event: slowEvent, scope: r.name}, append(requestAttrs(a.Request),
			slog.String("scope", r.name), slog.Duration("usual_latency", s.UsualP50), slog.Duration("latency", s.P50), slog.Int("samples", s.Samples),
			slog.Int("attempts_in_flight", r.inFlight.Count()), slog.Duration("in_flight_age", s.InFlightAge)))
	}
}

// quotaAttrs describe an exhausted quota, or none for nil.
func quotaAttrs(q *QuotaStatus) []slog.Attr {
	if q == nil {
		return nil
	}
	attrs := []slog.Attr{slog.Int64("quota_limit", q.Limit), slog.Int64("quota_remaining", q.Remaining)}
	if q.UsedByOthers > 0 {
		attrs = append(attrs, slog.Int64("quota_used_by_others", q.UsedByOthers))
	}
	if until := quotaUntil(q); !until.IsZero() {
		attrs = append(attrs, slog.Time("quota_until", until.UTC()))
	}
	return attrs
}

func (l *traceLogger) connectionLeft(a *Attempt) {
	l.log(a.Request.Context(), slog.LevelWarn, logKey{event: "connection_left", scope: a.scope()}, append(a.attrs(), slog.Duration("duration", a.Latency)))
}

func (l *traceLogger) retry(a *Attempt) {
	attrs := append(attemptAttrs(a), slog.Duration("retry_wait", a.RetryWait))
	l.log(a.Request.Context(), slog.LevelInfo, attemptKeyOf("retry_scheduled", a), attrs)
}

// slowWait is the wait of a successful call from which it is logged at the level info.
const slowWait = time.Second

func (l *traceLogger) call(c *Call) {
	level, key := slog.LevelDebug, logKey{event: "call_done", scope: c.Scope}
	queueWait, inFlight, retryWait := c.Timings()
	if queueWait+retryWait >= slowWait {
		level = slog.LevelInfo
	}
	attrs := append(requestAttrs(c.Request), slog.String("scope", c.Scope), slog.Int("attempts", len(c.Attempts)), slog.Duration("duration", c.Latency))
	if queueWait+retryWait >= time.Millisecond {
		attrs = append(attrs, slog.Duration("queue_wait", queueWait), slog.Duration("in_flight", inFlight), slog.Duration("retry_wait", retryWait))
	}
	fail := func(kind string) {
		level, key.event = slog.LevelError, "call_failed"
		if !strings.HasSuffix(key.kind, kind) {
			key.kind = strings.TrimSpace(key.kind + " " + kind)
		}
	}
	for _, a := range c.Attempts { // at most one has a StopReason; a hedge may follow it
		if a.Response != nil && a.Response == c.Response {
			key.kind = strconv.Itoa(c.Response.StatusCode)
			attrs = append(attrs, a.statusAttrs()...)
		}
		if a.StopReason != nil {
			fail(neterr.Name(a.StopReason))
			attrs = append(attrs, slog.String("stop_reason", neterr.Name(a.StopReason)))
		}
	}
	if c.Err != nil {
		fail(reasonOf(c.Err))
		attrs = append(attrs, errorAttrs(c.Err)...)
	}
	if failed, ok := errors.AsType[*Error](c.Err); ok {
		attrs = append(attrs, quotaAttrs(failed.quota)...)
	}
	if !c.NotBefore.IsZero() {
		attrs = append(attrs, slog.Time("not_before", notEarlier(c.NotBefore)))
	}
	ctx := c.Request.Context()
	if key.event == "call_failed" && l.to().Enabled(ctx, slog.LevelDebug) {
		attrs = append(attrs, slog.String("transcript", c.Explain()))
	}
	l.log(ctx, level, key, attrs)
	if key.event == "call_done" && c.Response != nil {
		l.clientErrors(c)
	}
}

// Responses 4xx other than 401 and 403 are logged if there are more.
const (
	minClientErrorCalls = 20
	maxClientErrorRatio = 0.05
)

// clientErrors logs a response 4xx that is not retried: each 401 and 403, and others if the scope
// has many.
func (l *traceLogger) clientErrors(done *Call) {
	c, ok := done.Response.Request.Context().Value(callKey{}).(*call)
	if !ok || c.last == nil || c.last.class() != classClientError && c.last.class() != classThrottled {
		return
	}
	now, code := time.Now(), done.Response.StatusCode
	responses := c.record.ended.read(now.Sub(c.origin), window.Buckets, c.origin)
	if code != http.StatusUnauthorized && code != http.StatusForbidden &&
		(responses.Calls < minClientErrorCalls || float64(responses.ClientErrors) <= maxClientErrorRatio*float64(responses.Calls)) {
		return
	}
	attrs := append(requestAttrs(done.Request), slog.String("scope", done.Scope))
	attrs = append(attrs, c.last.report.statusAttrs()...)
	l.log(done.Request.Context(), slog.LevelWarn, logKey{event: clientErrorsEvent, scope: done.Scope},
		append(attrs, slog.Int("client_errors", responses.ClientErrors), slog.Int("calls", responses.Calls)))
}

func (l *traceLogger) breaker(change BreakerChange) {
	key := logKey{event: breakerEvent, scope: change.Scope, kind: change.To.String()}
	attrs := []slog.Attr{slog.String("scope", change.Scope)}
	if p := change.Priority; p != PriorityDefault {
		key.kind += " " + p.String()
		attrs = append(attrs, slog.String("priority", p.String()))
	}
	if change.Openings > 0 {
		attrs = append(attrs, slog.Int("openings", change.Openings))
	}
	attrs = append(attrs, slog.String("from", change.From.String()), slog.String("to", change.To.String()), slog.Time("at", change.At))
	l.log(context.Background(), slog.LevelWarn, key, attrs)
}

func reasonOf(err error) string {
	if failed, ok := errors.AsType[*Error](err); ok && failed.Reason != nil {
		return neterr.Name(failed.Reason)
	}
	return ""
}

// attemptKeyOf returns the key of an attempt's records. All errors are one kind, because their
// texts differ.
func attemptKeyOf(event string, a *Attempt) logKey {
	kind := a.Verdict.String()
	if a.Response != nil {
		kind = strconv.Itoa(a.Response.StatusCode)
	}
	return logKey{event: event, scope: a.scope(), kind: kind}
}

func (a *Attempt) scope() string {
	if a.of == nil {
		return a.Request.URL.Host
	}
	return a.of.visit.Record.name
}

func (a *Attempt) attrs() []slog.Attr {
	return append(requestAttrs(a.Request), slog.String("scope", a.scope()), slog.Int("attempt", a.Number))
}

func requestAttrs(req *http.Request) []slog.Attr {
	attrs := []slog.Attr{slog.String("http.request.method", method(req)), slog.String("server.address", req.URL.Hostname())}
	if port, err := strconv.Atoi(req.URL.Port()); err == nil {
		attrs = append(attrs, slog.Int("server.port", port))
	}
	return attrs
}

func (a *Attempt) statusAttrs() []slog.Attr {
	attrs := []slog.Attr{slog.Int("http.response.status_code", a.Response.StatusCode)}
	if kind := a.errorType(); kind != "" {
		attrs = append(attrs, slog.String("error.type", kind))
	}
	return attrs
}

func attemptAttrs(a *Attempt) []slog.Attr {
	attrs := append(a.attrs(), slog.String("verdict", a.Verdict.String()))
	if a.Hedge {
		attrs = append(attrs, slog.Bool("hedge", true))
	}
	if a.Response != nil {
		attrs = append(attrs, a.statusAttrs()...)
	}
	if a.Err != nil {
		attrs = append(attrs, errorAttrs(a.Err)...)
	}
	if a.of != nil && a.of.call.key.value != "" {
		attrs = append(attrs, slog.String("idempotency_key_hash", idempotencykey.Hash(a.of.call.key.value)))
	}
	if len(a.Policies()) > 0 {
		attrs = append(attrs, slog.String("quota_policies", strings.Join(a.Policies(), ", ")))
	}
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

// logKey is equal for records that are counted together.
type logKey struct{ event, scope, kind string }

const (
	logPeriod = 10 * time.Second
	logBurst  = 10 // equal records in logPeriod
	logRate   = 10 // records per second, of all kinds
	errorRate = 8  // records per second without breaker_changed
	otherRate = 5  // records per second without breaker_changed and call_failed

	breakerEvent = "breaker_changed"

	// These events are written once in rarePeriod.
	clientErrorsEvent = "client_errors"
	slowEvent         = "scope_slow"
	rarePeriod        = time.Minute

	maxLogKeys    = 1024 // keys with a count; all others share one
	maxSuppressed = 4    // records_suppressed before one record
	maxLogScope   = 128  // bytes of a scope with a count; an attacker may choose it
)

func (k logKey) limit() (burst int, period time.Duration) {
	if k.event == clientErrorsEvent || k.event == slowEvent {
		return 1, rarePeriod
	}
	return logBurst, logPeriod
}

// rate returns how many records per second may be written before one of this key. A flood of
// attempts must hide neither failed calls nor changes of a circuit.
func (k logKey) rate(level slog.Level) int {
	switch {
	case k.event == breakerEvent:
		return logRate
	case level >= slog.LevelError:
		return errorRate
	}
	return otherRate
}

// logLimiter counts records. It is safe for concurrent use, and bounded.
type logLimiter struct {
	pending atomic.Bool // there are suppressed records that are not reported

	mu      sync.Mutex
	counts  map[logKey]*logCount
	second  time.Time // start of the current second
	written int       // records in this second
}

type logCount struct {
	since               time.Time
	written, suppressed int
}

type suppressedRecords struct {
	logKey

	suppressed int
}

// admit reports whether a record is written, and how many equal ones were suppressed before.
// others are the suppressed records of other keys after their period.
func (l *logLimiter) admit(key logKey, level slog.Level, now time.Time) (suppressed int, write bool, others []suppressedRecords) {
	l.mu.Lock()
	defer l.mu.Unlock()
	others = l.sweep(key, now)
	count := l.counts[key]
	if count == nil {
		count = l.add(key, now)
	}
	burst, period := key.limit()
	if now.Sub(count.since) >= period {
		count.since, count.written = now, 0
	}
	if count.written >= burst || l.written >= key.rate(level) {
		count.suppressed++
		l.pending.Store(true)
		return 0, false, others
	}
	count.written++
	l.written++
	if count.written == 1 { // the first of a period reports what was suppressed before
		suppressed, count.suppressed = count.suppressed, 0
	}
	return suppressed, true, others
}

// add creates the count of a key. Above maxLogKeys one count serves all others of the event.
func (l *logLimiter) add(key logKey, now time.Time) *logCount {
	if l.counts == nil {
		l.counts = make(map[logKey]*logCount)
	}
	if len(l.counts) >= maxLogKeys || len(key.scope) > maxLogScope {
		key = logKey{event: key.event, scope: "others"}
		if count := l.counts[key]; count != nil {
			return count
		}
	}
	key.scope, key.kind = strings.Clone(key.scope), strings.Clone(key.kind)
	count := &logCount{since: now}
	l.counts[key] = count
	return count
}

// flush returns the suppressed records of past periods, a few at a time.
func (l *logLimiter) flush(now time.Time) []suppressedRecords {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sweep(logKey{}, now)
}

// sweep removes the counts of past periods, except that of a key, once a second. It returns their
// suppressed records, a few at a time.
func (l *logLimiter) sweep(except logKey, now time.Time) (others []suppressedRecords) {
	if now.Sub(l.second) < time.Second {
		return nil
	}
	l.second, l.written = now, 0
	pending := false
	for key, count := range l.counts {
		if _, period := key.limit(); key == except || now.Sub(count.since) < period {
			pending = pending || count.suppressed > 0
			continue
		}
		if count.suppressed > 0 {
			if len(others) == maxSuppressed {
				pending = true
				continue
			}
			others = append(others, suppressedRecords{key, count.suppressed})
			l.written++
		}
		delete(l.counts, key)
	}
	l.pending.Store(pending)
	return others
}
