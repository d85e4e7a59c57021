package durable

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// gatewayHealth decides how many intents of a gateway may be claimed. core.mu guards it.
//
// After maxFailures attempts in a row without an answer, with less than failureGap between them,
// the Engine holds the gateway. A held gateway gets one due intent as a probe after firstProbe,
// and then after intervals that double up to probeInterval. The first answer ends the hold. If
// it lasted shortHold or longer, the rate begins at a tenth of the rate before the hold, and
// doubles each second up to one and a half of it. After rampTime the rate is not limited.
//
// So neither a short disturbance nor an intent or a tenant that always fails slows down the
// others much.
type gatewayHealth struct {
	workers int // of the gateway

	// internal/hold does not fit: its interval grows with each failure, and attempts that were in
	// flight when this hold began fail too.
	failures int           // attempts in a row without an answer
	failedAt time.Time     // the last of them
	failed   Outcome       // its outcome
	heldAt   time.Time     // since when the Engine holds the gateway; zero: it does not
	probeAt  time.Time     // when the next probe may be sent; zero: as soon as an intent is due
	probeIn  time.Duration // the interval before it
	byPerson bool          // a person holds the gateway

	second  int64   // the current second
	answers float64 // the answers in it
	rate    float64 // the answers in a busy second, lately

	rampAt time.Time // since when the rate rises; zero: it is not limited
	tokens float64   // claims that the limit permits now
	filled time.Time
}

const (
	maxFailures   = 20
	failureGap    = time.Minute
	firstProbe    = 100 * time.Millisecond
	probeInterval = 5 * time.Second
	shortHold     = 10 * time.Second
	rampTime      = time.Minute
	maxRamp       = 1.5 // so that the backlog shrinks while new intents arrive
)

// take returns how many of the free worker slots the gateway may use now. The caller must
// give back what it does not use.
func (h *gatewayHealth) take(now time.Time, free int) int {
	switch {
	case free <= 0:
		return 0
	case !h.heldAt.IsZero():
		if now.Before(h.probeAt) {
			return 0
		}
		h.probeIn = min(2*h.probeIn, probeInterval)
		h.probeAt = now.Add(h.probeIn)
		return 1
	case h.byPerson:
		return 1 // to find out whether it still is
	case h.rampAt.IsZero():
		return free
	case now.Sub(h.rampAt) > rampTime:
		h.rampAt = time.Time{}
		return free
	}
	limit := h.limit(now)
	h.tokens = min(h.tokens+now.Sub(h.filled).Seconds()*limit, burst(limit))
	h.filled = now
	n := min(free, int(h.tokens))
	h.tokens -= float64(n)
	return n
}

// giveBack takes back permits that were not used, because nothing was due.
func (h *gatewayHealth) giveBack(n int) {
	switch {
	case n == 0:
	case !h.heldAt.IsZero():
		h.probeAt = time.Time{}
	default:
		h.tokens += float64(n)
	}
}

// limit is the number of claims per second at that time of the ramp.
func (h *gatewayHealth) limit(now time.Time) float64 {
	return h.rate * min(math.Exp2(now.Sub(h.rampAt).Seconds())/10, maxRamp)
}

// burst is the number of claims at once: those of a tenth of a second.
func burst(limit float64) float64 { return max(limit/10, 1) }

// wait returns how long it takes until the gateway may have one more.
func (h *gatewayHealth) wait(now time.Time) time.Duration {
	switch {
	case !h.heldAt.IsZero() && !h.probeAt.IsZero():
		return h.probeAt.Sub(now)
	case !h.rampAt.IsZero() && h.tokens < 1:
		return time.Duration(burst(h.limit(now)) / h.limit(now) * float64(time.Second))
	default:
		return math.MaxInt64
	}
}

// recordOutcome counts the outcome of an attempt. It reports whether the Engine begins or ends
// to hold the gateway.
func (h *gatewayHealth) recordOutcome(o *Outcome, now time.Time) (changed bool) {
	_, own := errors.AsType[notBegunError](o.Err)
	switch {
	case own, o.Class == ClassDeclined && o.Unsent(): // the Gateway was not called, or could not build the request: the provider had no part in it
		return false
	case !answered(o):
		if now.Sub(h.failedAt) > failureGap {
			h.failures = 0
		}
		h.failures++
		h.failedAt, h.failed = now, Outcome{Status: o.Status, Code: o.Code, Err: o.Err}
		if h.failures < maxFailures || !h.heldAt.IsZero() {
			return false
		}
		h.heldAt, h.probeIn, h.probeAt = now, firstProbe, now.Add(firstProbe)
		return true
	}
	h.failures = 0
	if second := now.Unix(); second != h.second {
		if h.rampAt.IsZero() {
			h.rate = max(h.rate*0.9, h.answers)
		}
		h.second, h.answers = second, 0
	}
	h.answers++
	return h.end(now)
}

// notBegun is the outcome of an attempt for which the Engine did not call the Gateway.
func notBegun(err error) Outcome {
	return Outcome{Class: ClassFailed, Err: unsentError{notBegunError{err}}}
}

type notBegunError struct{ error }

// Unwrap returns the cause.
func (e notBegunError) Unwrap() error { return e.error }

// end ends the Engine's hold, and reports whether there was one.
func (h *gatewayHealth) end(now time.Time) bool {
	if h.heldAt.IsZero() {
		return false
	}
	short := now.Sub(h.heldAt) < shortHold
	h.heldAt, h.failures = time.Time{}, 0
	if !short {
		h.ramp(now)
	}
	return true
}

// setByPerson notes whether a person holds the gateway.
func (h *gatewayHealth) setByPerson(held bool, now time.Time) {
	if h.byPerson && !held {
		h.ramp(now)
	}
	h.byPerson = held
}

// ramp begins to limit the rate.
func (h *gatewayHealth) ramp(now time.Time) {
	if h.rampAt.IsZero() {
		h.rate = max(h.rate, h.answers)
	}
	if h.rate == 0 {
		h.rate = float64(h.workers) // no answer yet: one per worker and second
	}
	h.rampAt, h.filled, h.tokens = now, now, 0
}

// answered reports whether the provider answered with a decision. An answer that it cannot
// serve now is none. Without a status, a code is an answer.
func answered(o *Outcome) bool {
	if o.Class != ClassUnknown && o.Class != ClassFailed {
		return true
	}
	switch o.Status {
	case 0:
		return o.Code != ""
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	default:
		return o.Status < 500
	}
}

// hold returns the Engine's own hold of a gateway.
func (h *gatewayHealth) hold(gateway string) Hold {
	return Hold{
		Gateway: gateway, Since: h.heldAt.UTC(), ErrorType: errorType(h.failed.Status, h.failed.Err), Error: h.failed.Text(), ProbeAt: h.probeAt.UTC(),
		Note: fmt.Sprintf("%d attempts in a row without an answer; a probe at least every %v", maxFailures, probeInterval),
	}
}

// errorType returns the error.type of an outcome that is no success.
func errorType(status int, err error) string {
	if status >= http.StatusBadRequest {
		return strconv.Itoa(status)
	}
	return cmp.Or(resilienthttp.ErrorType(err), neterr.Other)
}
