package ratelimitheader

import (
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// reset is the time of a quota's next reset.
type reset struct {
	valid   bool          // the server sent a valid value
	wait    time.Duration // in [0, MaxReset]; 0 if the reset is past
	instant time.Time     // when the server wrote the response + wait, if the value was absolute and is not past
}

// maxRFC3339 is the maximum length of a value that is parsed as an RFC 3339 date. With
// nanoseconds and an offset such a date has 35 bytes.
const maxRFC3339 = 64

// parseReset parses a reset; see [Parse] for the forms.
func (p *parser) parseReset(s string) reset {
	s = strings.Trim(s, " \t")
	// The forms exclude each other. The most frequent ones come first.
	if n, ok := retryafter.ParseNumber(s); ok {
		return p.numericReset(n)
	}
	if len(s) <= maxRFC3339 && strings.IndexByte(s, '-') == 4 { // of the year
		for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04Z07:00"} { // Atlassian omits the seconds
			if t, err := time.Parse(layout, s); err == nil {
				return p.absoluteReset(t)
			}
		}
	}
	if d, ok := parseDuration(s); ok {
		return reset{valid: true, wait: d}
	}
	if t, ok := retryafter.ParseDate(s); ok {
		return p.absoluteReset(t)
	}
	// "30;comment=x", or two lines that a proxy has joined: "30, 30".
	if n, ok := retryafter.ParseNumber(first(s)); ok {
		return p.numericReset(n)
	}
	return reset{}
}

// numericReset distinguishes epoch times from seconds by their size. 1e9 seconds are 31
// years, and 1e11 ms after the epoch was in 1973. If the server's clock is before 1e9, as in a
// testing/synctest bubble, which starts in the year 2000, epoch times start at 9e8.
func (p *parser) numericReset(n retryafter.Number) reset {
	switch {
	case n.Whole > 1e11:
		return p.absoluteReset(n.Time(time.Millisecond))
	case n.Whole > 1e9, n.Whole >= 9e8 && p.written().Unix() < 1e9:
		return p.absoluteReset(n.Time(time.Second))
	}
	return reset{valid: true, wait: n.Duration(time.Second)}
}

// absoluteReset returns the reset at t. If t is more than MaxReset ahead, instant is reduced
// too, so that wait and instant agree.
func (p *parser) absoluteReset(t time.Time) reset {
	wait := retryafter.Until(t, p.written())
	if wait == 0 {
		return reset{valid: true}
	}
	return reset{valid: true, wait: wait, instant: p.written().Add(wait)}
}

// written returns the time when the server wrote the response, by the response's Date or, without
// one, by the client's clock. Most resets are relative and do not need it.
func (p *parser) written() time.Time {
	if p.base.IsZero() {
		p.date = retryafter.Date(p.header, time.Time{})
		if p.base = p.date.UTC(); p.date.IsZero() {
			p.base = p.now.UTC()
		}
	}
	return p.base
}

// parseDuration parses a duration as Go and OpenAI write it, such as 12ms, 6m0s or
// 1h2m3.5s, and also days ("1d12h"). It accepts no sign and no number without a unit.
func parseDuration(s string) (d time.Duration, ok bool) {
	if days, rest, found := strings.Cut(s, "d"); found {
		n, ok := retryafter.ParseNumber(days)
		if d = n.Duration(24 * time.Hour); !ok || rest == "" {
			return d, ok
		}
		s = rest
	}
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	rest, err := time.ParseDuration(s)
	return retryafter.Clamp(d + min(rest, MaxReset)), err == nil && s != "0"
}

// parseCount returns a count without its fraction, or unknown. Reddit's Remaining is a
// float.
func parseCount(s string) int64 {
	n, ok := retryafter.ParseNumber(first(s))
	if !ok {
		return unknown
	}
	return n.Whole
}

// first returns the first member of a list, without its parameters: RateLimit-Limit may
// be "100, 100;w=60", and Docker Hub sends "ratelimit-remaining: 76;w=21600".
func first(s string) string {
	if i := strings.IndexAny(s, ",;"); i >= 0 {
		return s[:i]
	}
	return s
}

// costedName reports whether a quota with that name does not count requests.
func costedName(name string) bool {
	for word := range strings.FieldsFuncSeq(strings.ToLower(name), func(r rune) bool { return r < 'a' || r > 'z' }) {
		switch strings.TrimSuffix(word, "s") {
		case "token", "byte", "character", "credit", "point", "cost", "complexity":
			return true
		}
	}
	return false
}
