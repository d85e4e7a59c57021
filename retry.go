package resilienthttp

import (
	"crypto/sha256"
	"errors"
	"hash/maphash"
	"io"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/google/uuid"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/retryloop"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// retryState is the part of a call that is needed only after the first attempt.
type retryState struct {
	later   []*attempt         // the attempts after the first, in the order of their starts
	next    *attempt           // the last retry that was prepared
	due     time.Time          // when the next retry may be sent
	body    io.ReadCloser      // its body, from GetBody; nil: none, or it is sent
	bodyErr error              // the error of GetBody
	wait    time.Duration      // the last result of the Backoff
	permit  retrybudget.Permit // the tokens of the next retry
	series  waitSeries
	waiting bool // the call waits before a retry
}

// release releases the tokens and the body of a retry that is not sent.
func (s *retryState) release() {
	s.permit.Cancel()
	if body := s.body; body != nil {
		s.body = nil
		_ = body.Close()
	}
}

func (c *call) retryState() *retryState {
	if c.retries == nil {
		c.retries = &retryState{}
	}
	return c.retries
}

// retry makes retries after the first attempt failed. It sets c.last or c.failure.
func (c *call) retry() {
	err := retryloop.Run(c.ctx, retryloop.Hooks{ShouldRetry: c.shouldRetry, Prepare: c.prepareRetry, Do: func() { c.exchange(c.retries.next) }})
	if err == nil {
		return
	}
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		if ended := c.ctx.Err(); ended != nil {
			err = ended
		}
		failed = c.canceled(err)
	}
	c.fail(failed)
}

// shouldRetry decides whether the last attempt is retried, and at what time.
func (c *call) shouldRetry() (at time.Time, retry bool) {
	last := c.last
	if !last.report.Verdict.retryable() {
		return time.Time{}, false
	}
	if gone := c.ctx.Err(); gone != nil {
		if last.report.Response == nil {
			c.fail(c.canceled(gone))
		}
		return time.Time{}, false
	}
	wait, reason := c.planRetry(last)
	if last.report.StopReason = reason; reason != nil {
		last.report.RetryWait = max(last.askedWait, 0)
		return time.Time{}, false
	}
	last.report.RetryWait = wait
	if c.traced {
		c.traceAttempt(retryWait, &last.report)
	}
	c.setRetryWaiting(true)
	last.discard() // the drain is a part of the wait
	return c.retries.due, true
}

// planRetry decides about a retry. It reserves the next wait of the series, a body, and then the
// tokens of the budget. reason is the StopReason if there is no retry.
func (c *call) planRetry(last *attempt) (wait time.Duration, reason error) {
	switch {
	case !c.repeatable && !last.noWork:
		return 0, ErrNotIdempotent
	case !c.replayable:
		return 0, ErrNotReplayable
	case c.number >= c.maxAttempts(), c.retries != nil && c.retries.series.over:
		return 0, c.whyNoAttempt()
	case last.end == endTimeout && c.policy.AttemptTimeout == 0: // after maxResponseTime
		return 0, c.whyNoAttempt()
	case c.single:
		return 0, ErrSingleAttempt
	}
	now := time.Now()
	state := c.retryState()
	wait = c.backoff(last, now)
	at := now.Add(wait)
	blocked := c.blockedUntil(now) // zero: not blocked; differences to it saturate
	longest := c.policy.MaxRetryAfter
	switch {
	case c.record.circuit.Rejects(at, true) != nil:
		return 0, ErrBreakerOpen
	case longest > 0 && (last.askedWait > longest || blocked.Sub(at) > longest):
		return 0, ErrRetryAfter
	case c.spare(at) < 0 || c.spare(blocked) < 0:
		return 0, ErrDeadline
	case c.hasBody && !c.getBody():
		return 0, ErrNotReplayable
	}
	if state.permit == (retrybudget.Permit{}) { // otherwise AdaptiveTimeout took the tokens
		permit, ok := c.takeTokens(now, retrybudget.Request{
			Slow:     last.timedOut() && last.end != endEarly,
			Batch:    c.priority == PriorityBatch,
			Rejected: last.responded(http.StatusTooManyRequests) && last.askedWait <= 0,
		})
		if !ok {
			return 0, ErrBudgetExhausted
		}
		state.permit = permit
	}
	state.due = at
	return wait, nil
}

