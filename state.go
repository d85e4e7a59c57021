package resilienthttp

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// State is the state of a Transport at one time, for dashboards and health checks.
type State struct {
	At     time.Time
	Policy Policy       // the one in use, with its defaults: see SetPolicy
	Scopes []ScopeState // by name, and PriorityDefault before batch and critical
}

// ScopeState is the state of one scope and priority. Each [Priority] of a scope has its own
// circuit and figures, and so a ScopeState of its own. They repeat the Budget of the scope. Only
// that of PriorityDefault has the Quotas. A Breaker, Budget or RateLimit that several Transports
// share is in the State of each; the rest counts the calls of this Transport.
type ScopeState struct {
	Scope    string
	Priority Priority
	Breaker  BreakerStatus
	Budget   BudgetStatus
	Quotas   []QuotaStatus // by bucket; nil: none is known

	// The numbers of attempts that wait for response headers and for a permit of the circuit or the rate
	// limit, and of calls that wait before a retry.
	InFlight, Queued, RetryWaiting int

	Responses  ResponseStatus // how the calls of the last 5 min ended
	LastMinute MinuteStatus   // the calls of the last 56 to 75 s
	Latency    LatencyStatus
	Slowest    CallStatus    // the slowest call of the last minute, or a later one after it; zero: none
	Failure    FailureStatus // the last failure; zero: none
}

// ResponseStatus counts calls by the outcome of their last attempt. Canceled calls are not
// counted. The Verdict decides whether a response is a success.
type ResponseStatus struct {
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

	History   []MinuteStatus // the calls in 16 parts of 18.75 s, the oldest first
	HistoryAt time.Time      // the start of the last part, which is not over
}

