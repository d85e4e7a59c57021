// Package resilienthttp makes any http.Client fit to call other people's APIs.
//
// Networks lie: a request can be done although its answer is lost. So a retry
// without an idempotency key is a second write, and retries without jitter,
// budget and breaker turn a blip into an outage. Each mechanism solves one piece;
// a [Transport] puts them together, in the one order in which they hold:
//
//	client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// Every call then gets
//
//   - an idempotency key when it is a POST or PATCH ([Idempotency]),
//   - where the call has a deadline, a header that tells the server how long it may
//     still take ([Deadline]); an attempt has a timeout of its own if you set one, and
//     otherwise ends with the call, or after 15 min ([Policy]),
//   - a second attempt beside a slow one, where that does no harm: a GET is sent again
//     after 30 s, or half of the time that is left ([Policy]),
//   - retries of transient failures, after about 0.1, 0.5, 2.5 and 5 s, and once more
//     shortly before the deadline; never before the server asks for them ([Policy]),
//   - a budget of tokens that keeps retries a small ratio of the calls ([Budget]),
//   - pacing from the server's rate-limit headers, before it has to say 429
//     ([RateLimit]),
//   - a circuit breaker for each host ([Breaker]),
//   - and, if asked for, hedging of slow requests ([Hedge]).
//
// # What comes back
//
// When the last attempt was answered, its response is returned with the body unread,
// whatever the status, unless a gate closed, the time ran out or the caller cancelled
// while the next attempt was waiting. Otherwise the error is
// one [*Error], in which errors.Is finds the reason (such as [ErrBreakerOpen]),
// the context's error and the cause. [Attempts] tells how a response came about.
//
// # What is repeated
//
// An answer is asked again if it may pass and the request may be repeated: its method is
// safe or idempotent (RFC 9110 section 9.2), or it has a key, or it surely did no work.
//
//   - Whatever the request: 408, 425, 429, 503 with Retry-After, and what never left
//     (connection refused, no answer of DNS for now, TLS handshake).
//   - With a key, or an idempotent method: 500, 502, 503, 504, 529 and other 5xx; 403 and
//     409 with Retry-After; a connection that was reset or closed; an attempt's timeout.
//   - Never: other 4xx; 501, 505, 506, 508, 510, 511; certificates, hosts that do not
//     exist, malformed requests and addresses; the caller's cancellation and deadline.
//
// A server's explicit word comes first (Stripe-Should-Retry, X-Should-Retry), and
// [Policy.ClassifyBody] and [Policy.Classify] overrule the table. The body must be
// replayable: http.NewRequest sets GetBody for byte slices, strings and buffers.
// [WithPolicy] changes all of it for one call, and [SingleAttempt] leaves the retries to
// another layer. docs/answers.md has the whole table, and what to do about each error.
//
// # Configuration
//
// The zero value of every type works: 0 means the documented default, and a
// negative number turns a mechanism off. Fields are read at the first use and
// must not change after it. There are no global settings, no goroutines at rest,
// and no logging unless asked for with [LogTrace].
package resilienthttp