// takeTokens takes the tokens for a retry. The caller must call Done or Cancel on the permit.
func (c *call) takeTokens(now time.Time, r retrybudget.Request) (retrybudget.Permit, bool) {
	if c.record.bucket == nil {
		return retrybudget.Permit{}, true
	}
	return c.record.bucket.Admit(now, &c.budget.rules, r)
}

// getBody gets the body of the retry before the failed response is closed. Without a body, that
// response is the result of the call.
func (c *call) getBody() bool {
	state := c.retries
	if state.body, state.bodyErr = c.newBody(); state.bodyErr == nil {
		return true
	}
	now := time.Now() // GetBody may have taken long
	c.waited += now.Sub(c.accounted)
	c.accounted = now
	return false
}

// spare returns how much later than the given time an attempt could start and still get its
// response before the deadline. It is negative if the response would be too late.
func (c *call) spare(at time.Time) time.Duration {
	if c.deadline.IsZero() {
		return math.MaxInt64
	}
	return c.deadline.Sub(at) - c.reserve(0)
}

// reserve returns the time before the deadline that a response and its body need. It is the time
// of a quick response of the scope, at least the given time, and enough for a deadline header.
func (c *call) reserve(response time.Duration) time.Duration {
	least := minLeft
	if c.sendsDeadline {
		least += c.deadlineHeader.Margin
	}
	return max(least, max(c.record.responses.Get(), response)+c.bodyDuration())
}

// earlyWaits are the waits before retries, before jitter. The last wait uses the remaining time.
// See docs/backoff.md.
var earlyWaits = [defaultMaxAttempts - 2]time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond, 5 * time.Second} //nolint:gochecknoglobals // never written to

const (
	afterOverload = 2 // the early wait with which the series begins after overload
	afterTimeout  = 3 // the early wait after the first timeout of a healthy server

	recentSuccess = 2500 * time.Millisecond // a success in this time means that the server was healthy before a timeout
	nearEnd       = time.Minute             // a deadline within this time is near
	seriesTime    = 10 * time.Second        // sum of all waits without a near deadline
	minLast       = time.Second             // minimum of the last wait without a near deadline
	minLeftBefore = 1.75                    // an early wait needs this multiple of its length; otherwise the last wait follows
)

// waitSeries is the progress of a call in its waits before retries.
type waitSeries struct {
	step     int       // the number of the latest early wait
	over     bool      // the final wait was chosen
	timedOut bool      // the short wait after a timeout was chosen
	end      time.Time // zero: a near deadline ends the series, or it has not begun
}

// backoff chooses the wait before the next attempt. The wait that the server asks for is added to
// the result of Policy.Backoff. By default it is a minimum, and up to half of it is added if the
// deadline leaves time.
func (c *call) backoff(failed *attempt, now time.Time) time.Duration {
	state, asked := c.retries, max(failed.askedWait, 0)
	if own := c.policy.Backoff; own != nil {
		state.wait = min(max(own(c.number, state.wait), 0), retryafter.Max)
		return state.wait + asked
	}
	if failed.end == endEarly {
		return 0 // the attempt itself took the time of a wait
	}
	wait := c.nextWait(failed, now)
	state.wait = wait - randomUpTo(wait/4)
	return max(state.wait, asked+randomUpTo(min(asked/2, max(c.spare(now.Add(asked)), 0))))
}

// nextWait returns the next wait of the series, before jitter.
func (c *call) nextWait(failed *attempt, now time.Time) time.Duration {
	s := &c.retries.series
	s.step++
	switch {
	case c.scopeFails:
		s.over = true
	case failed.timedOut() && !s.timedOut && c.record.succeededWithin(recentSuccess, now.Sub(c.origin)):
		s.timedOut, s.step = true, max(s.step, afterTimeout)
	case failed.timedOut():
		s.over = true
	case failed.report.notSent, failed.responded(http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded):
		s.step = max(s.step, afterOverload)
	}
	attempts, left := c.policy.MaxAttempts, c.timeLeft(failed, now)
	if attempts > defaultMaxAttempts {
		s.step = min(s.step, len(earlyWaits))
	}
	s.over = s.over || s.step > len(earlyWaits) || c.number > max(attempts-2, 1)
	if s.over {
		return left
	}
	wait := earlyWaits[s.step-1]
	if minLeftBefore*float64(wait) > float64(left) {
		s.over = true
		return left
	}
	if s.timedOut {
		s.step = len(earlyWaits)
	}
	return wait
}

