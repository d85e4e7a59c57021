// Package resilienthttp makes the calls of any http.Client resilient.
//
// A server can process a request although its response is lost. A retry without an idempotency
// key can then do the work twice. Retries without jitter, budget and circuit breaker make a short
// failure an outage. A [Transport] combines these mechanisms:
//
//	client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// Each call then has
//
//   - an idempotency key, if it is a POST or PATCH ([Idempotency]),
//   - a header with its deadline, if it has one ([DeadlineHeader]),
//   - retries of transient failures after about 0.1, 0.5, 2.5 and 5 s, and once more shortly
//     before the deadline; never before the time that the server asks for ([Policy]),
//   - a second, concurrent attempt if the first is slow and its method is safe ([Policy]),
//   - for each host a retry budget ([Budget]), a rate limit that follows the quotas of the server
//     ([RateLimit]) and a circuit breaker ([Breaker]),
//   - hedges of slow requests, if [Hedge] is set.
//
// The caller gets the response of the last attempt with its body unread, whatever its status.
// Otherwise the error is an [*Error]. errors.Is finds the reason, for example [ErrBreakerOpen],
// the error of the context, and the cause. [Attempts] returns the attempts behind a response.
//
// A transient failure is retried if a retry cannot do the work twice. So the method must be
// idempotent, or the request must have a key, or the server must not have processed it. The body
// must be replayable. See docs/retries.md.
//
// The zero value of every type works. Fields are read at the first use and must not change after
// it. There are no global settings, no goroutines at rest, and no logs without [LogTrace].
package resilienthttp
