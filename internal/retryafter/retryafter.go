// Package retryafter parses how long a server asks its client to wait.
//
// The values have these problems in practice:
//
//   - The client's clock is wrong. A date is compared with the Date field of the same
//     response, so that both times come from one clock.
//   - The value is absurd: 9223372037 seconds overflow a time.Duration. All results are
//     at most [Max], and no step of the arithmetic overflows.
//   - The value is malformed: "-1", "NaN", "soon", "1e3". It is ignored, and not taken for
//     zero, because zero means "retry at once".
//   - The value has a form that the RFC does not know: "30, 30", where a gateway has joined two
//     fields, an epoch time, or an RFC 3339 date. [ParseMoment] reads these.
//   - Retry-After counts whole seconds, so servers also send a field with milliseconds.
//     The most exact valid value counts.
//
// All functions are pure and safe for concurrent use.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Max is the maximum wait: 365 days. A longer one is reduced to it. Sums of several waits
// stay within the range of time.Duration and time.Time.
const Max = 365 * 24 * time.Hour

// Parse returns the wait that the response with header h asks for, in [0, Max]. The first
// of these fields with a valid value counts:
//
//   - Retry-After-Ms, milliseconds, of OpenAI and Azure OpenAI;
//   - X-Ms-Retry-After-Ms, milliseconds, of Azure services;
//   - X-Amz-Retry-After, milliseconds, of AWS services;
//   - Retry-After (RFC 9110, section 10.2.3): seconds or a date, in each form of [ParseMoment].
//
// A date is compared with the response's Date. Without a valid Date it is compared with now,
// the client's time. A date in the past is (0, true), as is zero. ok is false if there is no
// valid value. Parse allocates nothing if the fields are absent.
func Parse(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, field := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After"} {
		for _, v := range h[field] {
			if n, ok := ParseNumber(v); ok {
				return n.Duration(time.Millisecond), true
			}
		}
	}
	for _, v := range h["Retry-After"] {
		m, ok := ParseMoment(v, func() time.Time { return Date(h, now) })
		if ok && m.Instant.IsZero() {
			return m.Wait, true
		}
		if ok {
			return Until(m.Instant, Date(h, now)), true
		}
	}
	return 0, false
}

// Moment is when a server asks its client to come again, or when its quota is full again: after a wait in [0, Max], or
// at an instant of the server's clock.
type Moment struct {
	Wait    time.Duration
	Instant time.Time // zero: there is a Wait
}

// ParseMoment parses a wait or a time in the forms that servers send. The forms exclude each other:
//
//   - a number: above 1e11 epoch milliseconds, above 1e9 epoch seconds, else seconds, maybe with a fraction;
//   - a duration with units, such as 12ms or 6m0s;
//   - a date of RFC 3339, also without seconds, as Atlassian sends it;
//   - an HTTP date (see [ParseDate]).
//
// Of a list of numbers or durations, and of a value with parameters, the first one counts: "100, 100;w=60". server returns the server's time. If
// that is before 1e9, as in a testing/synctest bubble, which starts in the year 2000, epoch times start at 9e8.
func ParseMoment(s string, server func() time.Time) (m Moment, ok bool) {
	first := s
	if end := strings.IndexAny(s, ",;"); end >= 0 {
		first = s[:end]
	}
	first = Trim(first)
	if n, ok := ParseNumber(first); ok {
		return n.moment(server), true
	}
	if s = Trim(s); strings.IndexByte(s, '-') == 4 { // of the year
		for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
			if t, err := time.Parse(layout, s); err == nil {
				return Moment{Instant: t}, true
			}
		}
	}
	if d, err := time.ParseDuration(first); err == nil && d >= 0 {
		return Moment{Wait: Clamp(d)}, true
	}
	t, ok := ParseDate(s)
	return Moment{Instant: t}, ok
}

