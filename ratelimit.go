package resilienthttp

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

const defaultMaxBlock = time.Hour

// RateLimit limits the rate of requests. It applies the limits of the client's own, Limit and
// MaxInFlight, and the quotas that servers advertise in rate-limit headers (GitHub, OpenAI, IETF
// RateLimit and others). A call that exceeds one waits in a FIFO queue. A call that cannot be sent
// within MaxWait, or before its deadline, fails at once with ErrRateLimited and a NotBefore time.
// Quotas are tracked for each scope and credential. See docs/rate-limits.md.
//
// The zero value has no limit of its own and follows headers. A RateLimit is safe for concurrent use,
// may be shared by Transports, and must not be modified or copied after its first use.
type RateLimit struct {
	// Limit is a fixed limit for each scope, in requests per second. Retries and hedges count.
	// Zero, negative, NaN and rate.Inf mean none.
	Limit rate.Limit

	// Burst is the maximum number of requests at once under Limit (token bucket). Zero or
	// negative means the requests of one second, at least 1. The maximum is 2,147,483,647.
	Burst int

	// MaxInFlight is the maximum number of requests at once in each scope of this process. Further
	// calls wait for a slot in a FIFO queue; when one is free is unknown, and NotBefore is zero. A
	// request has its slot until its response headers or its error; bodies do not count. Hedges and
	// second attempts are sent only if a slot is free. A call with the context of an attempt that has
	// a slot of its scope needs none, as in a Base that fetches tokens. Zero or negative means no
	// limit. The maximum is 2,147,483,647.
	MaxInFlight int

	// MaxWait is the maximum estimated wait of a call in the queue; a call waits at most 2 s
	// longer than MaxWait. Zero means until the call's deadline, or 60 s without one. A negative
	// duration means that calls never wait, except 250 ms for Shared. While rejections block the
	// scope, Policy.MaxRetryAfter limits the wait too. A call without a deadline that a limit has
	// rejected waits for its turn to be sent again (see Budget) no longer than MaxWait from its
	// beginning. If the server asks for a wait that ends later, the call makes that wait, but the
	// next attempt is one of Policy.MaxAttempts.
	MaxWait time.Duration

	// MaxBlock is the maximum time for which a server may block a scope: if a quota's reset is later,
	// one request is sent then. Zero means 1 h. The maximum is 24 h. A negative duration means that
	// servers cannot block a scope.
	MaxBlock time.Duration

	// IgnoreHeaders disables quotas and blocks: only the fixed limit applies. A call still waits
	// as long as its own response asks. Hedges and concurrent attempts are sent after a 429 too.
	IgnoreHeaders bool

	// Key names the quotas that a request uses, for example a model, a workspace or an operation.
	// It splits the quotas of a scope, and not its breaker and budget. It is called once a call,
	// must be safe for concurrent use, and must not read Request.Body (GetBody returns a copy). A
	// scope has at most 64 keys; further ones share one. nil means one key.
	Key func(*http.Request) string

	// Cost estimates how many tokens a request will cost, for quotas that count tokens. The request
	// takes them from the quota until a response shows what remains. A call that costs more than what
	// is left waits for enough, and one above the limit is sent when the quota is full. It is called
	// once a call, must be safe for concurrent use, and must not read Request.Body (GetBody returns a
	// copy). nil, NaN and results ≤ 0 mean that the cost is unknown until responses show it.
	Cost func(*http.Request) float64

	// Shared is a store, for example admission/redisstore, with which processes share one quota:
	// Limit and Burst, equal in all of them, or else the quotas that the server advertises. Burst
	// is then at least the requests of 0.5 s. If the store fails, each process uses an equal share.
	// nil means no sharing. See docs/rate-limits.md.
	Shared quotastore.Store

	once    sync.Once
	limiter *quota.Limiter
}

func (l *RateLimit) engine() *quota.Limiter {
	l.once.Do(func() { l.limiter = quota.New(l.config()) })
	return l.limiter
}

