package resilienthttp

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// classify gives the attempt its verdict, and the call what it needs to decide
// about a retry.
func (a *attempt) classify(said *answer) {
	c := a.call
	switch a.fate {
	case fateAnswered:
		a.record.Verdict = said.classify(a.record.Response.StatusCode)
	case fateError:
		a.record.Verdict = classifyError(a.record.Err)
	case fateTimeout:
		a.record.Verdict = VerdictTransient
	default:
		a.record.Verdict = VerdictPermanent
		return // nothing brings the caller back
	}
	policy := c.perCall()
	if said.looked {
		a.overrule(policy.ClassifyBody(&a.record, said.beginning))
	}
	if policy.Classify != nil {
		a.overrule(policy.Classify(&a.record))
	}
	if a.record.Verdict.retryable() {
		if resp := a.record.Response; resp != nil && resp.StatusCode < http.StatusBadRequest {
			// Only Classify takes it for a failure.
			said.readFailure(resp.Header, a.record.Start.Add(a.record.Latency))
		}
		a.untouched = a.fate == fateAnswered && said.didNoWork(a.record.Response.StatusCode) ||
			a.neverSent()
		a.asked = said.wait()
	}
}

// overrule puts the user's verdict in the place of the table's, if it is one.
func (a *attempt) overrule(v Verdict) {
	if v > VerdictDefault && v <= VerdictThrottled {
		a.record.Verdict = v
	}
}

// classify is the table: what a response means (RFC 9110 section 15, RFC 6585,
// RFC 8470), with what the server said beside its status.
func (a *answer) classify(status int) Verdict {
	if status < http.StatusBadRequest {
		return VerdictSuccess
	}
	verdict := classifyStatus(status)
	if status == http.StatusForbidden && (a.exhausted || a.asksToWait) {
		verdict = VerdictThrottled // GitHub answers 403 for its rate limits
	}
	if status == http.StatusServiceUnavailable && a.asksToWait {
		verdict = VerdictThrottled
	}
	if status == http.StatusConflict && a.asksToWait {
		// The first copy of a keyed request is still at work there. Without that
		// word it is an answer about the resource, which exists already, say.
		verdict = VerdictTransient
	}
	// A server that says so in as many words knows best (Stripe-Should-Retry).
	switch {
	case a.shouldRetry == saidNo:
		return VerdictPermanent
	case a.shouldRetry == saidYes && !verdict.retryable():
		return VerdictTransient
	}
	return verdict
}

func classifyStatus(status int) Verdict {
	switch status {
	case http.StatusTooManyRequests,
		statusOverloaded:
		return VerdictThrottled
	case http.StatusRequestTimeout,
		http.StatusTooEarly:
		return VerdictTransient
	case http.StatusNotImplemented,
		http.StatusHTTPVersionNotSupported,
		http.StatusVariantAlsoNegotiates,
		http.StatusLoopDetected,
		http.StatusNotExtended,
		http.StatusNetworkAuthenticationRequired:
		return VerdictPermanent
	}
	if status >= 500 && status <= 599 {
		return VerdictTransient
	}
	return VerdictPermanent
}

// statusOverloaded is 529 "site is overloaded", as Anthropic and others send it.
const statusOverloaded = 529

// classifyError is the table's other half: which transport errors may pass. An
// error of unknown kind may.
func classifyError(err error) Verdict {
	if neterr.Malformed(err) || neterr.Untrusted(err) || neterr.SchemeMismatch(err) || neterr.UnknownHost(err) ||
		neterr.Permanent(err) || refused(err) != nil || errors.Is(err, errBrokenBase) {
		return VerdictPermanent
	}
	return VerdictTransient
}

// refused is the error of a Transport inside this one whose gate refused the
// request, and nil for others. Asking again would only meet the same gate.
func refused(err error) *Error {
	inner, ok := errors.AsType[*Error](err)
	if ok && (errors.Is(inner, ErrBreakerOpen) || errors.Is(inner, ErrRateLimited)) {
		return inner
	}
	return nil
}

// errBrokenBase is a Base that breaks http.RoundTripper's contract.
var errBrokenBase = neterr.New("neither a response nor an error came from Base")

// answer is what a response says beside its status about repeating and pacing.
// The zero value is that of an attempt which got no response.
type answer struct {
	quota       ratelimitheader.State
	shouldRetry word
	asksToWait  bool          // Retry-After or one of its kin
	retryAfter  time.Duration // that wait
	exhausted   bool          // a quota that is used up
	reset       time.Duration // until it is whole again; 0: the server does not say
	beginning   []byte        // of the body, where
	looked      bool          // somebody looked at it
}

// word is what a should-retry header says.
type word int

const (
	saidNothing word = iota
	saidYes
	saidNo
)

// readAnswer reads the headers of a response. Those that only failures bear are
// looked for on failures only; and so are those of quotas where they are ignored:
// what a failure means, and how long its own call waits, depends on them.
func readAnswer(resp *http.Response, now time.Time, ignoreQuotas bool) answer {
	var a answer
	if resp == nil || len(resp.Header) == 0 {
		return a
	}
	failure := resp.StatusCode >= http.StatusBadRequest
	if (failure || !ignoreQuotas) && ratelimitheader.Present(resp.Header) {
		a.quota, _ = ratelimitheader.Parse(resp.Header, now)
	}
	if failure {
		a.readFailure(resp.Header, now)
	}
	return a
}

// readFailure reads the headers that only failures bear.
func (a *answer) readFailure(h http.Header, now time.Time) {
	a.shouldRetry = readShouldRetry(h)
	a.retryAfter, a.asksToWait = retryafter.Parse(h, now)
	a.exhausted = a.quota.Exhausted
	for _, axis := range a.quota.Dimensions {
		if axis.Remaining == 0 {
			a.reset = max(a.reset, axis.Reset)
		}
	}
}

// readShouldRetry reads the server's explicit word: Stripe's field, or the one
// that OpenAI, Anthropic and others send.
func readShouldRetry(h http.Header) word {
	for _, name := range [...]string{"Stripe-Should-Retry", "X-Should-Retry"} {
		switch value := strings.TrimSpace(headerValue(h, name)); {
		case strings.EqualFold(value, "true"):
			return saidYes
		case strings.EqualFold(value, "false"):
			return saidNo
		}
	}
	return saidNothing
}

// didNoWork reports whether the server says that it has not processed the
// request, so that repeating it does no harm whatever its method: it never began
// (408, 425, 429), turned it away (503 with Retry-After), or asks for it again.
func (a *answer) didNoWork(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		if a.asksToWait {
			return true
		}
	}
	return a.shouldRetry == saidYes
}

// wait is how long the server asks to wait: Retry-After, or else the reset of
// the quota that the request met exhausted. Negative: it does not ask.
func (a *answer) wait() time.Duration {
	switch {
	case a.asksToWait:
		return a.retryAfter
	case a.reset > 0:
		return a.reset
	}
	return -1
}

// safeMethod is RFC 9110 section 9.2.1. Methods are case-sensitive; an unknown one
// is neither safe nor idempotent.
func safeMethod(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// idempotentMethod is RFC 9110 section 9.2.2.
func idempotentMethod(method string) bool {
	return safeMethod(method) || method == http.MethodPut || method == http.MethodDelete
}
