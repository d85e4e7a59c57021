package durable

import (
	"cmp"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// Schedule is the default Policy. It retries transient failures and unknown outcomes for
// MaxAge, at growing intervals, and dead-letters a decline at once. The zero value works.
// It is safe for concurrent use.
//
// After a send with an unknown outcome, the intent is sent again under the same key. After a
// status query without a result, it is queried again. An outage that is shorter than MaxAge
// leaves no dead letters.
type Schedule struct {
	// Backoff is the wait before a try. nil means resilienthttp.FullJitter(1s, 1h). A Retry-After
	// of the provider is added to the wait before a send.
	Backoff resilienthttp.Backoff

	// MaxAttempts is the maximum number of sends that the provider declines, for a Policy that
	// repeats declines: see Declines. Failures and unknown outcomes are not counted. Zero means
	// 12. A negative number means no limit.
	MaxAttempts int

	// MaxAge is how long an intent is tried, from the time at which it was due first after it was
	// enqueued, corrected or redriven. If it was due and not tried for longer than it was tried
	// before, for example while a person held its gateway, that time does not count. Zero means
	// 72 h. A negative duration means no limit.
	MaxAge time.Duration
}

const (
	defaultAttempts = 12
	defaultAge      = 72 * time.Hour
)

var _ Policy = Schedule{}

// Next implements Policy.
func (s Schedule) Next(h *History, now time.Time) Decision {
	if !h.InDoubt && h.Outcome.Class == ClassDeclined {
		return Decision{Action: Bury, Reason: ReasonDeclined}
	}
	d := Decision{Action: Retry}
	if h.InDoubt && h.WasQuery {
		d.Action = Query
	}
	d.At = s.after(h, d.Action, now)
	if s.old(h, d.At) {
		return s.exhausted(h)
	}
	return d
}

// after is the time of the next try. A Retry-After delays sends only.
func (s Schedule) after(h *History, action Action, now time.Time) time.Time {
	backoff := s.Backoff
	if backoff == nil {
		backoff = resilienthttp.FullJitter(time.Second, time.Hour)
	}
	if h.Outcome.NotBefore.After(now) && action != Query {
		now = h.Outcome.NotBefore
	}
	return now.Add(min(max(backoff(h.Tries, h.Wait), 0), maxWait))
}

// declined reports whether the provider has declined as often as it may.
func (s Schedule) declined(h *History) bool {
	most := cmp.Or(s.MaxAttempts, defaultAttempts)
	return most > 0 && h.Declines >= most
}

// old reports whether a try at that time would be too late.
func (s Schedule) old(h *History, at time.Time) bool {
	most := cmp.Or(s.MaxAge, defaultAge)
	return most > 0 && at.Sub(h.Since) > most
}

func (s Schedule) exhausted(h *History) Decision {
	if h.InDoubt {
		return Decision{Action: Bury, Reason: ReasonUnresolved}
	}
	return Decision{Action: Bury, Reason: ReasonExhausted}
}