func (l *RateLimit) config() quota.Config {
	c := quota.Config{Limit: l.Limit, MaxWait: l.MaxWait, MaxBlock: l.MaxBlock, Shared: l.Shared}
	c.Burst, c.MaxInFlight = min(l.Burst, math.MaxInt32), min(max(l.MaxInFlight, 0), math.MaxInt32)
	if !(c.Limit > 0) || c.Limit == rate.Inf {
		c.Limit = 0
	}
	if c.Burst <= 0 {
		c.Burst = int(min(max(math.Ceil(float64(c.Limit)), 1), math.MaxInt32))
	}
	c.MaxWait = cmp.Or(c.MaxWait, defaultMaxWait)
	c.MaxBlock = min(cmp.Or(c.MaxBlock, defaultMaxBlock), quota.Horizon)
	c.Follow = !l.IgnoreHeaders && c.MaxBlock > 0
	return c
}

// quotaNeeds says which quotas a call needs, and what it takes from those of tokens; 0 means unknown.
type quotaNeeds struct {
	key  string
	cost int64
}

// needs calls Key and Cost.
func (l *RateLimit) needs(req *http.Request) *quotaNeeds {
	n := &quotaNeeds{}
	if l.Key != nil {
		n.key = l.Key(req)
	}
	if l.Cost != nil {
		if cost := l.Cost(req); cost > 0 { // false for NaN
			n.cost = int64(math.Ceil(min(cost, quota.MaxCost)))
		}
	}
	return n
}

// passQuotas waits for a permit of the quotas and takes it. It returns the time of the permit.
// A concurrent attempt never waits.
func (c *call) passQuotas(a *attempt, now time.Time) (time.Time, *Error) {
	r := c.quotaRequest(&a.visit)
	r.NoWait, r.AtOnce, r.Waiter = a.isCopy(), a.visit.AtOnce, (*queuedAttempt)(a)
	if !c.deadline.IsZero() {
		usual := a.visit.Record.circuit.Usual()
		// After a longer wait many responses would come too late.
		r.Deadline = c.deadline.Add(-usual - min(usual, time.Second))
		if c.rateLimit.MaxWait == 0 {
			r.MaxWait = quota.Horizon // the deadline says how long
		}
	}
	for outer := c.outer; outer != nil && r.Around == nil; outer = outer.call.outer {
		// An attempt around this one may have a slot already. Without it the two would wait for each other.
		r.Around = outer.permits.slot
	}
	permit, rejection := a.visit.Record.quotas.Load().Admit(c.ctx, r, now)
	if rejection != nil {
		failed := &Error{Reason: ErrRateLimited, NotBefore: rejection.NotBefore, quota: a.exhausted(now)}
		switch rejection.Reason {
		case waitqueue.Canceled:
			failed = c.canceled(c.ctx.Err())
		case waitqueue.DeadlineExceeded:
			// It is a rejection too: see byGate.
			failed.Reason, failed.Err = ErrDeadline, ErrRateLimited
		default:
		}
		return now, failed
	}
	a.permits.quota, a.permits.slot = &permit, permit.Slot
	if permit.Waited {
		// Only a wait takes time that matters.
		now = time.Now()
	}
	return now, nil
}

// exhausted returns the server's quota that keeps the attempt back, or nil.
func (a *attempt) exhausted(now time.Time) *QuotaStatus {
	return (*QuotaStatus)(a.visit.Record.quotas.Load().Exhausted(a.call.quotaRequest(&a.visit), now))
}

// quotaSaid describes what keeps calls back.
func quotaSaid(q *QuotaStatus) string {
	until := later(q.Reset, q.BlockedUntil).UTC().Format(time.TimeOnly)
	if q.Limit == 0 || q.Remaining > 0 {
		return "blocked by the server until " + until
	}
	text := fmt.Sprintf("quota exhausted (0 of %d until %s)", q.Limit, until)
	if q.UsedByOthers > 0 {
		text += fmt.Sprintf(", other processes used %d", q.UsedByOthers)
	}
	return text
}

