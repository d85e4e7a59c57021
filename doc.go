// Package resilienthttp makes any http.Client fit to call other people's APIs.
//
// A request can be done although its response is lost. So a retry without an idempotency
// key is a second write, and retries without jitter, budget and circuit breaker turn a
// short failure into an outage. A [Transport] puts these mechanisms together:
//
//	client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// Each call then has
//
//   - an idempotency key, if it is a POST or PATCH ([Idempotency]),
//   - a header that tells the server the deadline, if the call has one ([Deadline]),
//   - retries of transient failures after about 0.1, 0.5, 2.5 and 5 s, and once more shortly
//     before the deadline; never before the time that the server asks for ([Policy]),
//   - a second attempt beside a slow one, if the request is safe ([Policy]),
//   - a bucket of retry tokens ([Budget]), a rate limit that follows the quotas of the server
//     ([RateLimit]), and a circuit breaker ([Breaker]), for each host,
//   - hedges of slow requests, if [Hedge] is set.
//
// # Results
//
// If the last attempt got a response, the caller gets it with its body unread, whatever
// its status. If a gate rejects the next attempt, the time runs out or the caller cancels,
// the error is one [*Error]: errors.Is finds the reason (such as [ErrBreakerOpen]), the
// context's error and the cause. [Attempts] returns the attempts behind a response.
//
// # Retries
//
// A transient failure is retried if the request may be repeated: its method is idempotent
// (RFC 9110 section 9.2), it has a key, it was not sent, or the server did no work for it.
// The body must be replayable: http.NewRequest sets GetBody for byte slices, strings and
// buffers. docs/answers.md has the table of statuses and errors. A should-retry header of
// the server comes before the table. [Policy.ClassifyBody] and [Policy.Classify] overrule
// both. [WithPolicy] and [SingleAttempt] change one call.
//
// # Configuration
//
// The zero value of every type works: 0 means the documented default, and a negative number
// disables a mechanism. Fields are read at the first use and must not change after it. There
// are no global settings, no goroutines at rest, and no logs without [LogTrace].
package resilienthttp
