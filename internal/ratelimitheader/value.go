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
	instant time.Time     // base + wait, if the value was absolute and is not past
}

// maxRFC3339 is the maximum length of a value that is parsed as an RFC 3339 date. With
// nanoseconds and an offset such a date has 35 bytes.
const maxRFC3339 = 64

// parseReset parses a reset; see [Parse] for the forms.
func parseReset(s string, base time.Time) reset {
	s = strings.Trim(s, " \t")
	// The forms exclude each other. The most frequent ones come first.
	if n, ok := retryafter.ParseNumber(s); ok {
		return numericReset(n, base)
	}
	if d, ok := parseDuration(s); ok {
		return reset{valid: true, wait: d}
	}
	if len(s) <= maxRFC3339 {
		for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04Z07:00"} { // Atlassian omits the seconds
			if t, err := time.Parse(layout, s); err == nil {
				return absoluteReset(t, base)
			}
		}
	}
	if t, ok := retryafter.ParseDate(s); ok {
		return absoluteReset(t, base)
	}
	// "30;comment=x", or two lines that a proxy has joined: "30, 30".
	if n, ok := retryafter.ParseNumber(first(s)); ok {
		return numericReset(n, base)
	}
	return reset{}
}

// numericReset distinguishes epoch times from seconds by their size. 1e9 seconds are 31
// years, and 1e11 ms after the epoch was in 1973. If base is before 1e9, as in a
// testing/synctest bubble, which starts in the year 2000, epoch times start at 9e8.
func numericReset(n retryafter.Number, base time.Time) reset {
	switch {
	case n.Whole > 1e11:
		return absoluteReset(n.Time(time.Millisecond), base)
	case n.Whole > 1e9, n.Whole >= 9e8 && base.Unix() < 1e9:
		return absoluteReset(n.Time(time.Second), base)
	}
	return reset{valid: true, wait: n.Duration(time.Second)}
}

// absoluteReset returns the reset at t. If t is more than MaxReset after base, instant is
// reduced too, so that wait and instant agree.
func absoluteReset(t, base time.Time) reset {
	wait := retryafter.Until(t, base)
	if wait == 0 {
		return reset{valid: true}
	}
	return reset{valid: true, wait: wait, instant: base.Add(wait)}
}

// parseDuration parses a duration as Go and OpenAI write it, such as 12ms, 6m0s or
// 1h2m3.5s, and also days ("1d"). Unlike time.ParseDuration it accepts no sign, requires a
// unit for zero too, and reduces the result to MaxReset instead of failing.
func parseDuration(s string) (total time.Duration, ok bool) {
	in := &input{rest: s}
	for in.rest != "" {
		n, ok := retryafter.ParseNumber(in.while(digits + "."))
		if !ok {
			return 0, false
		}
		unit, err := 24*time.Hour, error(nil)
		if name := in.while("nuµμmshd"); name != "d" { // both characters for micro, as in package time
			unit, err = time.ParseDuration("1" + name)
		}
		if err != nil {
			return 0, false
		}
		// Both are at most MaxReset, so the sum does not overflow.
		total = retryafter.Clamp(total + n.Duration(unit))
	}
	return total, s != ""
}

// count returns the first valid count in the first field that has one, or unknown.
func (p *parser) count(fields ...string) int64 {
	for _, f := range fields {
		for line := range p.lines(f) {
			if n := parseCount(line); n >= 0 {
				return n
			}
		}
	}
	return unknown
}

// reset returns the first valid reset in the first field that has one, including resets
// that are past.
func (p *parser) reset(fields ...string) reset {
	for _, f := range fields {
		for line := range p.lines(f) {
			if r := parseReset(line, p.base); r.valid {
				return r
			}
		}
	}
	return reset{}
}

// parseCount returns a count without its fraction, or unknown. Reddit's Remaining is a
// float.
func parseCount(s string) int64 {
	n, ok := retryafter.ParseNumber(s) // most values are only a number
	if !ok {
		n, ok = retryafter.ParseNumber(first(s))
	}
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
