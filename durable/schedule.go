package durable

import (
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// Schedule is the Policy of everyday: it tries again what may pass, ever more rarely,
// and buries what was refused. The zero value works. It is safe for concurrent use.
//
// What nobody knows is resent as long as attempts are left, and asked for from then on,
// where that can be done, until MaxAge.
type Schedule struct {
	// Backoff is the wait before a try. nil: resilienthttp.FullJitter(1s, 1h). What the
	// other side asks for comes first, and the wait is added to it.
	Backoff resilienthttp.Backoff

	// MaxAttempts is the most sends. 0: 12; negative: any number.
	MaxAttempts int

	// MaxAge is how long after it was enqueued, mended or redriven an intent is tried.
	// 0: 72 h; negative: for ever.
	MaxAge time.Duration
}

const (
	defaultAttempts = 12
	defaultAge      = 72 * time.Hour
)

var _ Policy = Schedule{}

// Next implements Policy.
func (s Schedule) Next(h *History, now time.Time) Decision {
	if !h.Doubt && h.Outcome.Class == ClassRefused {
		return Decision{Do: Bury, Reason: ReasonRefused}
	}
	d := Decision{Do: Retry, At: s.after(h, now)}
	if h.Doubt && (h.Asked || s.spent(h)) {
		d.Do = Ask
	}
	if s.old(h, d.At) || s.spent(h) && (d.Do == Retry || !h.Finds) {
		return s.exhausted(h)
	}
	return d
}

// after is the time of the next try.
func (s Schedule) after(h *History, now time.Time) time.Time {
	backoff := s.Backoff
	if backoff == nil {
		backoff = resilienthttp.FullJitter(time.Second, time.Hour)
	}
	if h.Outcome.NotBefore.After(now) {
		now = h.Outcome.NotBefore
	}
	return now.Add(min(max(backoff(h.Tries, h.Wait), 0), longestWait))
}

// spent reports whether no send is left.
func (s Schedule) spent(h *History) bool {
	most := s.MaxAttempts
	if most == 0 {
		most = defaultAttempts
	}
	return most > 0 && h.Attempts >= most
}

// old reports whether a try at that time would be too late.
func (s Schedule) old(h *History, at time.Time) bool {
	most := s.MaxAge
	if most == 0 {
		most = defaultAge
	}
	return most > 0 && at.Sub(h.Since) > most
}

func (s Schedule) exhausted(h *History) Decision {
	if h.Doubt {
		return Decision{Do: Bury, Reason: ReasonUnresolved}
	}
	return Decision{Do: Bury, Reason: ReasonExhausted}
}