// Failures returns the number of calls that failed. Responses 400 to 499 other than 408 and 429
// are failures if more than half of the calls ended with them. A few of them are usually correct
// answers, such as 404.
func (r ResponseStatus) Failures() int {
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

// MinuteStatus counts the calls of the last minute, or of a part of the History, and the failures among them, as ResponseStatus
// does.
type MinuteStatus struct{ Calls, Failures int }

// BudgetStatus is the content of the retry budget of a scope. Its capacity is Used + Remaining.
type BudgetStatus struct {
	Used      float64 // tokens missing from a full bucket
	Remaining float64 // tokens for retries; negative: no limit
}

// QuotaStatus is one quota of a scope: of its server, RateLimit.Limit or RateLimit.MaxInFlight.
type QuotaStatus struct {
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

// LatencyStatus is the time to the response headers, or to the return of a Stream, in the last 45 to
// 60 s, of responses below 500 other than 429. An attempt that a hedge superseded counts with the
// delay of the hedge. The quantiles are up to a third too high, and never above the slowest response.
type LatencyStatus struct {
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

// CallStatus is one call. Its Latency is the sum of QueueWait, InFlight and RetryWait, to a
// millisecond (see Call.Timings).
type CallStatus struct {
	Start                                   time.Time
	Latency, QueueWait, InFlight, RetryWait time.Duration

	Attempts int    // without hedges
	Status   int    // of the response; zero means none
	Err      string // the error, without paths, queries and values; "" with a response
}

// FailureStatus is a failed attempt. Attempts that the caller canceled are not failures.
type FailureStatus struct {
	At        time.Time
	Status    int      // of the response; zero means none
	ErrorType string   // the status from 400 on, the Verdict of a response below 400, or the result of ErrorType
	Err       string   // the error, without paths, queries and values; "" with a response
	Policies  []string // see Attempt.Policies
}

// BreakerStatus is the state of a circuit.
type BreakerStatus struct {
	State BreakerState

	// Calls and Failures count the results of attempts in the Breaker's last Window. If the
	// circuit is not closed, they are the results that opened it.
	Calls, Failures int

	// Openings is how often a closed circuit has opened in the last 5 min.
	Openings int

	Opening

	Since          time.Time // the time of the last change; zero: there is no circuit
	NotBefore      time.Time // the next request may be sent then; zero: now
	SlowStartLimit float64   // maximum of requests in flight; below 1 means one with pauses, and zero no limit
	FailingSince   time.Time // the first failure of the outage; zero: the circuit is closed
	Waiting        int       // calls that wait for the circuit
}

// State returns the state of the Transport. Before the first call it is empty, and fields may
// still be set. It has at most MaxScopes scopes, and those with a circuit of a shared Breaker that
// is not closed. Scopes are copied one after the other, not at one instant. State is safe for
// concurrent use and changes nothing.
func (t *Transport) State() State {
	now := time.Now()
	s := State{At: now}
	if t.used.Load() {
		s.Policy = t.config.policy.Load().withDefaults() // a copy of its Stream
		s.Scopes = t.config.state(now)
	}
	return s
}

func (c *config) state(now time.Time) []ScopeState {
	known := c.knownScopes(now)
	breaker, at := c.breaker.circuits(now), now.Sub(c.origin)
	scopes := make([]ScopeState, len(known))
	for i := range known {
		key, r := known[i].Key, known[i].record
		s := &scopes[i]
		s.Scope, s.Priority = key.Name, Priority(key.Class)
		circuit, bucket := breaker.Find(key), c.budget.peek(key.Name)
		if r != nil {
			circuit, bucket = r.circuit, r.bucket
		}
		b := circuit.Status(now)
		s.Breaker = BreakerStatus{
			State: BreakerState(b.State), Calls: b.Calls, Failures: b.Failures, Openings: b.Openings, Opening: Opening(b.Opening), Since: b.Since,
			NotBefore: b.NotBefore, SlowStartLimit: b.Limit, FailingSince: b.Outage, Waiting: b.Waiting,
		}
		s.Budget = BudgetStatus(c.budget.status(bucket, now))
		if r != nil {
			r.describe(s, c.origin, at)
		}
	}
	c.rateLimit.describe(scopes, known, now)
	return scopes
}

type knownScope struct {
	scope.Key

	record *record
}

// knownScopes returns the scopes of the State, sorted with compareKeys.
func (c *config) knownScopes(now time.Time) []knownScope {
	known := make([]knownScope, 0, c.records.Len())
	for name, s := range c.records.All {
		for r, p := range s.all() {
			known = append(known, knownScope{scope.Key{Name: name, Class: int8(p)}, r})
		}
	}
	c.breaker.circuits(now).NotClosed(func(key scope.Key) {
		s := c.records.Peek(key.Name)
		if s != nil && s.byPriority[key.Class-int8(PriorityBatch)].Load() != nil {
			return
		}
		known = append(known, knownScope{key, nil})
		if s == nil && key.Class != int8(PriorityDefault) {
			known = append(known, knownScope{scope.Key{Name: key.Name}, nil}) // State shows the shared quotas at the scope itself
		}
	})
	slices.SortFunc(known, func(a, b knownScope) int { return compareKeys(a.Key, b.Key) })
	return slices.CompactFunc(known, func(a, b knownScope) bool { return a.Key == b.Key })
}

// compareKeys orders scopes by name, each before its priorities.
func compareKeys(a, b scope.Key) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(field.FormatPriority(a.Class), field.FormatPriority(b.Class)))
}

func (l *RateLimit) describe(scopes []ScopeState, known []knownScope, now time.Time) {
	l.engine().Each(now, func(name string, q quota.Quota) {
		i, ok := slices.BinarySearchFunc(known, scope.Key{Name: name}, func(s knownScope, key scope.Key) int { return compareKeys(s.Key, key) })
		if ok {
			scopes[i].Quotas = append(scopes[i].Quotas, QuotaStatus(q))
		}
	})
	for i := range scopes {
		slices.SortFunc(scopes[i].Quotas, func(a, b QuotaStatus) int {
			return cmp.Or(strings.Compare(a.Bucket, b.Bucket), strings.Compare(a.Key, b.Key), cmp.Compare(a.Remaining, b.Remaining), a.Reset.Compare(b.Reset))
		})
	}
}
