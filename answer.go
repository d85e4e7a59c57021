package resilienthttp

import (
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// answer is what a response says beside its status about repeating and pacing.
// The zero value is that of an attempt which got no response.
type answer struct {
	limited     bool // quota holds something
	quota       ratelimitheader.State
	shouldRetry word
	asksToWait  bool          // Retry-After or one of its kin
	retryAfter  time.Duration // that wait
	exhausted   bool          // a quota that is used up
	reset       time.Duration // until it is whole again; 0: the server does not say
}

// word is what a should-retry header says.
type word int

const (
	saidNothing word = iota
	saidYes
	saidNo
)

// readAnswer reads the headers of a response. Those that only failures bear are
// looked for on failures only.
func readAnswer(resp *http.Response, now time.Time) answer {
	var a answer
	if resp == nil || len(resp.Header) == 0 {
		return a
	}
	if ratelimitheader.Present(resp.Header) {
		a.quota, a.limited = ratelimitheader.Parse(resp.Header, now)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		a.readFailure(resp.Header, now)
	}
	return a
}

// readFailure reads the headers that only failures bear.
func (a *answer) readFailure(h http.Header, now time.Time) {
	a.shouldRetry = readShouldRetry(h)
	a.retryAfter, a.asksToWait = retryafter.Parse(h, now)
	a.exhausted = a.quota.Exhausted
	for _, axis := range a.quota.Axes {
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
