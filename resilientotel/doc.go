// Package resilientotel records OpenTelemetry traces and metrics of a resilienthttp.Transport
// and of the server-side packages.
//
//	instrumentation := &resilientotel.Instrumentation{}
//	client := &http.Client{Transport: instrumentation.Wrap(&resilienthttp.Transport{})}
//
// # Spans
//
// Each attempt is one CLIENT span of otelhttp
// (go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp), and its traceparent is sent.
// It ends when the body of the response is read to the end or closed. All but the first attempt
// have http.request.resend_count. A hedge has resilienthttp.hedge.
//
// If attempts were in flight at the same time, each of them has resilienthttp.hedge.outcome:
// "won" if its response is the call's, otherwise "lost". An attempt that was canceled because
// another one had its response first is no error.
//
// The attempts are children of one INTERNAL span for the call, which ends when RoundTrip
// returns. It has resilienthttp.outcome and resilienthttp.attempt.count. It divides the time of
// the call into resilienthttp.queue_wait, resilienthttp.in_flight and resilienthttp.retry_wait,
// in seconds. Its events are "queued", "retry" and "rejected".
//
// The attribute error.type has the values of [resilienthttp.ErrorType], or a status code from
// 400, in all spans and metrics.
//
// # Secrets
//
// Of a URL, only the scheme and the host are exported. Paths, queries and values of headers are
// not, unless Instrumentation.Options do. Of an idempotency key, the hash is exported that
// LogTrace writes. A Base that is an otelhttp.Transport exports what its own options say.
//
// # Metrics
//
// docs/telemetry.md lists the metrics. The number of series is bounded: hosts and scopes beyond
// Instrumentation.MaxScopes have the value "_OTHER".
package resilientotel
