// Package retryafter reads how long a server asks its client to wait.
//
// What goes wrong with such values in practice, and what this package makes of
// it:
//
//   - The client's clock is wrong. A date is judged against the Date field of
//     the same response, so both ends of the subtraction come from one clock.
//   - The value is absurd: 9223372037 seconds overflow a time.Duration, and the
//     year 9999 is a favourite of people who mean "never". Everything is
//     clamped to [Max], and no step of the arithmetic can overflow.
//   - The value is nonsense: "-1", "NaN", "soon", "1e3". It is ignored, never
//     taken for zero, because zero means "retry at once".
//   - The numbers are precise but the field is not: Retry-After counts whole
//     seconds, so services send a millisecond field beside it. The most exact
//     valid one wins.
//
// All functions are pure and safe for concurrent use.
package retryafter

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// Max is the longest wait that is ever reported: 365 days. Anything longer is
// cut to it. It is far beyond what any caller would sleep, and small enough
// that sums of several waits, and a wait added to the present time, stay
// within range of their types.
const Max = 365 * 24 * time.Hour

// Field names as net/http canonicalises them, so that they can be looked up in
// the map itself.
const (
	fieldDate        = "Date"
	fieldRetryAfter  = "Retry-After"
	fieldMillis      = "Retry-After-Ms"
	fieldAzureMillis = "X-Ms-Retry-After-Ms"
)

// maxDate is the length of the longest value that is tried as an HTTP date, in
// bytes. The longest valid one is 33 bytes; the rest is not worth parsing.
const maxDate = 64

// Parse reports the wait that the response with header h asks for, in
// [0, Max]. The first source with a valid value wins, the most exact ones
// first:
//
//   - Retry-After-Ms, milliseconds. OpenAI and Azure OpenAI send it.
//   - X-Ms-Retry-After-Ms, milliseconds. Azure services send it; see
//     https://learn.microsoft.com/rest/api/cosmos-db/common-cosmosdb-rest-response-headers.
//   - Retry-After (RFC 9110, section 10.2.3): seconds, or any of the three date
//     forms of section 5.6.7. Fractions of seconds are no part of the RFC, but
//     are sent, and are read.
//
// A date is the wait from the response's own Date field to that date, and zero
// when it is past. Only where Date is absent or malformed does now, the
// client's clock, stand in for it.
//
// A number is digits, with an optional point and more digits ("1.5"). Signs,
// exponents, digit separators and hexadecimal are malformed. A malformed value
// is passed over, and ok is false when nothing valid is left. A valid zero is
// (0, true).
//
// Where the fields are absent, Parse allocates nothing.
func Parse(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, v := range h[fieldMillis] {
		if n, ok := ParseNumber(v); ok {
			return n.Duration(time.Millisecond), true
		}
	}
	for _, v := range h[fieldAzureMillis] {
		if n, ok := ParseNumber(v); ok {
			return n.Duration(time.Millisecond), true
		}
	}
	for _, v := range h[fieldRetryAfter] {
		if n, ok := ParseNumber(v); ok {
			return n.Duration(time.Second), true
		}
		if t, ok := ParseDate(v); ok {
			return Until(t, Date(h, now)), true
		}
	}
	return 0, false
}

// Date returns the moment at which the response with header h was written, by
// the server's clock (its Date field, RFC 9110, section 6.6.1), or now where
// that field is absent or malformed.
func Date(h http.Header, now time.Time) time.Time {
	for _, v := range h[fieldDate] {
		if t, ok := ParseDate(v); ok {
			return t
		}
	}
	return now
}

// ParseDate reads an HTTP date in any of the three forms of RFC 9110, section
// 5.6.7, with blanks around it allowed. The result is in UTC.
func ParseDate(s string) (time.Time, bool) {
	s = trim(s)
	if s == "" || len(s) > maxDate {
		return time.Time{}, false
	}
	t, err := http.ParseTime(s)
	if err != nil {
		return time.Time{}, false
	}
	// The RFC 850 layout takes any zone abbreviation, and for one that it does
	// not know it makes up a zone at offset zero: "PST" would be read eight
	// hours too early. The RFC allows GMT alone.
	if zone, _ := t.Zone(); zone != "UTC" && zone != "GMT" {
		return time.Time{}, false
	}
	return t.UTC(), true
}

// Until returns t minus base, in [0, Max].
func Until(t, base time.Time) time.Duration {
	// Sub saturates, so dates that lie ages apart are no hazard.
	return Clamp(t.Sub(base))
}

// Clamp returns the nearest duration to d in [0, Max].
func Clamp(d time.Duration) time.Duration {
	return min(max(d, 0), Max)
}

// Number is a decimal that is not negative, as header fields spell it. Unlike a
// float64 it is exact to the nanosecond for epoch times and it has neither NaN
// nor infinities.
type Number struct {
	// Whole is the integer part; beyond the range of its type it is
	// math.MaxInt64.
	Whole int64
	// Nanos is the fraction in units of 1e-9, in [0, 999999999]. Further digits
	// are cut off.
	Nanos int64
}

// ParseNumber reads digits, with an optional point and more digits, and blanks
// around them. Anything else, an empty string included, is malformed. A number
// of any length is read in one pass, and saturates instead of overflowing.
func ParseNumber(s string) (Number, bool) {
	whole, fraction, point := strings.Cut(trim(s), ".")
	if whole == "" || point && fraction == "" {
		return Number{}, false
	}
	var n Number
	for i := range len(whole) {
		d := int64(whole[i]) - '0'
		if d < 0 || d > 9 {
			return Number{}, false
		}
		if n.Whole > (math.MaxInt64-d)/10 {
			// Go on: the rest must be digits all the same. Every later digit
			// comes here too.
			n.Whole = math.MaxInt64
			continue
		}
		n.Whole = n.Whole*10 + d
	}
	scale := int64(1e8)
	for i := range len(fraction) {
		d := int64(fraction[i]) - '0'
		if d < 0 || d > 9 {
			return Number{}, false
		}
		n.Nanos += d * scale
		scale /= 10
	}
	return n, true
}

// Duration returns n times unit, clamped to [0, Max], with what is below a
// nanosecond cut off. The unit must be in (0, 24h].
func (n Number) Duration(unit time.Duration) time.Duration {
	if n.Whole > int64(Max/unit) {
		return Max
	}
	// No overflow: Whole*unit is at most Max, and the fraction is less than one
	// unit, split so that the product of Nanos (< 1e9) and what is left of the
	// unit (< 1e9) fits.
	d := time.Duration(n.Whole) * unit
	d += time.Duration(n.Nanos) * (unit / 1e9)
	d += time.Duration(n.Nanos) * (unit % 1e9) / 1e9
	return Clamp(d)
}

// Time returns the moment n units after the Unix epoch, in UTC; the unit is
// time.Second or time.Millisecond. A number too large for that is cut to a
// moment that is still safe to calculate with, hundreds of thousands of years
// ahead.
func (n Number) Time(unit time.Duration) time.Time {
	const most = 1e13 // seconds; time.Time holds up to about 9e18
	perSecond := int64(time.Second / unit)
	seconds := min(n.Whole/perSecond, most)
	nanos := n.Whole%perSecond*int64(unit) + n.Nanos/perSecond
	return time.Unix(seconds, nanos).UTC()
}

// trim removes the blanks that RFC 9110 calls OWS.
func trim(s string) string { return strings.Trim(s, " \t") }
