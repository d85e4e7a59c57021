package statepage

import (
	"strings"
	"time"
)

// headline is the answer in one sentence: what fails, since when, why, and what is done about it.
type headline struct {
	Class string `json:"class"` // good, warn, bad, or "" before the first call
	Text  string `json:"text"`
}

// newHeadline describes the worst scope and counts the others.
func newHeadline(p *page) headline {
	var worst *scopeView
	var client string // the Transport of worst
	failing, degraded, calls := 0, 0, 0
	for i := range p.Transports {
		t := &p.Transports[i]
		if t.Error != "" {
			return headline{"bad", "Each call of " + t.Name + " fails: its configuration is invalid."}
		}
		for j := range t.Scopes {
			s := &t.Scopes[j]
			calls += s.Responses.Calls
			switch s.Health {
			case healthFailing:
				failing++
			case healthDegraded, healthSlow:
				degraded++
			default:
			}
			if worst == nil || s.compare(worst) < 0 {
				worst, client = s, t.Name
			}
		}
	}
	name := ""
	if worst != nil {
		name = worst.Name()
		if p.isShared(worst) {
			name += " (Transport " + client + ")"
		}
	}
	h := headline{"good", "No call has failed in the last 5 min."}
	switch {
	case worst == nil:
		h = headline{"", "No call was made yet."}
	case failing > 0:
		h = headline{"bad", name + " fails" + worst.story(p.At) + others(failing-1, degraded)}
	case degraded > 0:
		h = headline{"warn", name + worst.verb() + worst.story(p.At) + others(0, degraded-1)}
	case worst.Blocked != nil:
		h = headline{"warn", "Calls to " + name + " wait. " + worst.Blocked.Reason + " " + worst.Action}
	case calls == 0:
		h = headline{"", "No call has ended in the last 5 min."}
	}
	if p.filter != "" {
		h.Text = "Of the scopes with “" + p.filter + "” in their name: " + h.Text
	}
	return h
}

// isShared reports whether another Transport has a scope of the same name.
func (p *page) isShared(s *scopeView) bool {
	n := 0
	for i := range p.Transports {
		for j := range p.Transports[i].Scopes {
			if p.Transports[i].Scopes[j].Name() == s.Name() {
				n++
			}
		}
	}
	return n > 1
}

// story returns how much fails, since when, why, and what is done about it.
func (s *scopeView) story(now time.Time) string {
	var parts []string
	if slow := s.Slowness(); slow != "" {
		parts = append(parts, slow)
	}
	if failed := s.failures(now); failed != "" {
		parts = append(parts, failed)
	}
	texts := []string{""}
	if len(parts) > 0 {
		texts[0] = ": " + strings.Join(parts, "; ")
	}
	if n := s.Breaker.Openings; n >= manyOpenings {
		texts = append(texts, "The circuit flaps: it has opened "+count(n)+" times in the last 5 min")
	}
	if f := s.Failure; f != nil && s.Health != healthSlow {
		texts = append(texts, "Last failure "+timeSince(f.At, now)+": "+endedWith(f.Status, f.ErrorType, f.Error))
	}
	text := strings.Join(texts, ". ") + "."
	if b := s.Blocked; b != nil && !b.Rejecting && !b.Until.IsZero() {
		text += " " + b.Reason
	}
	if s.Action != "" {
		text += " " + s.Action
	}
	return text
}

// manyOpenings is the number of openings in 5 min from which a circuit flaps.
const manyOpenings = 3

// failures returns how many calls failed, and since when; "" means none. If no call has come for 5 min, it says so: it is
// unknown whether the next one would fail.
func (s *scopeView) failures(now time.Time) string {
	text := s.failed(now)
	if text == "" || s.Failure == nil || s.Responses.Calls > 0 || s.InFlight+s.Queued+s.RetryWaiting > 0 {
		return text
	}
	return text + ", and no call since " + clock(s.Failure.At) + " (" + timeSince(s.Failure.At, now) + ")"
}

func (s *scopeView) failed(now time.Time) string {
	var text, since string
	if at := s.Responses.Since; !at.IsZero() {
		since = " since " + clock(at) + " (" + timeSince(at, now) + ")"
	}
	switch minute, all := &s.LastMinute, &s.Responses; {
	case s.Failure != nil && allFail(all.CallsSince, s.Failure.Status):
		return "all " + count(all.CallsSince) + " calls" + since + " failed"
	case minute.Failures > 0:
		text = count(minute.Failures) + " of " + plural(minute.Calls, "call") + " in the last minute failed"
	case all.Failures > 0:
		text = count(all.Failures) + " of " + plural(all.Calls, "call") + " in the last 5 min failed"
	}
	switch {
	case text == "" && since == "":
		return ""
	case text == "":
		return "no success" + since
	case since == "":
		return text + ", the last one succeeded"
	}
	return text + ", no success" + since
}

// Slowness returns what is slow, and what is usual; "" means that nothing is slow.
func (s *scopeView) Slowness() string {
	l := &s.Latency
	switch usual := "usually " + formatSeconds(l.UsualP50); {
	case !l.Slow:
		return ""
	case l.P50 > l.UsualP99 && l.P50 >= 4*l.UsualP50:
		return "half of the responses of the last minute took " + formatSeconds(l.P50) + " or more, " + usual
	default:
		return plural(s.InFlight, "attempt") + agree(s.InFlight, " waits", " wait") + " for a response, on average for " + formatSeconds(l.InFlightAge) + " so far, " + usual
	}
}

// verb says what is wrong with a scope that does not fail.
func (s *scopeView) verb() string {
	switch {
	case s.Health == healthSlow:
		return " is slow"
	case 2*s.LastMinute.Failures > s.LastMinute.Calls:
		return " has recovered"
	}
	return " is degraded"
}

// others counts the scopes beside the one that the headline describes.
func others(failing, degraded int) string {
	var texts []string
	if failing > 0 {
		texts = append(texts, plural(failing, "more scope")+agree(failing, " fails", " fail"))
	}
	if degraded > 0 {
		more := "scope"
		if failing == 0 {
			more = "more scope"
		}
		texts = append(texts, plural(degraded, more)+agree(degraded, " is", " are")+" degraded")
	}
	if len(texts) == 0 {
		return ""
	}
	return " " + strings.Join(texts, ", ") + "."
}

func agree(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Name is the scope with its priority.
func (s *scopeView) Name() string {
	if s.Priority != "" {
		return s.Scope + " (" + s.Priority + ")"
	}
	return s.Scope
}
