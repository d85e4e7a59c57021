package resilienthttp

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/netfail"
)

// overloaded reports whether the failure looks like that of a server with more
// work than it can do.
func (a *attempt) overloaded() bool {
	switch a.fate {
	case fateTimeout:
		return true
	case fateError:
		return netfail.TimedOut(a.record.Err)
	case fateAnswered:
		return a.turnedAway() || a.record.Verdict == VerdictThrottled || a.record.Response.StatusCode == http.StatusGatewayTimeout
	default:
		return false
	}
}

// turnedAway reports whether the answer says that the server has no room.
func (a *attempt) turnedAway() bool {
	if a.fate != fateAnswered {
		return false
	}
	status := a.record.Response.StatusCode
	return status == http.StatusServiceUnavailable || status == statusOverloaded
}

const (
	defaultBackoffBase = 100 * time.Millisecond
	defaultBackoffMax  = 10 * time.Second
	herdBackoffBase    = 3 * time.Second
	herdBackoffPart    = 10 // of the time that is left is the most that the base may be
)

// backoff is how long to wait before the next attempt, beside what the server
// asks.
func (c *call) backoff(last *attempt, now time.Time) time.Duration {
	retry := last.record.Number
	if own := c.perCall().Backoff; own != nil {
		return own(retry, c.more.previous)
	}
	base := defaultBackoffBase
	if c.herded(last, now) {
		base = herdBackoffBase
		if !c.deadline.IsZero() {
			base = max(min(base, c.deadline.Sub(now)/herdBackoffPart), defaultBackoffBase)
		}
	}
	return FullJitter(base, defaultBackoffMax)(retry, c.more.previous)
}

// herded reports whether many others may be about to repeat their calls at this
// moment, whom no budget counts together: the clients of a server that served
// them a moment ago and has turned them all away, without a word on when to come
// back. Where the calls of this client make up for a retry, the budget does it
// for all of them; and who was never served has come in his own time.
func (c *call) herded(last *attempt, now time.Time) bool {
	return last.asked < 0 && last.turnedAway() && last.permit.served() && !c.budget.covers(c.scope, now)
}
