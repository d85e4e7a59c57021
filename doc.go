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
//   - a second attempt beside a slow one, if the request is safe: a GET is sent again
//     after 30 s, or half of the time that is left ([Policy]),
//   - retries of transient failures, after about 0.1, 0.5, 2.5 and 5 s, and once more
//     shortly before the deadline, or within 10 s of the first failure if no deadline is
//     near; never before the time that the server asks for ([Policy]),
//   - a budget of tokens that keeps retries a small ratio of the calls ([Budget]),
//   - pacing from the server's rate-limit headers, before it has to say 429
//     ([RateLimit]),
//   - a circuit breaker for each host ([Breaker]),
//   - and, if asked for, hedging of slow requests ([Hedge]).
//
// # What comes back
//
// If the last attempt got a response, it is returned with the body unread, whatever
// the status, unless the breaker or a quota rejected the next attempt, the time ran out
// or the caller canceled during the wait. Otherwise the error is
// one [*Error], in which errors.Is finds the reason (such as [ErrBreakerOpen]),
// the context's error and the cause. [Attempts] returns the attempts behind a response.
//
// # What is retried
//
// A failure is retried if it is transient and the request may be repeated: its method is
// idempotent (RFC 9110 section 9.2), it has a key, it was not sent, or the server did no
// work for it.
//
//   - Any request: 408, 425, 429, 503 with Retry-After, and requests that were not sent
//     (connection refused, temporary DNS failure, TLS handshake).
//   - With a key, or an idempotent method: 500, 502, 503, 504, 529 and other 5xx; 403 and
//     409 with Retry-After; a connection that was reset or closed; an attempt's timeout.
//   - Never: other 4xx; 501, 505, 506, 508, 510, 511; certificates, hosts that do not
//     exist, malformed requests and addresses; the caller's cancellation and deadline.
//
// A server's should-retry header comes first (Stripe-Should-Retry, X-Should-Retry), and
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
