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

// retryState is what only calls with more than one attempt need.
type retryState struct {
	later   []*attempt         // after the first, in the order of their starts
	next    *attempt           // the last one that was prepared
	due     time.Time          // when the next one may be sent
	body    io.ReadCloser      // of the next one, from GetBody; nil: it is sent, or there is none
	bodyErr error              // of GetBody
	wait    time.Duration      // the last result of the Backoff
	permit  retrybudget.Permit // of the next one
	series  waitSeries
	waiting bool // the call waits before a retry
}

// release returns what a retry that was not sent holds.
func (s *retryState) release() {
	s.permit.Cancel()
	if body := s.body; body != nil {
		s.body = nil
		_ = body.Close() // the error has no receiver
	}
}

func (c *call) retryState() *retryState {
	if c.retries == nil {
		c.retries = &retryState{}
	}
	return c.retries
}

// retry repeats the failed first attempt. It leaves the last outcome in c.last, or in
// c.failure.
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

// shouldRetry decides whether the last attempt is followed by another, and if so, when.
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

// planRetry decides about a retry. It takes what the retry needs: the next wait of the series,
// a body, and last the tokens of the budget. reason is why there is no retry.
func (c *call) planRetry(last *attempt) (wait time.Duration, reason error) {
	switch {
	case !c.repeatable && !last.noWork:
		return 0, ErrNotIdempotent
	case !c.replayable:
		return 0, ErrNotReplayable
	case c.number >= c.maxAttempts(), c.retries != nil && c.retries.series.over:
		return 0, c.whyNoAttempt()
	case last.end == endTimeout && c.policy.AttemptTimeout == 0: // maxResponseTime is over
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
	if state.permit == (retrybudget.Permit{}) { // else it is paid already
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

// takeTokens takes the tokens for a retry. The permit needs Done or Cancel.
func (c *call) takeTokens(now time.Time, r retrybudget.Request) (retrybudget.Permit, bool) {
	if c.record.bucket == nil {
		return retrybudget.Permit{}, true
	}
	return c.record.bucket.Admit(now, &c.budget.rules, r)
}

// getBody gets the body of the retry while the failed response is still there: without a
// body, that response is the result of the call.
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

// spare is how far the start of an attempt could move behind the given time. If it is negative,
// the response would miss the deadline.
func (c *call) spare(at time.Time) time.Duration {
	if c.deadline.IsZero() {
		return math.MaxInt64
	}
	return c.deadline.Sub(at) - c.reserve(0)
}

// reserve is the time that a response and its body need before the deadline: as long as a quick
// response of the scope, at least as long as given, and long enough for a deadline header.
func (c *call) reserve(response time.Duration) time.Duration {
	least := minLeft
	if c.sendsDeadline {
		least += c.config.deadline.Margin
	}
	return max(least, max(c.record.responses.Get(), response)+c.bodyDuration())
}

// earlyWaits are the first waits before retries, before jitter shortens them. The last wait
// uses the time that is left. See docs/defaults.md.
var earlyWaits = [defaultMaxAttempts - 2]time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond, 5 * time.Second} //nolint:gochecknoglobals // never written to

const (
	afterOverload = 2 // After overload the series begins with this early wait.
	afterTimeout  = 3 // After the first timeout of a healthy server this early wait follows.

	lately        = 2500 * time.Millisecond // A success within this time shows that the server was healthy before a timeout.
	nearEnd       = time.Minute             // A deadline that is farther away is not near.
	seriesTime    = 10 * time.Second        // All waits together take this long without a near deadline.
	minLast       = time.Second             // The last wait is at least this long then.
	minLeftBefore = 1.75                    // An early wait needs this many times its length. Otherwise the last wait follows.
)

// waitSeries is how far a call is in its waits before retries.
type waitSeries struct {
	step     int       // the number of the latest early wait
	over     bool      // the final wait was chosen
	timedOut bool      // the short wait after a timeout was chosen
	end      time.Time // zero: a near deadline ends the series, or it has not begun
}

// backoff chooses the wait before the next attempt. By default the wait that the server asks for
// is a minimum, and up to half of it is added, as far as the deadline leaves time. It is added
// to the result of a Policy.Backoff.
func (c *call) backoff(failed *attempt, now time.Time) time.Duration {
	state, asked := c.retries, max(failed.askedWait, 0)
	if own := c.policy.Backoff; own != nil {
		state.wait = min(max(own(c.number, state.wait), 0), retryafter.Max)
		return state.wait + asked
	}
	if failed.end == endEarly {
		return 0 // it has waited already
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
	case failed.timedOut() && !s.timedOut && c.record.succeededWithin(lately, now.Sub(c.origin)):
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

// timeLeft is the longest wait now, so that a usual response is still in time. Without a near
// deadline it is the rest of seriesTime, which begins here.
func (c *call) timeLeft(failed *attempt, now time.Time) time.Duration {
	s := &c.retries.series
	if s.end.IsZero() && (c.deadline.IsZero() || c.deadline.Sub(now) > nearEnd) {
		s.end = now.Add(seriesTime)
	}
	switch {
	case s.end.IsZero():
		return max(c.deadline.Sub(now)-c.reserve(failed.report.Latency), 0)
	case c.policy.MaxAttempts > defaultMaxAttempts:
		return seriesTime // each time: the caller wants so many
	}
	return max(s.end.Sub(now), minLast)
}

// prepareRetry runs after the wait. A gate may reject the retry now.
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

// timedOut reports whether the attempt ended because it took too long.
func (a *attempt) timedOut() bool {
	return a.end == endTimeout || a.end == endEarly || a.end == endError && neterr.TimedOut(a.report.Err)
}

// responded reports whether the attempt got a response with one of the statuses.
func (a *attempt) responded(statuses ...int) bool {
	return a.end == endResponse && slices.Contains(statuses, a.report.Response.StatusCode)
}

// recordTime notes the time that the attempt's record contains, and how long copies were
// waited for.
func (c *call) recordTime(a *attempt) {
	c.accounted, c.waited = a.report.Start.Add(a.report.Latency), 0
	if a.race == nil || !a.race.waited && len(a.race.copies) == 0 {
		return
	}
	now := time.Now()
	a.report.RetryWait, c.accounted = max(now.Sub(c.accounted), 0), now
	if c.last == a {
		c.waited = a.report.RetryWait
	}
}

// recordTrailingWait counts the wait after the last attempt, as a part of Call.Latency. If copies
// follow the attempt, it is the attempt's RetryWait. Else it is the call's QueueWait.
func (c *call) recordTrailingWait() {
	if c.retries != nil && len(c.retries.later) > 0 && c.last != c.retries.later[len(c.retries.later)-1] {
		c.last.report.RetryWait = c.waited
	} else {
		c.queueWait += c.waited
	}
	c.waited = 0
}

// maxAttempts is the maximum number of attempts of the call. It is at most two if an outer client
// is known to retry and this Transport does not own the retries.
func (c *call) maxAttempts() int {
	if n := c.policy.MaxAttempts; n <= 2 || !c.outerMayRetry() {
		return n
	}
	return 2
}

// noAttemptsLeft is why the call may make no further attempt.
func (c *call) whyNoAttempt() error {
	if c.number < c.policy.MaxAttempts && c.outerMayRetry() {
		return ErrSingleAttempt
	}
	return ErrMaxAttempts
}

// The fields in which SDKs report their retries, as net/http spells them: AWS's ("attempt=1;
// max=3"), that of SDKs that Stainless generates, such as OpenAI's and Anthropic's (a count),
// and Google's (words such as gccl-attempt-count/1).
const (
	awsAttempts      = "Amz-Sdk-Request"
	awsInvocation    = "Amz-Sdk-Invocation-Id"
	stainlessRetries = "X-Stainless-Retry-Count"
	googleClient     = "X-Goog-Api-Client"
	googleAttempt    = "gccl-attempt-count/"
	googleInvocation = "gccl-invocation-id/"
)

// outerLayerRetries reports whether an SDK above owns the retries of the request: it makes
// more than one attempt, or this is not the first. An SDK without retries says so.
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

// fieldValue returns what follows the prefix in the first part of a value that has it.
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

// invocationKey derives a key from the random UUID that an SDK above gives to all its
// attempts: a random key would differ between them. It returns "" without such a UUID.
func invocationKey(req *http.Request) string {
	id := headerValue(req.Header, awsInvocation)
	if id == "" {
		id = fieldValue(headerValue(req.Header, googleClient), " ", googleInvocation)
	}
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 4 {
		return ""
	}
	// One invocation may send several requests, to several regions for instance.
	text := id + " " + method(req) + " " + req.URL.String() + " " + strconv.FormatInt(req.ContentLength, 10)
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(text), 8).String()
}

// outerMayRetry reports whether the client above is known to retry, and does not say how
// often: stripe-go, Vault's client, or azcore ("azsdk-go-azblob/v1.6.0").
func (c *call) outerMayRetry() bool {
	h := c.request.Header
	return !c.ownsRetries && (headerValue(h, "X-Stripe-Client-User-Agent") != "" || headerValue(h, "X-Vault-Request") != "" ||
		strings.Contains(headerValue(h, "User-Agent"), "azsdk-"))
}

// recordFailure remembers the request of a call that was sent and failed. A repeated one that
// did not fail is forgotten.
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

// requestID is what stays the same when an outer layer sends a request again: the caller's
// idempotency key, or what shallow copies of an http.Request share, as http.Client and
// go-retryablehttp make them. A client that is known to retry may make deep copies. Its
// requests are identified by method and URL.
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
	repeatWindow   = time.Minute // how long after a failure an outer layer may repeat the request; azcore waits so long
	maxRepeats     = 10          // consecutive failures of one request, after which it counts as a new one
	maxFailedCalls = 1024
)

// failedCalls are the requests that have failed lately. It is safe for concurrent use.
type failedCalls struct {
	until    atomic.Int64 // when the last of them is forgotten, since the origin; 0: there is none
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
	times int // consecutive; 0: it has succeeded since
}

// has reports whether the request has failed lately.
func (f *failedCalls) has(id requestID, now time.Duration) bool {
	call := f.requests.Peek(id)
	if call == nil {
		return false
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	return call.times > 0 && call.times < maxRepeats && now-call.at < repeatWindow
}

// add records a failure of the request.
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

// remove forgets a request that has succeeded.
func (f *failedCalls) remove(id requestID) {
	if call := f.requests.Peek(id); call != nil {
		call.mu.Lock()
		defer call.mu.Unlock()
		call.times = 0
	}
}
