package resilienthttp

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/statepage/status"
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

// The parts of a ScopeState. Package statepage/status documents their fields.
type (
	// ResponseStatus counts calls by the outcome of their last attempt. Its method Failures returns
	// the number of calls that failed.
	ResponseStatus = status.Responses

	// MinuteStatus counts the calls of the last minute and the failures among them.
	MinuteStatus = status.Minute

	// BudgetStatus is the content of the retry budget of a scope.
	BudgetStatus = status.Budget

	// QuotaStatus is one quota of a scope: of its server, RateLimit.Limit or RateLimit.MaxInFlight.
	QuotaStatus = status.Quota

	// LatencyStatus has the quantiles of the time to the response headers.
	LatencyStatus = status.Latency

	// CallStatus is one call, and where its time went.
	CallStatus = status.Call

	// FailureStatus is a failed attempt.
	FailureStatus = status.Failure
)

// BreakerStatus is the state of a circuit.
type BreakerStatus struct {
	State BreakerState

	// Calls and Failures count the results of attempts in the Breaker's last Window. If the
	// circuit is not closed, they are the results that opened it.
	Calls, Failures int

	// Openings is how often a closed circuit has opened in the last 5 min.
	Openings int

	status.Opening

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
			State: BreakerState(b.State), Calls: b.Calls, Failures: b.Failures, Openings: b.Openings, Opening: status.Opening(b.Opening), Since: b.Since,
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
