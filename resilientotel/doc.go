// Package resilientotel tells OpenTelemetry what a resilienthttp.Transport, and the server
// parts beside it, do: traces and metrics by the semantic conventions.
//
//	instrumentation := &resilientotel.Instrumentation{}
//	client := &http.Client{Transport: instrumentation.Wrap(&resilienthttp.Transport{})}
//
// # Spans
//
// Each attempt is one CLIENT span, made by otelhttp
// (go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp), hedges and other copies
// among them; the traceparent that is sent is the attempt's. From the second on it has
// http.request.resend_count, and a hedge has resilienthttp.hedge. It ends when the body of
// its response is read to the end or closed.
//
// Around them is one INTERNAL span for the call, which ends when RoundTrip returns. It says
// where the time went, in seconds: resilienthttp.queued at the gates, resilienthttp.sent
// until the response headers, and resilienthttp.waited before retries; how many
// resilienthttp.attempts there were and what the resilienthttp.outcome was; error.type, and
// resilienthttp.stop, why nothing more was sent after a failure. Its events "queued",
// "retry" and "refused" tell what it waited for when.
//
// # What is not told
//
// Of a URL, scheme and host alone; no path, no query, no value of a header. An idempotency
// key is told as its hash, the same that LogTrace writes. A Transport whose Base is an
// otelhttp.Transport already keeps that, with all that its options say.
//
// # Metrics
//
// Those of otelhttp for each attempt, and those of calls, gates and server parts that
// docs/telemetry.md lists. The number of series is bounded: Instrumentation.MaxScopes hosts,
// and as many scopes, have a name of their own.
package resilientotel
