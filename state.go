package resilienthttp

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/priority"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// State is what a Transport knows at one time: what it refuses, how full the quotas
// are, how long answers take, and where the time of the slowest calls went.
type State struct {
	At     time.Time
	Scopes []ScopeState // by name, each before its priorities
}

// ScopeState is what is known of one scope, by default a host. Calls of each [Priority] have
// a circuit and figures of their own: those that are not of PriorityDefault are told of as
// scopes named "scope;batch" and "scope;critical". Budget and Quotas are of them all: the
// Budget is told with each, and the Quotas with the scope itself. What a Breaker, Budget or
// RateLimit knows that several Transports share is in the State of each of them; all
// else is of this Transport's own calls.
type ScopeState struct {
	Scope   string
	Breaker BreakerStatus
	Budget  BudgetStatus
	Quotas  []QuotaStatus // by bucket, those of several credentials one after the other; nil: none is known. Of a priority: what refuses it alone

	// InFlight are the attempts that were sent and have neither response headers nor an
	// error yet. Waiting are those in line for a turn of the rate limit, and Retrying the
	// calls that wait before a retry.
	InFlight, Queued, RetryWaiting int

	Latency LatencyStatus
	Slowest CallStatus    // the slowest call of the last 30 to 60 s that is over; zero: there was none
	Failure FailureStatus // the last failure, or one that came in the same moment; zero: there was none
}

// BreakerStatus is what the Breaker knows of a scope.
type BreakerStatus struct {
	State BreakerState

	// Calls and Failures are the results of the Breaker's last Window, of attempts: all
	// that say anything of the server, and the failures among them. Where the circuit is
	// not closed, they are those for which it opened.
	Calls, Failures int

	Since          time.Time // when it came into this state; zero: it has no circuit
	NotBefore      time.Time // requests are refused until then at least; zero: they are not
	SlowStartLimit float64   // of requests in flight, after slow failures; below 1 it is a pause after each; 0: none
}

// BudgetStatus is the bucket of retry tokens of a scope. Used and Remaining together are
// its capacity.
type BudgetStatus struct {
	Used      float64 // tokens that are missing until the bucket is full
	Remaining float64 // tokens for further retries; negative: the Budget has no limit
}

// QuotaStatus is one quota of a scope: what its server says of it, or the RateLimit's own
// Limit.
type QuotaStatus struct {
	// Bucket is what the server calls it, "requests" or "search/tokens" say; "" where it
	// has no name. That of the RateLimit's own Limit is "own limit".
	Bucket string

	Limit     int64     // 0: nobody has said, and Remaining means nothing
	Remaining int64     // as far as is known, those in flight taken off
	Reset     time.Time // when all of it is there again; zero: it is, or nobody knows

	// BlockedUntil is until when no request goes out because the server refuses them;
	// zero: it is open. (A quota that is used up waits for its Reset instead.)
	BlockedUntil time.Time
}

// LatencyStatus is how long it took to the response headers of what was answered in the
// last 45 to 60 s, with whatever status: to within a third, and never too low.
type LatencyStatus struct {
	P50, P95, P99   time.Duration
	Samples         int           // so many answers; 0: nothing is known
	AdaptiveTimeout time.Duration // the Transport's AdaptiveTimeout of a first attempt, below any AttemptTimeout; 0: there is none
}

// CallStatus is one call, and where its time went: Latency is Queued, Sent and Waited
// together, to a millisecond. It says nothing of the request but its scope.
type CallStatus struct {
	Start                                   time.Time
	Latency, QueueWait, InFlight, RetryWait time.Duration // see Call.Timings

	Attempts int    // those sent; copies among them, hedges not
	Status   int    // of the response; 0: there was none
	Err      string // then, why not, without paths, queries and values
}

// FailureStatus is how an attempt has failed, in the Breaker's sense, or with 429.
type FailureStatus struct {
	At     time.Time
	Status int    // of the response; 0: there was none
	Err    string // then, why not, without paths, queries and values
}

// State tells what the Transport knows now, for dashboards and health checks. It is safe
// for concurrent use, at any time; before the first call there is nothing to know, and
// fields may still be set after it. To ask changes nothing, and keeps no scope from
// being forgotten. The State is the caller's.
//
// Scopes are copied one after the other, so that calls hardly notice, with one lock held
// at a time: State is no snapshot of all of them in one instant. Those are told of which
// the Transport was last asked for, some 4096, and others whose circuit is not closed.
func (t *Transport) State() State {
	now := time.Now()
	s := State{At: now}
	if t.used.Load() {
		s.Scopes = t.config.state(now)
	}
	return s
}

