package resilienthttp

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// classify sets the verdict of the attempt, and the values with which the call decides about a
// retry.
func (a *attempt) classify(info *responseInfo) {
	if a.report.Resent {
		a.call.unknown.Store(true)
	}
	switch a.end {
	case endResponse:
		status := a.report.status()
		a.conflict = status == http.StatusConflict && !info.asksToWait && a.call.mayBeAtWork(a)
		a.report.Verdict = info.verdict(status, a.conflict)
		if a.misdirected() && info.hint == noHint && !a.call.misdirected.Swap(true) {
			a.report.Verdict = VerdictTransient
		}
	case endError:
		a.report.Verdict = classifyError(a.report.Err)
	case endTimeout:
		a.report.Verdict = VerdictTransient
	default:
		a.report.Verdict = VerdictPermanent
		return // the call has ended
	}
	a.report.RetryAfter = info.wait()
	policy := a.call.policy
	if info.read && policy.ClassifyBody != nil {
		a.overrule(policy.ClassifyBody(&a.report, info.prefix))
	}
	if policy.Classify != nil {
		a.overrule(policy.Classify(&a.report))
	}
	a.report.RetryAfter = retryafter.Clamp(a.report.RetryAfter)
	if !a.report.Verdict.retryable() {
		return
	}
	resp := a.report.Response
	if resp != nil && a.report.status() < http.StatusBadRequest { // only Classify says that it is a failure
		info.parseFailure(resp.Header, a.report.Start.Add(a.report.Latency))
		if a.report.RetryAfter == 0 {
			a.report.RetryAfter = info.wait()
		}
	}
	a.permitted = info.hint == doRetry
	// The server may have done the work, or may still do it: there is no response to a request that may have been sent, or a
	// gateway lost it.
	lost := resp != nil && (resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout)
	if lost || resp == nil && a.report.fact == inDoubt {
		a.call.unknown.Store(true)
	}
}

// didNothing reports whether the server certainly did no work for the attempt, so that any server may get it.
func (a *attempt) didNothing() bool { return a.report.fact == notSent || a.report.fact == noWork }

// maxConflicts is the maximum number of retries of a call after a 409 that means that the server
// still works at another attempt.
const maxConflicts = 2

// mayBeAtWork reports whether the server may still work at another attempt of the call: the
// result of one is unknown, or still to come. The server then knows the key, and a 409 is not the
// result of the call.
func (c *call) mayBeAtWork(a *attempt) bool {
	if c.key.value == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Under the lock, because an attempt stores unknown before it takes the lock and is no longer in flight.
	knowsKey := c.unknown.Load() || a.hedged != nil && a.hedged.othersInFlight(a)
	return knowsKey && c.conflicts.Load() < maxConflicts
}

// overrule replaces the verdict of the table by v, if v is a verdict.
func (a *attempt) overrule(v Verdict) {
	if v > VerdictDefault && v <= VerdictThrottled {
		a.report.Verdict = v
	}
}

// verdict is the table of responses (RFC 9110 section 15, RFC 6585, RFC 8470). It uses the status
// and fields of the header.
func (r *responseInfo) verdict(status int, conflict bool) Verdict {
	if status < http.StatusBadRequest {
		return VerdictSuccess
	}
	verdict := VerdictPermanent
	switch {
	case status == http.StatusTooManyRequests, status == statusOverloaded,
		status == http.StatusServiceUnavailable && r.asksToWait,
		status == http.StatusForbidden && (r.quota.Exhausted || r.asksToWait): // as GitHub limits
		verdict = VerdictThrottled
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status >= 500 && status <= 599 && !slices.Contains(permanentStatuses, status):
		verdict = VerdictTransient
	case conflict, status == http.StatusConflict && r.asksToWait:
		// The server still works at another request with the same key. Otherwise a 409 is about
		// the resource, which exists already for instance.
		verdict = VerdictTransient
	}
	switch {
	case r.hint == doNotRetry:
		return VerdictPermanent
	case r.hint == doRetry && !verdict.retryable():
		return VerdictTransient
	}
	return verdict
}

// permanentStatuses are the 5xx after which a retry has the same result.
var permanentStatuses = []int{ //nolint:gochecknoglobals // never written to
	http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusVariantAlsoNegotiates,
	http.StatusLoopDetected, http.StatusNotExtended, http.StatusNetworkAuthenticationRequired,
}

// statusOverloaded is 529 "site is overloaded". Anthropic and others send it.
const statusOverloaded = 529

// classifyError is the table of errors. An unknown error is transient.
func classifyError(err error) Verdict {
	switch {
	case neterr.Malformed(err), neterr.Untrusted(err), neterr.SchemeMismatch(err), neterr.UnknownHost(err),
		neterr.Permanent(err), limitedInside(err), errors.Is(err, errBrokenBase):
		return VerdictPermanent
	case neterr.Throttled(err):
		return VerdictThrottled
	}
	return VerdictTransient
}

// limitedInside reports whether an inner Transport rejected the request by its rate limit. It would reject a retry too. If
// its circuit is open, the server is away, and the outer Transport waits for it.
func limitedInside(err error) bool {
	inner := rejectedInside(err)
	return inner != nil && !errors.Is(inner, ErrBreakerOpen)
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

func (a *attempt) breakerOutcome(info *responseInfo) circuit.Outcome {
	switch a.end {
	case endResponse:
		switch status := a.report.status(); {
		case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && info.quota.Exhausted:
			return circuit.Responded // a limit works as it should
		case status >= http.StatusInternalServerError && a.report.Verdict != VerdictSuccess: // Classify knows better
			return circuit.Failure
		}
		return circuit.Success
	case endError:
		err := a.report.Err
		ours := neterr.Malformed(err) || limitedInside(err) || errors.Is(err, errBrokenBase)
		if ours || neterr.FromIntermediary(err) {
			return circuit.None // it did not reach the server
		}
		return circuit.Failure
	case endTimeout:
		return circuit.Failure
	case endDeadline:
		return circuit.Timeout
	case endSuperseded:
		if a.visit.Lost {
			return circuit.Timeout
		}
	default:
	}
	return circuit.None
}

// responseInfo is what the header of a response says about retries and rates. Without a response
// it is zero.
type responseInfo struct {
	quota      ratelimitheader.State
	hint       retryHint
	asksToWait bool          // it has Retry-After or a similar field
	retryAfter time.Duration // the value of that field
	reset      time.Duration // until the reset of an exhausted quota; zero means unknown
	prefix     []byte        // of the body
	read       bool          // prefix was read
}

type retryHint uint8

const (
	noHint retryHint = iota
	doRetry
	doNotRetry
)

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
		if resp.StatusCode < http.StatusBadRequest && r.hint == doRetry {
			r.hint = noHint // the server wrote the header of a stream before the stream failed
		}
	}
}

func (r *responseInfo) parseFailure(h http.Header, now time.Time) {
	r.hint = parseHint(h)
	r.retryAfter, r.asksToWait = retryafter.Parse(h, now)
	for _, d := range r.quota.Dimensions {
		if d.Remaining == 0 {
			r.reset = max(r.reset, d.Reset)
		}
	}
}

// parseHint reads the should-retry header of Stripe, or of OpenAI, Anthropic and others.
func parseHint(h http.Header) retryHint {
	for _, name := range [...]string{"Stripe-Should-Retry", "X-Should-Retry"} {
		switch value := strings.TrimSpace(h.Get(name)); {
		case strings.EqualFold(value, "true"):
			return doRetry
		case strings.EqualFold(value, "false"):
			return doNotRetry
		}
	}
	return noHint
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