// timeLeft returns the longest wait with which a usual response still arrives in time. Without a
// near deadline it is the rest of seriesTime, which begins here.
func (c *call) timeLeft(failed *attempt, now time.Time) time.Duration {
	s := &c.retries.series
	if s.end.IsZero() && (c.deadline.IsZero() || c.deadline.Sub(now) > nearEnd) {
		s.end = now.Add(seriesTime)
	}
	switch {
	case s.end.IsZero():
		return max(c.deadline.Sub(now)-c.reserve(failed.report.Latency), 0)
	case c.policy.MaxAttempts > defaultMaxAttempts:
		return seriesTime // the caller wants many attempts, so each last wait may take this long
	}
	return max(s.end.Sub(now), minLast)
}

// prepareRetry prepares the retry after its wait. A gate may reject it.
func (c *call) prepareRetry() error {
	now := time.Now()
	c.setRetryWaiting(false)
	c.waited += now.Sub(c.accounted)
	c.last.report.RetryWait, c.accounted = c.waited, now
	c.number++
	next := &attempt{call: c, report: Attempt{Number: c.number}}
	c.retries.next = next
	if err := c.prepare(next); err != nil {
		return err
	}
	return nil
}

func (a *attempt) timedOut() bool {
	return a.end == endTimeout || a.end == endEarly || a.end == endError && neterr.TimedOut(a.report.Err)
}

func (a *attempt) responded(statuses ...int) bool {
	return a.end == endResponse && slices.Contains(statuses, a.report.Response.StatusCode)
}

// recordTime records how much time the attempt's record contains, with the wait for copies.
func (c *call) recordTime(a *attempt) {
	c.accounted, c.waited = a.report.Start.Add(a.report.Latency), 0
	if a.hedged == nil || !a.hedged.waited && len(a.hedged.copies) == 0 {
		return
	}
	now := time.Now()
	a.report.RetryWait, c.accounted = max(now.Sub(c.accounted), 0), now
	if c.last == a {
		c.waited = a.report.RetryWait
	}
}

// recordTrailingWait records the wait after the last attempt. If copies follow the attempt, it is
// the attempt's RetryWait; otherwise it is the call's QueueWait.
func (c *call) recordTrailingWait() {
	if c.retries != nil && len(c.retries.later) > 0 && c.last != c.retries.later[len(c.retries.later)-1] {
		c.last.report.RetryWait = c.waited
	} else {
		c.queueWait += c.waited
	}
	c.waited = 0
}

// maxAttempts returns the maximum number of attempts of the call. It is at most two if an outer
// client is known to retry and OwnsRetries is false.
func (c *call) maxAttempts() int {
	if n := c.policy.MaxAttempts; n <= 2 || !c.outerMayRetry() {
		return n
	}
	return 2
}

// whyNoAttempt returns the reason why the call may make no further attempt.
func (c *call) whyNoAttempt() error {
	if c.number < c.policy.MaxAttempts && c.outerMayRetry() {
		return ErrSingleAttempt
	}
	return ErrMaxAttempts
}

// The fields in which SDKs report their retries: of AWS ("attempt=1; max=3"), of SDKs that
// Stainless generates for OpenAI, Anthropic and others (a count), and of Google (for example
// "gccl-attempt-count/1").
const (
	awsAttempts      = "Amz-Sdk-Request"
	awsInvocation    = "Amz-Sdk-Invocation-Id"
	stainlessRetries = "X-Stainless-Retry-Count"
	googleClient     = "X-Goog-Api-Client"
	googleAttempt    = "gccl-attempt-count/"
	googleInvocation = "gccl-invocation-id/"
)

// outerLayerRetries reports whether an outer SDK owns the retries of the request: it makes more
// than one attempt, or this attempt is not its first.
func outerLayerRetries(h http.Header) bool {
	if value := headerValue(h, awsAttempts); value != "" && max(fieldNumber(value, "; ", "max="), fieldNumber(value, "; ", "attempt=")) > 1 {
		return true
	}
	if value := headerValue(h, stainlessRetries); value != "" && fieldNumber(value, " ", "") > 0 {
		return true
	}
	value := headerValue(h, googleClient)
	return value != "" && fieldNumber(value, " ", googleAttempt) > 1
}

// fieldValue returns the text after the prefix, in the first part of a value that has the prefix.
func fieldValue(value, separator, prefix string) string {
	for part := range strings.SplitSeq(value, separator) {
		if rest, ok := strings.CutPrefix(part, prefix); ok {
			return rest
		}
	}
	return ""
}

