package resilientotel

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// The names of all metrics that this package exports. Those of attempts are otelhttp's. A new one has its instrument where
// those of its kind are (callmetrics.go, statemetrics.go, servermetrics.go), a row in docs/telemetry.md, a panel in
// docs/grafana.json, and something in doEverything of the tests that records it. See docs/maintainers/architecture.md.
const (
	metricCallDuration     = "resilienthttp.client.call.duration"
	metricWaitDuration     = "resilienthttp.client.wait.duration"
	metricRetries          = "resilienthttp.client.retries"
	metricRetriesDenied    = "resilienthttp.client.retries.denied"
	metricRejections       = "resilienthttp.client.rejections"
	metricCallsInDoubt     = "resilienthttp.client.calls.in_doubt"
	metricHedges           = "resilienthttp.client.hedges"
	metricTransitions      = "resilienthttp.client.breaker.transitions"
	metricBreakerState     = "resilienthttp.client.breaker.state"
	metricRetryBudget      = "resilienthttp.client.retry_budget.remaining"
	metricQuotaRemaining   = "resilienthttp.client.quota.remaining"
	metricQuotaLimit       = "resilienthttp.client.quota.limit"
	metricActiveAttempts   = "resilienthttp.client.active_attempts"
	metricWaitingCalls     = "resilienthttp.client.waiting_calls"
	metricIdempotency      = "resilienthttp.server.idempotency.requests"
	metricUnknown          = "resilienthttp.server.idempotency.unknown"
	metricAdmission        = "resilienthttp.admission.rejections"
	metricConcurrencyLimit = "resilienthttp.admission.concurrency_limit"
	metricActiveRequests   = "resilienthttp.admission.active_requests"
	metricQueuedRequests   = "resilienthttp.admission.queued_requests"
	metricIntents          = "resilienthttp.durable.intents"
	metricDeadInDoubt      = "resilienthttp.durable.dead_letters.in_doubt"
	metricOldestDue        = "resilienthttp.durable.oldest_due.age"
	metricGatewaysHeld     = "resilienthttp.durable.gateways.held"
	metricDurableAttempts  = "resilienthttp.durable.attempts"
)

// The keys of all attributes of metrics, spans and events that are not in OpenTelemetry's
// conventions. Without the prefix they are the keys of LogTrace, where it has them.
const (
	keyScope     = attribute.Key("resilienthttp.scope")
	keyOutcome   = attribute.Key("resilienthttp.outcome")
	keyWaitCause = attribute.Key("resilienthttp.wait.cause")

	keyQueueWait     = attribute.Key("resilienthttp.queue_wait")
	keyInFlight      = attribute.Key("resilienthttp.in_flight")
	keyRetryWait     = attribute.Key("resilienthttp.retry_wait")
	keyEstimatedWait = attribute.Key("resilienthttp.wait.estimated")

	keyAttemptNumber = attribute.Key("resilienthttp.attempt.number")
	keyAttemptCount  = attribute.Key("resilienthttp.attempt.count")
	keyRetryReason   = attribute.Key("resilienthttp.retry.reason")
	keyStopReason    = attribute.Key("resilienthttp.stop_reason")
	keyHedge         = attribute.Key("resilienthttp.hedge")
	keyHedgeWon      = attribute.Key("resilienthttp.hedge.won")
	keyHedgeOutcome  = attribute.Key("resilienthttp.hedge.outcome")
	keyRejectedBy    = attribute.Key("resilienthttp.rejected_by")
	keyBreakerTo     = attribute.Key("resilienthttp.breaker.to")
	keyQuotaBucket   = attribute.Key("resilienthttp.quota.bucket")
	keyKeyHash       = attribute.Key("resilienthttp.idempotency_key_hash")

	keyDisposition     = attribute.Key("resilienthttp.disposition")
	keyRejectionReason = attribute.Key("resilienthttp.rejection.reason")
	keyPriority        = attribute.Key("resilienthttp.priority")
	keyShedder         = attribute.Key("resilienthttp.shedder.name")

	keyState   = attribute.Key("resilienthttp.state")
	keyGateway = attribute.Key("resilienthttp.gateway")
	keyHolder  = attribute.Key("resilienthttp.holder")
	keyClass   = attribute.Key("resilienthttp.class")
	keyCode    = attribute.Key("resilienthttp.code")
)

// The names of all events of a call's span.
const (
	eventQueued   = "queued"
	eventRetry    = "retry"
	eventRejected = "rejected"
)

// The values of resilienthttp.outcome, the result of a call.
const (
	outcomeSuccess   = "success"         // a response without a failure
	outcomePermanent = "permanent_error" // a response that a retry would not change: most 4xx
	outcomeFailed    = "failed"          // no response, or a response that a retry might change
	outcomeRejected  = "rejected"        // by the breaker or the rate limiter
	outcomeTimeout   = "timeout"         // the call's deadline has passed, or no wait fits before it
	outcomeCanceled  = "canceled"        // by the caller
)

// The values of resilienthttp.wait.cause. A call in a queue waits for the circuit,
// fixed_limit or quota. The gauge of waiting calls does not distinguish the last two.
const (
	waitBackoff    = "backoff"     // before a retry
	waitQuota      = "quota"       // for a quota of the server
	waitCircuit    = "circuit"     // for a server that fails
	waitFixedLimit = "fixed_limit" // for RateLimit.Limit or MaxInFlight
	waitRateLimit  = "rate_limit"  // for either
)

// The values of resilienthttp.rejected_by.
const (
	gateBreaker   = "breaker"
	gateRateLimit = "rate_limit"
)

// The values of resilienthttp.hedge.outcome.
const (
	hedgeWon  = "won"  // its response is the call's
	hedgeLost = "lost" // another attempt had its response first, or none had one
)

// reasonSlowAttempt is the resilienthttp.retry.reason of a second attempt that was sent because the
// first was slow. All others are values of error.type.
const reasonSlowAttempt = "hedge_slow_attempt"

// other replaces the values of an attribute beyond the maximum number of values.
const other = neterr.Other
