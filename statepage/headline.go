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
			case healthDegraded:
				degraded++
			default:
			}
			if worst == nil || s.compare(worst) < 0 {
				worst = s
			}
		}
	}
	h := headline{"good", "No call has failed in the last 5 min."}
	switch {
	case worst == nil:
		h = headline{"", "No call was made yet."}
	case failing > 0:
		h = headline{"bad", worst.name() + " fails" + worst.story(p.At) + others(failing-1, degraded)}
	case degraded > 0:
		h = headline{"warn", worst.name() + " is degraded" + worst.story(p.At) + others(0, degraded-1)}
	case worst.Blocked != nil:
		h = headline{"warn", "Calls to " + worst.name() + " wait. " + worst.Blocked.Reason + " " + worst.Action}
	case calls == 0:
		h = headline{"", "No call has ended in the last 5 min."}
	}
	if p.filter != "" {
		h.Text = "Of the scopes with “" + p.filter + "” in their name: " + h.Text
	}
	return h
}

// story returns how much fails, since when, why, and what is done about it.
func (s *scopeView) story(now time.Time) string {
	var b strings.Builder
	switch minute, all := &s.LastMinute, &s.Responses; {
	case minute.Failures > 0:
		b.WriteString(": " + percentOf(minute.Failures, minute.Calls) + " of " + plural(minute.Calls, "call") + " in the last minute failed")
	case all.Failures > 0:
		b.WriteString(": " + percentOf(all.Failures, all.Calls) + " of " + plural(all.Calls, "call") + " in the last 5 min failed")
	}
	if since := s.Responses.Since; !since.IsZero() {
		b.WriteString(", no success since " + clock(since) + " (" + timeSince(since, now) + ")")
	}
	b.WriteString(".")
	if f := s.Failure; f != nil {
		b.WriteString(" Last failure: " + endedWith(f.Status, f.ErrorType, f.Error) + ".")
	}
	if s.Action != "" {
		b.WriteString(" " + s.Action)
	}
	return b.String()
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

// name is the scope with its priority.
func (s *scopeView) name() string {
	if s.Priority != "" {
		return s.Scope + " (" + s.Priority + ")"
	}
	return s.Scope
}
