package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/route"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// record is the state of one scope and priority in a Transport.
type record struct {
	*scopeRecords

	circuit  *circuit.Circuit
	protocol atomic.Uint32 // of the last connection of a Connections

	inFlight             latency.InFlight
	queued, retryWaiting atomic.Int32
	rest                 route.Rest // of package endpoints

	failing   atomic.Bool   // the last finished call failed, and nothing has succeeded since
	succeeded atomic.Int64  // time of the last success since the origin, to successInterval; zero means never
	created   time.Duration // since the origin

	responses latency.Quick // successes
	bodies    latency.Quick // durations of bodies after the headers
	ended     endCounts

	// latencies has the successes, for State and Hedge. A server that fails fast must not shorten
	// the delay of hedges. The quick latencies are apart, because the time that a retry needs before
	// the deadline must not rise while the server is slow.
	latencies latency.Window
	usual     latency.Usual

	slowest slowestCall
	failure atomic.Pointer[lastFailure] // nil: no failure yet
	said    atomic.Pointer[scopeLog]    // nil: nothing yet
}

func (r *record) describe(s *ScopeState, origin time.Time, at time.Duration) {
	s.InFlight, s.Queued, s.RetryWaiting = r.inFlight.Count(), int(r.queued.Load()), int(r.retryWaiting.Load())
	s.Latency = r.latency(at)
	s.Slowest, s.Failure = r.slowest.read(at), r.failure.Load().read()
	s.Responses = r.ended.read(at, window.Buckets, origin)
	minute := r.ended.read(at, recentBuckets, origin)
	s.LastMinute = MinuteStatus{Calls: minute.Calls, Failures: minute.Failures()}
	s.Responses.History, s.Responses.HistoryAt = make([]MinuteStatus, window.Buckets), origin.Add(at.Truncate(responsesWindow/window.Buckets))
	n, calls := r.ended.counts(at, window.Buckets)
	answersFail := s.Responses.Failures() > calls-n[classSuccess]-n[classClientError]
	newer := MinuteStatus{}
	for i := range s.Responses.History {
		n, calls := r.ended.counts(at, i+1)
		all := MinuteStatus{Calls: calls, Failures: calls - n[classSuccess]}
		if !answersFail {
			all.Failures -= n[classClientError]
		}
		s.Responses.History[window.Buckets-1-i] = MinuteStatus{Calls: max(all.Calls-newer.Calls, 0), Failures: max(all.Failures-newer.Failures, 0)} // calls end meanwhile
		newer = all
	}
}

func (r *record) latency(at time.Duration) LatencyStatus {
	recent := r.latencies.Histogram(at)
	quantile := func(q float64) time.Duration { return min(recent.Quantile(q), recent.Slowest) } // not the end of its bin
	s := LatencyStatus{
		P50: quantile(0.5), P95: quantile(0.95), P99: quantile(0.99), Samples: recent.Samples,
		InFlightAge: r.inFlight.Age(at), Slow: r.usual.IsSlow(&recent, r.attemptsAreOld(at)),
	}
	s.UsualP50, s.UsualP99, _ = r.usual.Get()
	return s
}

func (r *record) attemptsAreOld(at time.Duration) bool {
	return r.usual.IsOld(r.inFlight.Age(at), r.inFlight.Count())
}

