// Package status has the parts of a resilienthttp.State: what a page or a health check shows of a scope.
// They are values.
package status

import "time"

// Responses counts calls by the outcome of their last attempt. Canceled calls are not
// counted. The Verdict decides whether a response is a success.
type Responses struct {
	Calls         int // all, with the rejected ones
	ClientErrors  int // responses 400 to 499, without 408, and the 503 of a limit
	Throttled     int // those of the ClientErrors that a limit has rejected: 429, some 403 and 503 (see docs/retries.md)
	ServerErrors  int // responses from 500 on, and those below 400 that Classify declares failures
	NetworkErrors int // no response: the connection, DNS or TLS failed
	Timeouts      int // no response in time, or a 408
	Rejected      int // not sent, or not sent again: the breaker or the rate limit rejected the call

	// Since is the start of the first call that failed after the last call that succeeded, maybe
	// long before the counted calls. It is zero if nothing failed since. CallsSince is the number
	// of calls that have ended since then: all failed.
	Since      time.Time
	CallsSince int

	History   []Minute  // the calls in 16 parts of 18.75 s, the oldest first
	HistoryAt time.Time // the start of the last part, which is not over
}

// Failures returns the number of calls that failed. Responses 400 to 499 that no limit has sent
// are failures if more than half of the calls ended with them. A few of them are usually correct
// answers, such as 404.
func (r Responses) Failures() int {
	failures := r.Throttled + r.ServerErrors + r.NetworkErrors + r.Timeouts + r.Rejected
	if others := r.ClientErrors - r.Throttled; 2*others > r.Calls {
		failures += others
	}
	return failures
}

// Opening is when a circuit opened, the Failures of Attempts for which it did, and how many probes have failed since then. It
// is zero once the circuit is closed. The change to closed has it too.
type Opening struct {
	OpenedAt                         time.Time
	Attempts, Failures, FailedProbes int
}

// Minute counts the calls of the last minute, or of a part of the History, and the failures among them, as Responses
// does.
type Minute struct{ Calls, Failures int }

// Budget is the content of the retry budget of a scope. Its capacity is Used + Remaining.
type Budget struct {
	Used      float64 // tokens missing from a full bucket
	Remaining float64 // tokens for retries; negative: no limit
}

// Quota is one quota of a scope: of its server, RateLimit.Limit or RateLimit.MaxInFlight.
type Quota struct {
	// Bucket is the server's name of the quota, for example "requests" or "search/tokens", or "".
	// That of RateLimit.Limit is "fixed", and that of RateLimit.MaxInFlight is "in_flight".
	Bucket string

	// Key is the value of RateLimit.Key; "" means none. Keys above the 64th are "other".
	Key string

	Limit     int64     // zero means that Limit and Remaining are unknown
	Remaining int64     // without the requests in flight
	Reset     time.Time // when Remaining is Limit again; zero: it is already, or unknown

	// BlockedUntil is the time until which no request is sent, because the server rejects them.
	// Zero means not blocked. (An exhausted quota waits until its Reset.)
	BlockedUntil time.Time

	// UsedByOthers is what other processes have certainly used of Limit, while this process has
	// seen its window. Zero means none or unknown.
	UsedByOthers int64
}

// Latency is the time to the response headers, or to the return of a Stream, in the last 45 to
// 60 s, of responses below 500 other than 429. An attempt that a hedge superseded counts with the
// delay of the hedge. The quantiles are up to a third too high, and never above the slowest response.
type Latency struct {
	P50, P95, P99 time.Duration
	Samples       int // responses; zero means that the quantiles are unknown

	// UsualP50 and UsualP99 are the usual quantiles of a minute. They follow changes within about
	// an hour. Zero means unknown: there were never four responses in a minute.
	UsualP50, UsualP99 time.Duration

	InFlightAge time.Duration // mean time since the attempts in flight were sent; zero: none

	// Slow reports whether P50 is above UsualP99, 4 times UsualP50 and UsualP50 + 0.5 s. With fewer
	// than ten samples it must be 16 times UsualP50, and fewer than four are not judged. It is true as well if InFlightAge is above 5 s and twice the usual slowest
	// response of a minute; with n < 5 attempts in flight, n/5 of InFlightAge.
	Slow bool
}

// Call is one call. Its Latency is the sum of QueueWait, InFlight and RetryWait, to a
// millisecond (see Call.Timings).
type Call struct {
	Start                                   time.Time
	Latency, QueueWait, InFlight, RetryWait time.Duration

	Attempts int    // without hedges
	Status   int    // of the response; zero means none
	Err      string // the error, without paths, queries and values; "" with a response
}

// Failure is a failed attempt. Attempts that the caller canceled are not failures.
type Failure struct {
	At        time.Time
	Status    int      // of the response; zero means none
	ErrorType string   // the status from 400 on, the Verdict of a response below 400, or the result of resilienthttp.ErrorType
	Err       string   // the error, without paths, queries and values; "" with a response
	Policies  []string // see the method Policies of resilienthttp.Attempt
}
