// Package resilienthttp makes the calls of any http.Client resilient.
//
//	client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// That is all that a program needs. Each call then has
//
//   - retries of transient failures, after random waits of up to 0.25, 1.25, 3 and 6 s, and once more shortly before the
//     deadline; never before the time that the server asks for ([Policy]),
//   - an idempotency key if it is a POST or PATCH, so that the server can recognize a retry ([Idempotency]),
//   - a header with its deadline, if it has one ([DeadlineHeader]),
//   - a second, concurrent attempt if the first is slow and its method is safe ([Policy]); hedges if
//     [Hedge] is set,
//   - and for each host a budget that limits retries ([Budget]), the quotas that the server shows ([RateLimit]), and a
//     circuit: while the server is away, calls wait for it, and single ones test it ([Breaker]).
//
// A call ends with the response of its last attempt, whatever its status, with its body unread, or with an [*Error].
// [InDoubt] reports whether the work may have been done. [Explain] says what happened, and [Attempts] has each attempt.
// errors.Is finds the reason, for example [ErrBreakerOpen], the error of the context, and the cause.
//
// A call can wait as long as its deadline permits, so give each request a context with a deadline. For one call,
// [WithPolicy], [WithIdempotencyKey], [WithPriority] and [WithSingleAttempt] change what the Transport does. [LogTrace]
// writes a log, and Transport.State has the current state.
//
// A transient failure is retried if a retry cannot do the work twice. So the method must be idempotent, or the request
// must have a key, or the server must not have processed it. The body must be replayable: see docs/retries.md. To switch
// off a mechanism, see docs/configuration.md.
//
// The zero value of every type works. Fields are read at the first use and must not change after it. There are no global
// settings, no goroutines at rest, and no logs without [LogTrace].
package resilienthttp