// made returns the value of a pointer, which its first use creates.
func made[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// successInterval is how often a success is noted. The processors of a busy client must not
// write to shared memory at each call.
const successInterval = 100 * time.Millisecond

// noteSuccess notes a success at a time since the origin. It reports whether that was a
// sample of the latencies.
func (r *record) noteSuccess(at, took time.Duration) (sampled bool) {
	if r.failing.Load() {
		r.failing.Store(false)
	}
	if last := r.succeeded.Load(); last != 0 && at-time.Duration(last) < successInterval {
		return false
	}
	r.succeeded.Store(int64(max(at, 1)))
	r.responses.Follow(took)
	r.usual.Follow(at, &r.latencies)
	return true
}

// succeededWithin reports whether an attempt has succeeded in the time before at.
func (r *record) succeededWithin(before, at time.Duration) bool {
	last := r.succeeded.Load()
	return last > 0 && at-time.Duration(last) <= before
}

func (a *attempt) noteOutcome(now time.Time) {
	r, at := a.visit.Record, now.Sub(a.call.origin)
	switch {
	case a.outcome == circuit.Success:
		r.latencies.Add(at, a.report.Latency)
		a.sampled = r.noteSuccess(at, a.report.Latency)
	case a.end == endSuperseded && a.timers.hedgeDelay > 0:
		// The latency was more than the delay. The age at which the hedge won would raise the
		// next delay, which would raise the next age. The delay would do the same, because it is
		// above a quantile.
		r.latencies.Add(at, a.timers.hedgeDelay-1)
	}
}

func (a *attempt) noteFailure(now time.Time) {
	if class := a.class(); class != classSuccess && class != classNone {
		made(&a.visit.Record.failure).note(now, &a.report)
		a.visit.Record.remember()
		a.visit.Record.ended.fail(a.call.failingSince(a.visit.Record))
	}
}

func (a *attempt) class() responseClass {
	resp, err := a.report.Response, a.report.Err
	switch {
	case a.end == endCanceled || a.end == endSuperseded:
		return classNone
	case a.end == endTimeout, a.end == endDeadline, resp == nil && neterr.TimedOut(err):
		return classTimeout
	case resp == nil:
		return classNetworkError
	case a.report.Verdict == VerdictSuccess:
		return classSuccess
	}
	switch status := a.report.status(); {
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return classThrottled
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return classClientError
	}
	return classServerError
}

func (c *call) noteEnd(resp *http.Response) {
	a := c.last
	failed := a != nil && (a.outcome == circuit.Failure || a.outcome == circuit.Timeout)
	if failed && a.report.Verdict.retryable() {
		if failing := &a.visit.Record.failing; !failing.Load() {
			failing.Store(true)
		}
	}
	end := c.timeline.accounted // the end of a call that had one attempt
	if c.retries != nil || c.failure != nil {
		end = time.Now()
	}
	took, at := end.Sub(c.start), end.Sub(c.origin)
	c.timeline.latency = took
	c.record.ended.add(c.failingSince(c.record), at, c.class())
	if c.record.slowest.isSlower(at, took) {
		c.record.slowest.note(at, c.status(resp, took))
	}
}

// failingSince returns the time from which the scope fails if this call is the first to fail: its
// start, or a later success.
func (c *call) failingSince(r *record) time.Duration {
	return max(c.start.Sub(c.origin), time.Duration(r.succeeded.Load()))
}

func (c *call) class() responseClass {
	switch {
	case c.failure == nil:
		return c.last.class()
	case c.failure.byGate():
		return classRejected
	case errors.Is(c.failure.Err, context.Canceled):
		return classNone
	case c.failure.Reason == ErrDeadline:
		return classTimeout
	case c.last != nil:
		return c.last.class()
	}
	return classNone
}

func (c *call) status(resp *http.Response, took time.Duration) CallStatus {
	var one [1]Attempt // most calls need no memory
	done := Call{Attempts: c.appendAttempts(one[:0]), QueueWait: c.timeline.queued}
	s := CallStatus{Start: c.start, Latency: took}
	s.QueueWait, s.InFlight, s.RetryWait = done.Timings()
	for i := range done.Attempts {
		if !done.Attempts[i].Hedge {
			s.Attempts++
		}
	}
	if resp != nil {
		s.Status = resp.StatusCode
	} else {
		s.Err = c.failure.cause()
	}
	return s
}

// responseClass is how a call, or its last attempt, ended.
type responseClass uint8

const (
	classNone responseClass = iota // the caller canceled it, or another copy had its response first
	classSuccess
	classClientError
	classServerError
	classNetworkError
	classTimeout
	classThrottled // 408 or 429
	classRejected  // by the breaker or the rate limit
	classes
)

// endCounts counts the calls by how they ended. It takes no lock.
type endCounts struct {
	failing   atomic.Int64                                // the start of the first call that failed since the last success, since the origin; zero means none
	failed    atomic.Int64                                // the calls that failed since then
	successes window.Counter                              // and nothing else
	others    [classes / 2]atomic.Pointer[window.Counter] // each of two classes; nil: there was none
}

// responsesWindow is the time that ResponseStatus covers, and recentBuckets the number of the newest
// of its buckets that are ScopeState.LastMinute: 56 to 75 s.
const (
	responsesWindow = 5 * time.Minute
	recentBuckets   = 4
)

func (e *endCounts) add(start, at time.Duration, class responseClass) {
	if class == classNone {
		return
	}
	counter := e.counter(class)
	if counter == nil {
		counter = made(&e.others[class/2])
	}
	second := uint32(class % 2)
	counter.Add(at, responsesWindow, 1-second, second)
	switch {
	case class != classSuccess:
		e.fail(start)
		e.failed.Add(1)
	case e.failing.Load() != 0:
		e.failed.Store(0)
		e.failing.Store(0)
	}
}

func (e *endCounts) fail(start time.Duration) {
	if e.failing.Load() == 0 {
		e.failing.CompareAndSwap(0, int64(max(start, 1)))
	}
}

// counter is that of a class, with the one beside it; nil if there was none.
func (e *endCounts) counter(class responseClass) *window.Counter {
	if class/2 == classSuccess/2 {
		return &e.successes
	}
	return e.others[class/2].Load()
}

func (e *endCounts) counts(at time.Duration, buckets int) (n [classes]int, calls int) {
	for pair := range classes / 2 {
		if c := e.counter(2 * pair); c != nil {
			first, second := c.Newest(at, responsesWindow, buckets)
			n[2*pair], n[2*pair+1] = int(first), int(second)
			calls += n[2*pair] + n[2*pair+1]
		}
	}
	return n, calls
}

func (e *endCounts) read(at time.Duration, buckets int, origin time.Time) ResponseStatus {
	n, calls := e.counts(at, buckets)
	s := ResponseStatus{
		Calls:        calls,
		ClientErrors: n[classClientError] + n[classThrottled], Throttled: n[classThrottled], ServerErrors: n[classServerError],
		NetworkErrors: n[classNetworkError], Timeouts: n[classTimeout], Rejected: n[classRejected],
	}
	if since := e.failing.Load(); since != 0 {
		s.Since, s.CallsSince = origin.Add(time.Duration(since)), int(e.failed.Load())
	}
	return s
}

func (c *call) setRetryWaiting(waiting bool) {
	if c.retries == nil || c.retries.waiting == waiting {
		return
	}
	c.retries.waiting = waiting
	if waiting {
		c.record.retryWaiting.Add(1)
	} else {
		c.record.retryWaiting.Add(-1)
	}
}

// slowestCall is the slowest call of this period and of the one before. A call that is not
// slower takes no lock.
type slowestCall struct {
	period atomic.Int64 // its number, from 1
	least  atomic.Int64 // the latency that a call must exceed in it

	mu    sync.Mutex
	calls [2]CallStatus // of the period, and of the one before
}

const slowestPeriod = 30 * time.Second

func periodOf(at time.Duration) int64 { return int64(max(at, 0)/slowestPeriod) + 1 }

func (s *slowestCall) isSlower(at, took time.Duration) bool {
	is, has := periodOf(at), s.period.Load()
	return is > has || is == has && int64(took) > s.least.Load()
}

func (s *slowestCall) note(at time.Duration, c CallStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSlower(at, c.Latency) { // another goroutine may have been first
		s.begin(periodOf(at))
		s.calls[0] = c
		s.least.Store(int64(c.Latency))
	}
}

// begin begins a period. The lock is held.
func (s *slowestCall) begin(period int64) {
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

func (s *slowestCall) read(at time.Duration) CallStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(periodOf(at))
	if s.calls[1].Latency > s.calls[0].Latency {
		return s.calls[1]
	}
	return s.calls[0]
}

// lastFailure is one of the last failures: of those at once, one is enough.
type lastFailure struct {
	mu   sync.Mutex
	last FailureStatus
}

const failureInterval = 10 * time.Millisecond

// note notes a failure, unless another goroutine does.
func (f *lastFailure) note(at time.Time, a *Attempt) {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if at.Sub(f.last.At) < failureInterval {
		return
	}
	f.last = FailureStatus{At: at, ErrorType: a.errorType(), Policies: a.Policies()}
	if a.Response != nil {
		f.last.Status = a.Response.StatusCode
	} else {
		f.last.Err = neterr.SafeText(a.Err)
	}
}

// read returns the failure. That of a nil lastFailure is the zero value.
func (f *lastFailure) read() FailureStatus {
	if f == nil {
		return FailureStatus{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
