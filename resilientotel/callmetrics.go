package resilientotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/resilienthttp/resilienthttp"
)

const scopeKey = attribute.Key("scope")

// callMetrics are those of calls, told when they are over.
type callMetrics struct {
	duration, wait                                metric.Float64Histogram
	retries, stops, refusals, hedges, transitions metric.Int64Counter

	hosts   *names
	ended   labels[endedCall]
	reasons [countOfReasons]labels[scoped]
}

// endedCall is what calls are told apart by.
type endedCall struct{ host, method, errorType, outcome string }

// scoped is a word that is said of a scope.
type scoped struct{ scope, word string }

// reason is which word it is.
type reason int

const (
	reasonRetry reason = iota
	reasonStop
	reasonGate
	reasonFor
	reasonWon
	reasonTo
	countOfReasons
)

func newCallMetrics(m maker, most int) *callMetrics {
	c := &callMetrics{
		duration: m.seconds("resilienthttp.client.call.duration",
			"How long calls took, all their attempts and waits included, until RoundTrip returned."),
		wait: m.seconds("resilienthttp.client.wait.duration",
			"How long calls that had to wait did so: before retries (backoff), for a server's quota (quota), in line for RateLimit.Limit (line)."),
		retries:     m.counter("resilienthttp.client.retries", "{retry}", "Attempts that repeated another one, by why that had failed."),
		stops:       m.counter("resilienthttp.client.stops", "{call}", "Calls whose failure was not followed by another attempt, by why not."),
		refusals:    m.counter("resilienthttp.client.refusals", "{call}", "Calls that a gate refused in the end."),
		hedges:      m.counter("resilienthttp.client.hedges", "{hedge}", "Hedges that were sent, by whether they were answered first."),
		transitions: m.counter("resilienthttp.client.breaker.transitions", "{transition}", "Changes of circuits, by the state that they came to."),
		hosts:       &names{most: most},
	}
	c.ended.attributes = func(e endedCall) []attribute.KeyValue {
		attributes := []attribute.KeyValue{
			semconv.ServerAddress(e.host), semconv.HTTPRequestMethodKey.String(e.method), attribute.String("outcome", e.outcome),
		}
		if e.errorType != "" {
			attributes = append(attributes, semconv.ErrorTypeKey.String(e.errorType))
		}
		return attributes
	}
	for i, key := range [countOfReasons]attribute.Key{"reason", "reason", "gate", "for", "won", "to"} {
		c.reasons[i].attributes = func(s scoped) []attribute.KeyValue {
			word := key.String(s.word)
			if key == "won" {
				word = key.Bool(s.word == "true")
			}
			return []attribute.KeyValue{scopeKey.String(s.scope), word}
		}
	}
	return c
}

// done tells of a call that is over. The scope is as metrics call it.
func (m *callMetrics) done(ctx context.Context, c *resilienthttp.Call, scope string, o *ended) {
	series := m.ended.of(endedCall{m.hosts.of(c.Request.URL.Hostname()), methodName(c.Request.Method), o.errorType, o.outcome})
	m.duration.Record(ctx, c.Latency.Seconds(), series.record...)
	for i := range c.Attempts {
		m.attempt(ctx, c, i, scope)
	}
	m.waited(ctx, scope, "backoff", o.waited)
	m.waited(ctx, scope, "quota", o.quota)
	m.waited(ctx, scope, "line", o.line)
}

func (m *callMetrics) attempt(ctx context.Context, c *resilienthttp.Call, i int, scope string) {
	a := &c.Attempts[i]
	switch {
	case a.Hedge:
		won := "false"
		if c.Response != nil && a.Response == c.Response {
			won = "true"
		}
		m.count(ctx, m.hedges, reasonWon, scoped{scope, won})
	case i > 0:
		m.count(ctx, m.retries, reasonRetry, scoped{scope, reasonOfRetry(before(c.Attempts, i), a)})
	}
	if a.StopReason != nil {
		m.count(ctx, m.stops, reasonStop, scoped{scope, sentinelName(a.StopReason)})
	}
}

// before is the attempt that another one repeats: the last that is no hedge and has failed.
func before(attempts []resilienthttp.Attempt, i int) *resilienthttp.Attempt {
	for i--; i > 0 && attempts[i].Hedge; i-- {
		continue
	}
	return &attempts[i]
}

func (m *callMetrics) waited(ctx context.Context, scope, what string, d time.Duration) {
	if d > 0 {
		m.wait.Record(ctx, d.Seconds(), m.reasons[reasonFor].of(scoped{scope, what}).record...)
	}
}

func (m *callMetrics) count(ctx context.Context, counter metric.Int64Counter, r reason, s scoped) {
	counter.Add(ctx, 1, m.reasons[r].of(s).add...)
}

func (m *callMetrics) refused(ctx context.Context, gate, scope string) {
	m.count(ctx, m.refusals, reasonGate, scoped{scope, gate})
}

func (m *callMetrics) changed(change resilienthttp.BreakerChange, scope string) {
	m.count(context.Background(), m.transitions, reasonTo, scoped{scope, stateName(change.To)})
}

func stateName(s resilienthttp.BreakerState) string {
	switch s {
	case resilienthttp.StateClosed:
		return "closed"
	case resilienthttp.StateHalfOpen:
		return "half_open"
	case resilienthttp.StateOpen:
		return "open"
	}
	return other
}
