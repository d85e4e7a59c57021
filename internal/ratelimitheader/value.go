package ratelimitheader

import (
	"iter"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// reset is a moment at which a quota is whole again.
type reset struct {
	stated  bool          // a valid value was there
	wait    time.Duration // in [0, MaxReset]; 0 when it is past
	instant time.Time     // base + wait, where the value was absolute
}

// maxRFC3339 is the length of the longest value that is tried as an RFC 3339
// date, in bytes; with nanoseconds and an offset it takes 35.
const maxRFC3339 = 64

// parseReset reads a reset; see [Parse] for the forms.
func parseReset(s string, base time.Time) reset {
	s = strings.Trim(s, " \t")
	// The forms exclude each other, so the order matters for speed alone.
	if n, ok := retryafter.ParseNumber(s); ok {
		return numericReset(n, base)
	}
	if d, ok := parseDuration(s); ok {
		return reset{stated: true, wait: d}
	}
	if len(s) <= maxRFC3339 {
		if t, err := time.Parse(time.RFC3339, s); err == nil {
			return absoluteReset(t, base)
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

// numericReset tells epoch times from seconds to go. As seconds to go, 1e9
// would be more than thirty years, and as milliseconds since the epoch, 1e11
// was in March 1973.
//
// Where the clock itself shows less than 1e9, as in a bubble of testing/synctest, which
// begins in the year 2000, numbers from 9e8 on are epoch times too.
func numericReset(n retryafter.Number, base time.Time) reset {
	switch {
	case n.Whole > 1e11:
		return absoluteReset(n.Time(time.Millisecond), base)
	case n.Whole > 1e9, n.Whole >= 9e8 && base.Unix() < 1e9:
		return absoluteReset(n.Time(time.Second), base)
	}
	return reset{stated: true, wait: n.Duration(time.Second)}
}

// absoluteReset is the reset at t. A moment too far ahead is moved nearer, so
// that wait and instant agree.
func absoluteReset(t, base time.Time) reset {
	wait := retryafter.Until(t, base)
	if wait == 0 {
		return reset{stated: true}
	}
	return reset{stated: true, wait: wait, instant: base.Add(wait)}
}

// parseDuration reads a duration as Go and OpenAI write it, like 12ms, 6m0s or
// 1h2m3.5s; days ("1d") are read too. In contrast to time.ParseDuration a sign
// is malformed, a unit is needed for zero too, and the result is clamped to
// MaxReset instead of failing.
func parseDuration(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	var total time.Duration
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if end <= 0 {
			return 0, false
		}
		n, ok := retryafter.ParseNumber(s[:end])
		if !ok {
			return 0, false
		}
		s = s[end:]
		end = strings.IndexAny(s, ".0123456789")
		if end < 0 {
			end = len(s)
		}
		unit, ok := unitOf(s[:end])
		if !ok {
			return 0, false
		}
		s = s[end:]
		// Both are at most MaxReset, so the sum fits.
		total = retryafter.Clamp(total + n.Duration(unit))
	}
	return total, true
}

// unitOf returns the duration that the unit stands for.
func unitOf(unit string) (time.Duration, bool) {
	switch unit {
	case "ns":
		return time.Nanosecond, true
	case "us", "µs", "μs": // both characters for micro, as in package time
		return time.Microsecond, true
	case "ms":
		return time.Millisecond, true
	case "s":
		return time.Second, true
	case "m":
		return time.Minute, true
	case "h":
		return time.Hour, true
	case "d":
		return 24 * time.Hour, true
	}
	return 0, false
}

// count reads a count, with fractions cut off (Reddit's Remaining is a float).
// Of a list it is the first member without its parameters: RateLimit-Limit may
// be "100, 100;w=60", and Docker Hub sends "ratelimit-remaining: 76;w=21600".
func count(s string) (int64, bool) {
	n, ok := retryafter.ParseNumber(first(s))
	return n.Whole, ok
}

// firstCount returns the first valid count among the lines, or unknown.
func firstCount(lines iter.Seq[string]) int64 {
	for line := range lines {
		if n, ok := count(line); ok {
			return n
		}
	}
	return unknown
}

// firstReset returns the first valid reset among the lines, one that is past
// included: it was the server's word. Malformed ones are passed over.
func firstReset(lines iter.Seq[string], base time.Time) reset {
	for line := range lines {
		if r := parseReset(line, base); r.stated {
			return r
		}
	}
	return reset{}
}

// first returns the first member of a list, without its parameters.
func first(s string) string {
	if i := strings.IndexAny(s, ",;"); i >= 0 {
		return s[:i]
	}
	return s
}

// costedName reports whether a quota of that name is counted in something else
// than requests.
func costedName(name string) bool {
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
		switch strings.TrimSuffix(strings.ToLower(word), "s") {
		case "token", "byte", "character", "credit", "point", "cost", "complexity":
			return true
		}
	}
	return false
}
