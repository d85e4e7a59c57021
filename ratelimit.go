package resilienthttp

import (
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

const (
	defaultMaxWait   = time.Minute
	defaultMaxClosed = time.Hour
)

// RateLimit limits the rate of requests on the client side. It applies a fixed limit, if
// Limit is set, and the quotas that servers show in rate-limit headers (GitHub, OpenAI,
// IETF RateLimit and others). A call that exceeds a quota waits in a FIFO queue. A call
// that could not be sent within MaxWait, or before its deadline, fails at once with
// ErrRateLimited and a NotBefore time. Quotas are tracked for each scope and credential (a
// keyed hash of Authorization, X-Api-Key, Api-Key or Private-Token). See docs/defaults.md.
//
// The zero value has no fixed limit and follows headers. A RateLimit is safe for concurrent
// use, may be shared by Transports, and must not be modified or copied after its first use.
type RateLimit struct {
	// Limit is a fixed limit for each scope, in requests per second, with retries and
	// hedges: a token bucket (golang.org/x/time/rate). 0, negative, NaN and rate.Inf mean
	// none.
	Limit rate.Limit

	// Burst is the size of that bucket. 0 or negative: the requests of one second, at
	// least 1.
	Burst int

	// MaxWait is the longest time that a call is expected to wait for its turn. A call that
	// would wait longer fails at once with ErrRateLimited; one whose turn comes later than
	// expected waits up to 2 s more. While rejections block the scope, Policy.MaxRetryAfter
	// bounds the wait as well. 0: 60 s; negative: calls never wait.
	MaxWait time.Duration

	// MaxBlock is the longest time for which a server may block a scope; longer ones are
	// cut. 0: 1 h, at most 24 h; negative: servers cannot block a scope, as with
	// IgnoreHeaders.
	MaxBlock time.Duration

	// IgnoreHeaders disables quotas and blocks: only the fixed limit applies, and
	// rate-limit headers of successful responses are not read. A call still waits for as
	// long as its own response asks. Hedges and second attempts are sent after a 429 too.
	IgnoreHeaders bool

	// Shared is a store, such as admission/redisstore, by which several processes share one
	// quota: Limit and Burst if Limit is set, else what the server's headers say of each
	// scope, credential and bucket. nil: each process has its own. If the store fails, each
	// process uses an equal share. All must have the same Limit and Burst. See
	// docs/admission.md.
	Shared quotastore.Store

	once    sync.Once
	limiter *quota.Limiter
}

// withDefaults is how the engine is to work.
func (l *RateLimit) withDefaults() quota.Config {
	c := quota.Config{Limit: l.Limit, Burst: l.Burst, MaxWait: l.MaxWait, MaxBlock: l.MaxBlock, Shared: l.Shared}
	if !(c.Limit > 0) || c.Limit == rate.Inf {
		c.Limit = 0
	}
	if c.Burst <= 0 {
		c.Burst = int(min(max(math.Ceil(float64(c.Limit)), 1), math.MaxInt32))
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.MaxBlock == 0 {
		c.MaxBlock = defaultMaxClosed
	}
	c.MaxBlock = min(c.MaxBlock, quota.Horizon)
	c.Follow = !l.IgnoreHeaders && c.MaxBlock > 0
	return c
}

func (l *RateLimit) engine() *quota.Limiter {
	l.once.Do(func() { l.limiter = quota.New(l.withDefaults()) })
	return l.limiter
}

// enter waits for the attempt's permit, or rejects the attempt. An attempt beside another
// one never waits. While nothing is known that could hold it up, it needs no permit.
func (l *RateLimit) enter(a *attempt, now time.Time) *Error {
	c := a.call
	set := l.engine().Set(c.scopeKey().Name)
	if !set.Active() {
		return nil
	}
	r := l.request(c)
	r.NoWait, r.Waiter = a.beside, (*queuedAttempt)(a)
	ticket, refusal := set.Admit(c.ctx, r, now)
	a.ticket, a.permitted = ticket, refusal == nil
	if refusal == nil {
		return nil
	}
	switch refusal.Reason {
	case quota.Canceled:
		return c.ended(c.ctx.Err())
	case quota.DeadlineExceeded:
		return &Error{Reason: ErrDeadline, Err: ErrRateLimited, NotBefore: refusal.NotBefore}
	case quota.MaxWaitExceeded:
	}
	return &Error{Reason: ErrRateLimited, NotBefore: refusal.NotBefore}
}

// queuedAttempt is an attempt that stands in line for its turn.
type queuedAttempt attempt

var _ quota.Waiter = (*queuedAttempt)(nil)

// WaitBegins implements quota.Waiter.
func (q *queuedAttempt) WaitBegins(turn time.Time, own bool) {
	c := q.call
	c.seen.waiting.Add(1)
	q.record.LocalLimit = own
	if c.tracing() {
		now := time.Now()
		told := q.record
		told.Request, told.QueueWait, told.RetryWait = c.request, now.Sub(c.accounted), max(turn.Sub(now), 0)
		c.traceAttempt(queued, &told)
	}
}

// WaitEnds implements quota.Waiter.
func (q *queuedAttempt) WaitEnds() { q.call.seen.waiting.Add(-1) }

// closedUntil is until when refusals have closed the call's scope; the zero time
// if they have not.
func (l *RateLimit) closedUntil(c *call, now time.Time) time.Time {
	set := l.engine().Set(c.scopeKey().Name)
	if !set.Active() {
		return time.Time{}
	}
	return set.BlockedUntil(l.request(c), now)
}

// observe gives the result of an attempt to the engine.
func (l *RateLimit) observe(a *attempt, heard *quota.Response, now time.Time) {
	if a.permitted {
		a.ticket.Done(heard, now)
		return
	}
	if heard.Status == 0 {
		return
	}
	set := l.engine().Set(a.call.scopeKey().Name)
	if set.Active() || len(heard.Quota.Dimensions) > 0 || heard.Quota.Bucket != "" ||
		heard.Status == http.StatusTooManyRequests || heard.Status == http.StatusForbidden {
		set.Observe(l.request(a.call), heard, a.record.Start, now)
	}
}

// request is the call as the engine sees it.
func (l *RateLimit) request(c *call) quota.Request {
	r := quota.Request{
		Method: c.request.Method, Path: c.request.URL.Path,
		Deadline: c.deadline, MaxBlock: c.perCall().MaxRetryAfter,
	}
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "Private-Token"} {
		if secret := headerValue(c.request.Header, name); secret != "" {
			r.Credential = l.engine().Hash(secret)
			break
		}
	}
	return r
}

// heard is what the engine is told of an attempt's end.
func (a *attempt) heard(said *answer) quota.Response {
	h := quota.Response{Quota: said.quota, AsksToWait: said.asksToWait, RetryAfter: said.retryAfter}
	if resp := a.record.Response; resp != nil {
		h.Status = resp.StatusCode
	}
	return h
}