func (c *config) state(now time.Time) []ScopeState {
	keys := c.known(now)
	breaker, at := c.breaker.withDefaults(now), now.Sub(c.since)
	scopes := make([]ScopeState, len(keys))
	for i := range keys {
		key := keys[i].Key
		s := &scopes[i]
		s.Scope = suffixed(key)
		s.Breaker = statusOf(breaker.Status(key, now))
		s.Budget = c.budget.status(scope.Key{Name: key.Name}, now)
		if r := keys[i].record; r != nil {
			r.describe(s, at)
			s.Latency.AdaptiveTimeout = c.policy.timeout(r, at)
		}
	}
	c.rateLimit.describe(scopes, keys, now)
	return scopes
}

// known are the scopes that are told of, sorted: each before its priorities.
func (c *config) known(now time.Time) []knownScope {
	keys := make([]knownScope, 0, c.scopes.Len())
	add := func(key scope.Key, r *scopeRecord) {
		if keys = append(keys, knownScope{key, r}); key.Class != int8(PriorityDefault) { // which has a part in what is shared
			base := scope.Key{Name: key.Name}
			keys = append(keys, knownScope{base, c.scopes.Peek(base)})
		}
	}
	c.scopes.All(func(key scope.Key, r *scopeRecord) bool {
		add(key, r)
		return true
	})
	c.breaker.withDefaults(now).NotClosed(func(key scope.Key) {
		if c.scopes.Peek(key) == nil {
			add(key, nil)
		}
	})
	slices.SortFunc(keys, byName)
	return slices.CompactFunc(keys, func(a, b knownScope) bool { return a.Key == b.Key })
}

// knownScope is a scope that is told of, with its record if it has one.
type knownScope struct {
	scope.Key

	record *scopeRecord
}

func byName(a, b knownScope) int {
	if order := strings.Compare(a.Name, b.Name); order != 0 {
		return order
	}
	return strings.Compare(priority.Format(a.Class), priority.Format(b.Class))
}

func statusOf(s circuit.Status) BreakerStatus {
	return BreakerStatus{
		State: BreakerState(s.State), Calls: s.Calls, Failures: s.Failures, Since: s.Since, NotBefore: s.NotBefore, SlowStartLimit: s.Limit,
	}
}

// describe adds to scopes, whose keys are those, what is known of their quotas.
func (l *RateLimit) describe(scopes []ScopeState, keys []knownScope, now time.Time) {
	place := make(map[scope.Key]int, len(keys))
	for i, key := range keys {
		place[key.Key] = i
	}
	var told []QuotaStatus // all in one piece: the first of a scope is a part of it
	l.engine().Each(now, func(q quota.Status) {
		i, known := place[scope.Key{Name: q.Scope}]
		if !known {
			return
		}
		if told == nil {
			told = make([]QuotaStatus, 0, len(keys))
		}
		s := QuotaStatus{Bucket: bucketName(&q), Limit: q.Limit, Remaining: q.Remaining, Reset: q.Reset, BlockedUntil: q.BlockedUntil}
		if quotas := &scopes[i].Quotas; *quotas != nil || len(told) == cap(told) {
			*quotas = append(*quotas, s)
		} else {
			told = append(told, s)
			*quotas = slices.Clip(told[len(told)-1:])
		}
	})
	for i := range scopes {
		if len(scopes[i].Quotas) > 1 {
			slices.SortFunc(scopes[i].Quotas, func(a, b QuotaStatus) int {
				return cmp.Or(strings.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Remaining, b.Remaining), a.Reset.Compare(b.Reset))
			})
		}
	}
}

// bucketName is what a person would call a quota.
func bucketName(q *quota.Status) string {
	switch {
	case q.Static:
		return "own limit"
	case q.Bucket == "":
		return q.Axis
	case q.Axis == "":
		return q.Bucket
	}
	return q.Bucket + "/" + q.Axis
}

// scopeRecord is what a Transport remembers of its calls to one scope, beside what the
// gates do.
type scopeRecord struct {
	inFlight, waiting, retrying atomic.Int32

	failing   atomic.Bool  // the last finished call failed, and nothing has succeeded since
	succeeded atomic.Int64 // when something last did, since the origin, to successEvery; 0: never

	answers   latency.Quick // the responses of those successes
	bodies    latency.Quick // from the headers until the end
	latencies latency.Window
	adapted   atomic.Pointer[latency.Adaptive] // nil: no policy wants it
	slowest   slowest
	failure   lastFailure
}

func (r *scopeRecord) describe(s *ScopeState, at time.Duration) {
	s.InFlight, s.Queued, s.RetryWaiting = int(r.inFlight.Load()), int(r.waiting.Load()), int(r.retrying.Load())
	late := r.latencies.Late(at)
	s.Latency.Samples = late.Quantiles(
		latency.Share{Of: 0.5, Took: &s.Latency.P50}, latency.Share{Of: 0.95, Took: &s.Latency.P95}, latency.Share{Of: 0.99, Took: &s.Latency.P99},
	)
	s.Slowest, s.Failure = r.slowest.read(at), r.failure.read()
}

// successEvery is how often a success is written down: a busy client must not write to
// memory that its processors share at each call.
const successEvery = 100 * time.Millisecond

