package resilienthttp

import (
	"errors"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// judge finds the outcome of the attempt in the table, and asks the caller's functions.
func (a *attempt) judge(info *responseInfo) {
	// Before the signs of a 409: the server may be at work at the first request.
	if a.report.Resent {
		a.call.note(resultUnknown)
	}
	signs := info.signs | a.signs()
	a.outcome = outcome.Of(a.came, signs)
	report := &a.report
	report.Verdict, report.NotExecuted = Verdict(a.outcome.Verdict), a.outcome.Work == outcome.NotExecuted
	if !a.came.Over() {
		report.RetryAfter = info.wait()
		a.askCaller(info, signs)
	}
	report.work = a.outcome.Work
	if !report.Verdict.retryable() {
		return
	}
	// Only Classify says that it is a failure, so its header was not read as that of one.
	if resp := report.Response; resp != nil && a.came < http.StatusBadRequest {
		info.parseFailure(resp.Header, report.end())
		if report.RetryAfter == 0 {
			report.RetryAfter = info.wait()
		}
	}
	a.permitted = info.signs&outcome.SaysRetry != 0
	if a.outcome.Lost && report.work == outcome.InDoubt {
		a.call.note(resultUnknown)
	}
}

// signs returns what is known of the attempt beside the header of its response. If Base returned an error, it also finds
// what that means.
func (a *attempt) signs() (signs outcome.Signs) {
	if hooked := &a.visit.Record.hooked; a.sending.begun() && !hooked.Load() {
		// A Base that calls the hooks once for a scope calls them always, so its silence says something from now on.
		hooked.Store(true)
	}
	if a.came == outcome.Broken {
		a.came, signs = a.cameWith(a.report.Err)
	}
	if a.report.Resent {
		signs |= outcome.Resent
	}
	if a.unsent() {
		signs |= outcome.Unsent
	}
	return signs | a.signsOfKind()
}

// signsOfKind returns what is known of an attempt if what came back does not say by itself what it means.
func (a *attempt) signsOfKind() outcome.Signs {
	switch a.came {
	case http.StatusConflict:
		// It may be about another attempt of the same call, with the same key.
		if a.call.mayBeAtWork(a) {
			return outcome.MayBeAtWork
		}
	case http.StatusMisdirectedRequest:
		// One other connection is tried, and not more.
		if a.misdirected() && !a.call.note(misdirected) {
			return outcome.Elsewhere
		}
	case http.StatusExpectationFailed:
		if a.addedExpect() {
			return outcome.Expects
		}
	case outcome.Stranger:
		// A host that has answered before is no wrong name.
		if a.visit.Record.succeeded.Load() != 0 {
			return outcome.Answered
		}
	case outcome.CallDeadline, outcome.Overtaken:
		// Short deadlines of callers say nothing about the server.
		if !a.isCopy() && a.visit.Record.isLate(a.report.Start.Sub(a.call.origin), a.report.Latency) {
			return outcome.Late
		}
	default: // it says by itself what it means
	}
	return 0
}

// cameWith returns what came back with an error of Base.
func (a *attempt) cameWith(err error) (outcome.Came, outcome.Signs) {
	inner := rejectedInside(err)
	switch {
	case inner != nil && !errors.Is(inner, ErrBreakerOpen):
		// It would reject a retry too. An open circuit is worth a wait.
		return outcome.InnerLimit, 0
	case errors.Is(err, errBrokenBase):
		return outcome.Invalid, 0
	case a.upload.Load().failedItself():
		// Base may wrap the error of the body so that it looks like one of the network.
		return outcome.OwnBody, 0
	}
	came, signs := outcome.OfError(err)
	if came == outcome.Broken && a.askedForNone() && neterr.Unknown(err) {
		return outcome.Own, signs
	}
	return came, signs
}

// askedForNone reports whether Base has asked for no connection, as a signer without credentials. A Base that hides its
// connections calls no hook, so its silence says nothing. This one has called them before, or has net/http's Transport below.
func (a *attempt) askedForNone() bool {
	return !a.sending.begun() && (a.call.native || a.visit.Record.hooked.Load())
}

// askCaller lets ClassifyBody and then Classify change the verdict, the wait and what is known of the work.
func (a *attempt) askCaller(info *responseInfo, signs outcome.Signs) {
	policy, report := a.call.policy, &a.report
	if info.read && policy.ClassifyBody != nil {
		a.overrule(policy.ClassifyBody(report, info.prefix), info)
	}
	if policy.Classify != nil {
		a.overrule(policy.Classify(report), info)
	}
	report.RetryAfter = retryafter.Clamp(report.RetryAfter)
	proved := a.outcome.Work == outcome.NotExecuted
	switch {
	case report.NotExecuted && !proved:
		// An earlier sending of the attempt stays in doubt.
		a.outcome.Work = outcome.Of(a.came, signs|outcome.SaysNotExecuted).Work
		report.NotExecuted = a.outcome.Work == outcome.NotExecuted
	case proved && !report.NotExecuted:
		// The caller knows the server better than the header does.
		a.outcome.Work = outcome.InDoubt
	}
}

// maxConflicts is the maximum number of retries of a call after a 409 that means that the server
// still works at another attempt.
const maxConflicts = 2

// mayBeAtWork reports whether the server may still work at another attempt of the call: the
// result of one is unknown, or still to come. The server then knows the key, and a 409 is not the
// result of the call.
func (c *call) mayBeAtWork(a *attempt) bool {
	if c.key.value == "" {
		// Without a key the server cannot know that it is the same call.
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Under the lock, because an attempt stores unknown before it takes the lock and is no longer in flight.
	knowsKey := c.has(resultUnknown) || a.hedged != nil && a.hedged.othersInFlight(a)
	repeated := c.owner == ownerRepeater // the other attempt is of a call before, which has failed
	return (knowsKey || repeated) && c.conflicts.Load() < maxConflicts
}

// overrule replaces the verdict of the table by v, if v is a verdict.
func (a *attempt) overrule(v Verdict, info *responseInfo) {
	if v > VerdictDefault && v <= VerdictThrottled {
		a.report.Verdict, a.outcome = v, a.outcome.Overrule(outcome.Verdict(v))
		info.said = v
	}
}

// rejectedInside returns the error of an inner Transport that rejected the request, or nil.
func rejectedInside(err error) *Error {
	inner, ok := errors.AsType[*Error](err)
	if ok && (errors.Is(inner, ErrBreakerOpen) || errors.Is(inner, ErrRateLimited)) {
		return inner
	}
	return nil
}

// errBrokenBase means that Base broke the contract of http.RoundTripper.
var errBrokenBase = neterr.New("Base returned neither a response nor an error")

// responseInfo is what the header of a response says about retries and rates. Without a response
// it is zero.
type responseInfo struct {
	quota      ratelimitheader.State
	signs      outcome.Signs
	asksToWait bool          // it has Retry-After or a similar field
	retryAfter time.Duration // the value of that field
	reset      time.Duration // until the reset of an exhausted quota; zero means unknown
	prefix     []byte        // of the body
	read       bool          // prefix was read
	said       Verdict       // of Classify or ClassifyBody; VerdictDefault: they left it to the table
}

// parse reads the header of a response. It reads some fields of failures only. Of failures it also reads quotas that are
// ignored, because the verdict and the wait of the call depend on them.
func (r *responseInfo) parse(resp *http.Response, status int, now time.Time, ignoreQuotas bool) {
	if resp == nil {
		return
	}
	failure := status >= http.StatusBadRequest
	if failure || !ignoreQuotas {
		r.quota, _ = ratelimitheader.Parse(resp.Header, now)
	}
	if failure {
		r.parseFailure(resp.Header, now)
		if resp.StatusCode < http.StatusBadRequest { // the server wrote the header of a stream before the stream failed
			r.signs &^= outcome.SaysRetry | outcome.SaysNotExecuted
		}
	}
}

func (r *responseInfo) parseFailure(h http.Header, now time.Time) {
	r.retryAfter, r.asksToWait = retryafter.Parse(h, now)
	r.signs = outcome.SignsOf(h, r.asksToWait, r.quota.Exhausted)
	for _, d := range r.quota.Dimensions {
		if d.Remaining == 0 {
			r.reset = max(r.reset, d.Reset)
		}
	}
}

// wait returns the wait that the server asks for: Retry-After, or else the reset of the exhausted
// quota. Zero means none.
func (r *responseInfo) wait() time.Duration {
	if r.asksToWait {
		return r.retryAfter
	}
	return r.reset
}

// safeMethod is RFC 9110 section 9.2.1, RFC 10008 (QUERY), RFC 4918 (PROPFIND), RFC 3253 (REPORT) and RFC 5323 (SEARCH).
func safeMethod(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY", "PROPFIND", "REPORT", "SEARCH":
		return true
	}
	return false
}
