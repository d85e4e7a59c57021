package resilientotel

import (
	"context"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/resilienthttp/resilienthttp"
)

// callMetrics are the metrics that are recorded at the end of a call.
type callMetrics struct {
	duration, wait                                         metric.Float64Histogram
	retries, denied, rejections, inDoubt, hedges, breakers *scopedCounter

	maxUpstreams int
	upstreams    table[upstream, upstream]
	calls        seriesTable[callSeries]
	waits        seriesTable[scoped]
}

// upstream is where the calls of a series go: the server of the request, and its scope. The port
// is "" if the URL has none. Their number is limited as a whole, so that neither many hosts
// of a scope nor many scopes of a host multiply the series.
type upstream struct{ host, port, scope string }

// callSeries are the attributes of a call's duration.
type callSeries struct {
	upstream

	method, errorType, outcome string
}

func newCallMetrics(m *meter, limit int) *callMetrics {
	c := &callMetrics{
		duration:   m.seconds(metricCallDuration, "Duration of calls with all attempts and waits."),
		wait:       m.seconds(metricWaitDuration, "Duration of the waits of calls, by cause."),
		retries:    m.scopedCounter(keyRetryReason, metricRetries, "{retry}", "Retries, by cause."),
		denied:     m.scopedCounter(keyStopReason, metricRetriesDenied, "{call}", "Calls that failed and were not retried, by reason."),
		rejections: m.scopedCounter(keyRejectedBy, metricRejections, "{call}", "Calls that the breaker or the rate limiter rejected."),
		inDoubt: m.scopedCounter(semconv.HTTPRequestMethodKey, metricCallsInDoubt, "{call}",
			"Calls that ended without a proof that the server has done their work, or has not."),
		hedges:   m.scopedCounter(keyHedgeWon, metricHedges, "{hedge}", "Hedges, by whether their response was the first."),
		breakers: m.scopedCounter(keyBreakerTo, metricTransitions, "{transition}", "Changes of circuit breakers, by new state."),

		maxUpstreams: limit,
	}
	c.calls.attributes = func(s callSeries) []attribute.KeyValue {
		attributes := []attribute.KeyValue{
			semconv.ServerAddress(s.host), keyScope.String(s.scope), semconv.HTTPRequestMethodKey.String(s.method), keyOutcome.String(s.outcome),
		}
		if port, err := strconv.Atoi(s.port); err == nil {
			attributes = append(attributes, semconv.ServerPort(port))
		}
		return with(attributes, semconv.ErrorTypeKey, s.errorType)
	}
	c.waits.attributes = scopedBy(keyWaitCause)
	c.hedges.series.attributes = func(s scoped) []attribute.KeyValue {
		return []attribute.KeyValue{keyScope.String(s.scope), keyHedgeWon.Bool(s.value == hedgeWon)}
	}
	return c
}

// record records a call at its end. The scope is the attribute's value.
func (m *callMetrics) record(ctx context.Context, c *resilienthttp.Call, scope string, s *summary) {
	of := m.upstream(upstream{c.Request.URL.Hostname(), c.Request.URL.Port(), scope})
	m.duration.Record(ctx, c.Latency.Seconds(), m.calls.of(callSeries{of, methodName(c.Request.Method), s.errorType, s.outcome}).record...)
	for i := range c.Attempts {
		m.recordAttempt(ctx, c, i, scope)
	}
	if resilienthttp.InDoubt(c.Response, c.Err) {
		m.inDoubt.count(ctx, scoped{scope: scope, value: methodName(c.Request.Method)})
	}
	m.recordWait(ctx, scope, waitBackoff, s.retryWait)
	m.recordWait(ctx, scope, waitQuota, s.quota)
	m.recordWait(ctx, scope, waitFixedLimit, s.fixedLimit)
	m.recordWait(ctx, scope, waitCircuit, s.circuit)
}

// upstream returns the upstream, or that of all later ones.
func (m *callMetrics) upstream(u upstream) upstream {
	known, ok := m.upstreams.add(u, m.maxUpstreams, func() (upstream, upstream) {
		u = upstream{strings.Clone(u.host), strings.Clone(u.port), u.scope} // parts of a long string
		return u, u
	})
	if !ok {
		return upstream{host: other, scope: other}
	}
	return known
}

func (m *callMetrics) recordAttempt(ctx context.Context, c *resilienthttp.Call, i int, scope string) {
	a := &c.Attempts[i]
	switch {
	case a.Hedge:
		result := hedgeLost
		if c.Response != nil && a.Response == c.Response {
			result = hedgeWon
		}
		m.hedges.count(ctx, scoped{scope: scope, value: result})
	case i > 0:
		m.retries.count(ctx, scoped{scope: scope, value: retryReason(failedBefore(c.Attempts, i), a)})
	}
	if a.StopReason != nil {
		m.denied.count(ctx, scoped{scope: scope, value: stopReason(a.StopReason)})
	}
}

// failedBefore returns the attempt before a retry: the last one that is not a hedge.
func failedBefore(attempts []resilienthttp.Attempt, i int) *resilienthttp.Attempt {
	for i--; i > 0 && attempts[i].Hedge; i-- {
		continue
	}
	return &attempts[i]
}

func (m *callMetrics) recordWait(ctx context.Context, scope, cause string, d time.Duration) {
	if d > 0 {
		m.wait.Record(ctx, d.Seconds(), m.waits.of(scoped{scope: scope, value: cause}).record...)
	}
}