// success records a success at a time since the origin.
func (r *scopeRecord) success(at, took time.Duration) {
	if r.failing.Load() {
		r.failing.Store(false)
	}
	if last := r.succeeded.Load(); last != 0 && at-time.Duration(last) < successEvery {
		return
	}
	r.succeeded.Store(int64(max(at, 1)))
	r.answers.Follow(took)
}

// succeededWithin reports whether something has succeeded in the time before at.
func (r *scopeRecord) succeededWithin(before, at time.Duration) bool {
	last := r.succeeded.Load()
	return last > 0 && at-time.Duration(last) <= before
}

// slowest is the slowest call of this period, and that of the one before. A call that is
// not slower takes no lock.
type slowest struct {
	period atomic.Int64 // which one it is, from 1
	least  atomic.Int64 // what a call must exceed in it

	mu    sync.Mutex
	calls [2]CallStatus // of the period, and the one before
}

const slowestPeriod = 30 * time.Second

func periodOf(at time.Duration) int64 { return int64(max(at, 0)/slowestPeriod) + 1 }

// beats reports whether a call that is over at a time since the origin is the slowest.
func (s *slowest) beats(at, took time.Duration) bool {
	is, has := periodOf(at), s.period.Load()
	return is > has || is == has && int64(took) > s.least.Load()
}

// keep notes a call that beats the others.
func (s *slowest) keep(at time.Duration, c *CallStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.beats(at, c.Latency) {
		return // somebody was quicker to tell of a slower one
	}
	s.turn(periodOf(at))
	s.calls[0] = *c
	s.least.Store(int64(c.Latency))
}

// turn begins a period. It is locked.
func (s *slowest) turn(period int64) {
	before := s.period.Load()
	if period <= before {
		return
	}
	s.calls[1], s.calls[0] = s.calls[0], CallStatus{}
	if period > before+1 {
		s.calls[1] = CallStatus{}
	}
	s.least.Store(0)
	s.period.Store(period)
}

func (s *slowest) read(at time.Duration) CallStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(periodOf(at))
	if s.calls[1].Latency > s.calls[0].Latency {
		return s.calls[1]
	}
	return s.calls[0]
}

// lastFailure is one of the last failures: of those that come at once, one is enough.
type lastFailure struct {
	mu   sync.Mutex
	last FailureStatus
}

// failed notes how an attempt has failed, if nobody else is about to.
func (f *lastFailure) failed(at time.Time, resp *http.Response, err error) {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if at.Sub(f.last.At) < failureEvery {
		return
	}
	f.last = FailureStatus{At: at}
	if resp != nil {
		f.last.Status = resp.StatusCode
	} else {
		f.last.Err = neterr.SafeText(err)
	}
}

// failureEvery is how often a failure is put into words.
const failureEvery = 10 * time.Millisecond

func (f *lastFailure) read() FailureStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// fly counts the attempt as in flight, and land as not so any more.
func (a *attempt) fly() {
	a.flying = true
	a.call.seen.inFlight.Add(1)
}

func (a *attempt) land() {
	if a.flying {
		a.flying = false
		a.call.seen.inFlight.Add(-1)
	}
}

// seeEnd notes how the attempt has ended.
func (a *attempt) seeEnd(outcome circuit.Outcome, now time.Time) {
	seen := a.call.seen
	a.learn(now)
	if a.fate == fateAnswered {
		seen.latencies.Add(now.Sub(a.call.since), a.record.Latency)
	}
	if outcome == circuit.Success {
		seen.success(now.Sub(a.call.since), a.record.Latency)
	}
	if outcome != circuit.Success && outcome != circuit.None {
		seen.failure.failed(now, a.record.Response, a.record.Err)
	}
}

// seeEnd notes how the call has ended, if it was a slow one.
func (c *call) seeEnd(resp *http.Response) {
	end := c.accounted // which is the end of a call that had one attempt
	if c.more != nil || c.failure != nil {
		end = time.Now()
	}
	if took, at := end.Sub(c.start), end.Sub(c.since); c.seen.slowest.beats(at, took) {
		c.seen.slowest.keep(at, c.status(resp, took))
	}
}

func (c *call) status(resp *http.Response, took time.Duration) *CallStatus {
	done := Call{Attempts: c.attempts(), QueueWait: c.queued}
	s := &CallStatus{Start: c.start, Latency: took}
	s.QueueWait, s.InFlight, s.RetryWait = done.Timings()
	for i := range done.Attempts {
		if !done.Attempts[i].Hedge {
			s.Attempts++
		}
	}
	if resp != nil {
		s.Status = resp.StatusCode
	} else {
		s.Err = c.failure.why()
	}
	return s
}

// resting notes whether the call waits before a retry.
func (c *call) resting(rests bool) {
	if more := c.more; more != nil && more.rests != rests {
		more.rests = rests
		if rests {
			c.seen.retrying.Add(1)
		} else {
			c.seen.retrying.Add(-1)
		}
	}
}