// fieldNumber returns fieldValue as a number, or 0.
func fieldNumber(value, separator, prefix string) int {
	n, err := strconv.Atoi(fieldValue(value, separator, prefix))
	if err != nil {
		return 0
	}
	return n
}

// invocationKey derives a key from the random UUID that an outer SDK sends with all its attempts.
// A random key would differ between them. It returns "" without a UUID.
func invocationKey(req *http.Request) string {
	id := headerValue(req.Header, awsInvocation)
	if id == "" {
		id = fieldValue(headerValue(req.Header, googleClient), " ", googleInvocation)
	}
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 4 {
		return ""
	}
	// One invocation may send several requests, for example to several regions.
	text := id + " " + method(req) + " " + req.URL.String() + " " + strconv.FormatInt(req.ContentLength, 10)
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(text), 8).String()
}

// outerMayRetry reports whether the outer client is known to retry without a count of its
// retries: stripe-go, Vault's client, or azcore ("azsdk-go-azblob/v1.6.0").
func (c *call) outerMayRetry() bool {
	h := c.request.Header
	return !c.ownsRetries && (headerValue(h, "X-Stripe-Client-User-Agent") != "" || headerValue(h, "X-Vault-Request") != "" ||
		strings.Contains(headerValue(h, "User-Agent"), "azsdk-"))
}

// recordFailure remembers the request of a failed call, and forgets a repeated request that
// succeeded.
func (c *call) recordFailure() {
	if c.single && !c.repeated || c.last == nil {
		return
	}
	switch {
	case c.failure != nil || c.last.report.Verdict.retryable():
		c.failedCalls.add(c.requestID(), time.Since(c.origin))
	case c.repeated:
		c.failedCalls.remove(c.requestID())
	}
}

// requestID identifies a request that an outer layer sends again. It uses the caller's
// idempotency key, or the pointers that shallow copies of an http.Request share (http.Client and
// go-retryablehttp make shallow copies). A client that is known to retry may make deep copies, so
// its requests are identified by method and URL.
type requestID struct {
	text   uint64 // hash of key, scope, method, path and query; or 0
	url    weak.Pointer[url.URL]
	header uintptr
}

func (c *call) requestID() requestID {
	req := c.request
	if c.callerKey || c.outerMayRetry() {
		key := ""
		if c.callerKey {
			key = c.key
		}
		return requestID{text: maphash.Comparable(c.failedCalls.seed, [...]string{key, c.scope, method(req), req.URL.Path, req.URL.RawQuery})}
	}
	return requestID{url: weak.Make(req.URL), header: reflect.ValueOf(req.Header).Pointer()}
}

const (
	repeatWindow   = time.Minute // maximum time from a failure to its repetition by an outer layer; azcore waits so long
	maxRepeats     = 10          // consecutive failures of one request, after which it counts as a new one
	maxFailedCalls = 1024
)

// failedCalls are the requests that failed in the last minute. It is safe for concurrent use.
type failedCalls struct {
	until    atomic.Int64 // when the last of them expires, since the origin; zero means none
	seed     maphash.Seed
	requests scope.Map[requestID, failedCall]
}

func newFailedCalls() *failedCalls {
	return &failedCalls{seed: maphash.MakeSeed(), requests: scope.Map[requestID, failedCall]{Max: maxFailedCalls}}
}

// failedCall is the last failure of a request.
type failedCall struct {
	mu    sync.Mutex
	at    time.Duration
	times int // consecutive failures; zero means that it has succeeded since
}

// has reports whether the request failed in the last minute.
func (f *failedCalls) has(id requestID, now time.Duration) bool {
	call := f.requests.Peek(id)
	if call == nil {
		return false
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	return call.times > 0 && call.times < maxRepeats && now-call.at < repeatWindow
}

func (f *failedCalls) add(id requestID, now time.Duration) {
	call := f.requests.Get(id)
	call.mu.Lock()
	defer call.mu.Unlock()
	if call.times >= maxRepeats || now-call.at >= repeatWindow {
		call.times = 0
	}
	call.at = now
	call.times++
	f.until.Store(int64(now + repeatWindow))
}

func (f *failedCalls) remove(id requestID) {
	if call := f.requests.Peek(id); call != nil {
		call.mu.Lock()
		defer call.mu.Unlock()
		call.times = 0
	}
}