// moment distinguishes epoch times from seconds by their size. 1e9 seconds are 31 years, and 1e11 ms after the epoch was
// in 1973.
func (n Number) moment(server func() time.Time) Moment {
	switch {
	case n.Whole > 1e11:
		return Moment{Instant: n.Time(time.Millisecond)}
	case n.Whole > 1e9, n.Whole >= 9e8 && server().Unix() < 1e9:
		return Moment{Instant: n.Time(time.Second)}
	}
	return Moment{Wait: n.Duration(time.Second)}
}

// Date returns the Date of the response with header h (RFC 9110, section 6.6.1), or now if it is absent or malformed.
func Date(h http.Header, now time.Time) time.Time {
	for _, v := range h["Date"] {
		if t, ok := ParseDate(v); ok {
			return t
		}
	}
	return now
}

// ParseDate parses an HTTP date in one of the three forms of RFC 9110, section 5.6.7, with
// optional blanks around it. The result is in UTC.
func ParseDate(s string) (time.Time, bool) {
	t, err := http.ParseTime(Trim(s))
	if err != nil {
		return time.Time{}, false
	}
	// For an unknown zone abbreviation the RFC 850 layout uses offset zero: "PST" would be
	// parsed eight hours too early. The RFC allows GMT only.
	if zone, _ := t.Zone(); zone != "UTC" && zone != "GMT" {
		return time.Time{}, false
	}
	return t.UTC(), true
}

// Until returns t minus base, in [0, Max].
func Until(t, base time.Time) time.Duration { return Clamp(t.Sub(base)) } // Sub saturates

// Clamp returns the duration in [0, Max] that is nearest to d.
func Clamp(d time.Duration) time.Duration { return min(max(d, 0), Max) }

// Number is a non-negative decimal number. Unlike a float64 it is exact to the nanosecond
// for epoch times, and it is never NaN or infinite.
type Number struct {
	// Whole is the integer part, at most math.MaxInt64.
	Whole int64
	// Nanos is the fraction in units of 1e-9, in [0, 999999999], without further digits.
	Nanos int64
}

// ParseNumber parses digits, with an optional point and more digits ("1.5"), and optional blanks around them. All else
// is malformed, such as a sign or an exponent. A number that is too large is reduced to math.MaxInt64.
func ParseNumber(s string) (n Number, ok bool) {
	whole, fraction, pointed := strings.Cut(Trim(s), ".")
	if !isDigits(whole) || pointed && !isDigits(fraction) {
		return Number{}, false
	}
	n.Whole, _ = strconv.ParseInt(whole, 10, 64) // out of range: math.MaxInt64
	unit := int64(1e8)
	for _, digit := range []byte(fraction) {
		n.Nanos += int64(digit-'0') * unit
		unit /= 10
	}
	return n, true
}

// isDigits reports whether s is one or more digits.
func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Duration returns n times unit, in [0, Max], rounded down to a nanosecond. The unit must be in (0, 24h].
func (n Number) Duration(unit time.Duration) time.Duration {
	if n.Whole > int64(Max/unit) {
		return Max
	}
	// No overflow: Whole*unit is at most Max, and the fraction is less than one unit. The unit
	// is split so that both of its parts, times Nanos, fit: each factor is less than 1e9.
	d := time.Duration(n.Whole) * unit
	d += time.Duration(n.Nanos) * (unit / 1e9)
	d += time.Duration(n.Nanos) * (unit % 1e9) / 1e9
	return Clamp(d)
}

// Time returns the moment n units after the Unix epoch, in UTC. The unit must be time.Second or time.Millisecond. A
// number that is too large is reduced to 1e13 s, with which time.Time can still calculate.
func (n Number) Time(unit time.Duration) time.Time {
	perSecond := int64(time.Second / unit)
	seconds := min(n.Whole/perSecond, 1e13)
	nanos := n.Whole%perSecond*int64(unit) + n.Nanos/perSecond
	return time.Unix(seconds, nanos).UTC()
}

// Trim removes optional whitespace (OWS in RFC 9110).
func Trim(s string) string { return strings.Trim(s, " \t") }