// blockedUntil returns the end of the block that rejections have made of the quota of a call at a server, or zero.
func (f *facts) blockedUntil(v *visit, now time.Time) time.Time {
	quotas := v.Record.quotas.Load()
	// Most servers have no quota, and the credential of the request takes time.
	if !quotas.Active() {
		return time.Time{}
	}
	return quotas.BlockedUntil(f.quotaRequest(v), now)
}

// doneQuotas reports the response of the attempt to the quotas. Attempts have no permit while
// the quotas are not active.
func (a *attempt) doneQuotas(info *responseInfo, now time.Time) {
	c := a.call
	r := quota.Response{Status: a.report.status(), NotSent: a.report.work == outcome.NotSent, Quota: info.quota, AsksToWait: info.asksToWait, RetryAfter: info.retryAfter}
	wait := a.report.RetryAfter
	ownWait := wait != info.wait() // Classify has changed it
	if ownWait {
		r.AsksToWait, r.RetryAfter = wait > 0, wait
	}
	saysLimit := info.said == VerdictThrottled && a.came.Response()
	if saysLimit && r.Status < http.StatusInternalServerError {
		r.Status = http.StatusTooManyRequests // the program knows the API: a limit has rejected the request, whatever its status
		if ownWait {
			r.Quota = ratelimitheader.State{Exhausted: true} // the limit of the wait. What a header shows is another one
		}
	}
	switch {
	case a.permits.quota != nil:
		permit := a.permits.quota
		a.permits.quota = nil
		permit.Done(&r, now)
	case r.Shows(), a.visit.Record.quotas.Load().Active():
		// There was no permit, because no quota was known when the attempt began.
		a.visit.Record.quotaSet().Observe(c.quotaRequest(&a.visit), &r, a.report.Start, now, int64(a.visit.Record.inFlight.Count()-1))
	}
	if r.Status == http.StatusTooManyRequests {
		// After the quotas have learned from the response, so that it names the one which is exhausted.
		a.report.quota = a.exhausted(now)
	}
}

func (a *attempt) cancelQuotas(now time.Time) {
	if held := a.permits.quota; held != nil {
		a.permits.quota = nil
		held.Cancel(now)
	}
}

// quotaRequest describes an attempt to the engine. The credential is a keyed hash.
func (f *facts) quotaRequest(v *visit) quota.Request {
	r := quota.Request{
		Method: f.request.Method, Path: f.request.URL.Path,
		MaxBlock: f.policy.MaxRetryAfter,
	}
	if f.quotas != nil {
		r.Key, r.Cost = f.quotas.key, f.quotas.cost
	}
	if secret := credential(v.Apply(f.request.Header), f.request.URL); secret != "" {
		r.Credential = f.rateLimit.engine().Hash(secret)
	}
	return r
}

// routeHash returns a hash of the method and the path, with IDs replaced.
func (f *facts) routeHash() uint64 {
	return f.rateLimit.engine().Route(f.request.Method, f.request.URL.Path)
}

// credential returns what tells callers apart: by RFC 6750, or as GitLab, Google, Azure API Management and OpenStack name it.
func credential(h http.Header, u *url.URL) string {
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Private-Token", "Ocp-Apim-Subscription-Key", "X-Auth-Token"} {
		if secret := field.Value(h, name); secret != "" {
			return secret
		}
	}
	for query := u.RawQuery; query != ""; {
		var field string
		field, query, _ = strings.Cut(query, "&")
		name, secret, _ := strings.Cut(field, "=")
		switch name {
		case "key", "api_key", "apikey", "api-key", "access_token", "subscription-key":
			if plain, err := url.QueryUnescape(secret); err == nil {
				return plain
			}
		}
	}
	return ""
}

type queuedAttempt attempt

func (q *queuedAttempt) WaitBegins(until time.Time, fixed bool) {
	if q.report.FixedLimit = fixed; !fixed {
		q.report.quota = (*attempt)(q).exhausted(time.Now())
	}
	(*attempt)(q).beginQueue(until, false)
}

func (q *queuedAttempt) WaitEnds() { (*attempt)(q).visit.Record.queued.Add(-1) }
