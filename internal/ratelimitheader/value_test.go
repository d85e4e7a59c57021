package ratelimitheader

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse_resets(t *testing.T) {
	for _, tt := range []struct {
		name, reset string
		want        time.Duration // 0: dropped
		absolute    bool
	}{
		{"seconds", "30", 30 * time.Second, false},
		{"float seconds", "0.25", 250 * time.Millisecond, false},
		{"blanks", " 30\t", 30 * time.Second, false},
		{"the most that is seconds", "1000000000", MaxReset, false},
		{"the least that is epoch seconds", "1000000001", 0, true},
		{"epoch seconds", "1705314630", 30 * time.Second, true},
		{"epoch float seconds", "1705314630.5", 30500 * time.Millisecond, true},
		{"epoch seconds in the year 5138", "99999999999", MaxReset, true},
		{"epoch seconds at the border", "100000000000", MaxReset, true},
		{"epoch milliseconds at the border", "100000000001", 0, true}, // 1973
		{"epoch milliseconds", "1705314630250", 30250 * time.Millisecond, true},
		{"epoch float milliseconds", "1705314630250.5", 30250500 * time.Microsecond, true},
		{"epoch, this moment", "1705314600", 0, true},
		{"epoch, past", "1705314599", 0, true},
		{"epoch, huge", strings.Repeat("9", 400), MaxReset, true},
		{"milliseconds", "12ms", 12 * time.Millisecond, false},
		{"microseconds", "5us", 5 * time.Microsecond, false},
		{"microseconds, micro sign", "5µs", 5 * time.Microsecond, false},
		{"microseconds, Greek letter", "5μs", 5 * time.Microsecond, false},
		{"nanoseconds", "5ns", 5, false},
		{"minutes and seconds", "6m0s", 6 * time.Minute, false},
		{"hours and minutes", "1h2m", 62 * time.Minute, false},
		{"days", "1d12h", 0, false},
		{"float duration", "1m0.5s", time.Minute + 500*time.Millisecond, false},
		{"more than a year", "9999h", MaxReset, false},
		{"duration that overflows", strings.Repeat("9", 400) + "h", 0, false},
		{"zero duration", "0s", 0, false},
		{"duration with a sign", "-1s", 0, false},
		{"duration without a number", "s", 0, false},
		{"duration with two points", "1.2.3s", 0, false},
		{"duration without a unit at the end", "1m30", 0, false},
		{"unknown unit", "1w", 0, false},
		{"blank in a duration", "1h 2m", 0, false},
		{"RFC 3339", "2024-01-15T10:30:30Z", 30 * time.Second, true},
		{"RFC 3339, fraction and offset", "2024-01-15T12:30:30.5+02:00", 30500 * time.Millisecond, true},
		{"RFC 3339, past", "2024-01-15T10:29:59Z", 0, true},
		{"RFC 3339, year 9999", "9999-12-31T23:59:59Z", MaxReset, true},
		{"RFC 3339, year 0", "0000-01-01T00:00:00Z", 0, true},
		{"RFC 3339 without a zone", "2024-01-15T10:30:30", 0, true},
		{"RFC 3339, many digits", "2024-01-15T10:30:30." + strings.Repeat("0", 99) + "Z", 30 * time.Second, true},
		{"HTTP date", "Mon, 15 Jan 2024 10:30:30 GMT", 30 * time.Second, true},
		{"HTTP date, RFC 850", "Monday, 15-Jan-24 10:30:30 GMT", 30 * time.Second, true},
		{"HTTP date, asctime", "Mon Jan 15 10:30:30 2024", 30 * time.Second, true},
		{"HTTP date, past", "Mon, 15 Jan 2024 10:29:30 GMT", 0, true},
		{"two lines joined", "30, 60", 30 * time.Second, false},
		{"parameter", "30;comment=x", 30 * time.Second, false},
		{"zero", "0", 0, false},
		{"too little to tell from zero", "0.0000000001", 0, false},
		{"negative", "-5", 0, false},
		{"plus sign", "+5", 0, false},
		{"not a number", "NaN", 0, false},
		{"infinite", "Inf", 0, false},
		{"exponent", "1e3", 0, false},
		{"word", "never", 0, false},
		{"empty", "", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Parse(header("Date", date, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", tt.reset), now)
			require.Equal(t, tt.want > 0, ok)
			if !ok {
				return
			}
			want := Dimension{Remaining: 1, Reset: tt.want}
			if tt.absolute {
				want.Instant = at(tt.want)
			}
			require.Equal(t, []Dimension{want}, got.Dimensions)
		})
	}
}

func TestParse_counts(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        int64 // -1: dropped
	}{
		{"zero", "0", 0},
		{"integer", "17", 17},
		{"blanks", "\t17 ", 17},
		{"float", "17.99", 17},
		{"largest", "9223372036854775807", math.MaxInt64},
		{"larger", "9223372036854775808", math.MaxInt64},
		{"list", "17, 4", 17},
		{"parameters", "17;w=60", 17},
		{"unknown", "unknown", -1},
		{"unlimited", "unlimited", -1},
		{"minus one", "-1", -1},
		{"plus sign", "+1", -1},
		{"exponent", "1e3", -1},
		{"hexadecimal", "0x1", -1},
		{"not a number", "NaN", -1},
		{"infinite", "Infinity", -1},
		{"with a unit", "17 requests", -1},
		{"empty", "", -1},
		{"separators alone", ", ;", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Parse(header("X-RateLimit-Remaining", tt.value, "X-RateLimit-Reset", "1"), now)
			require.Equal(t, tt.want >= 0, ok)
			if ok {
				require.Equal(t, tt.want, got.Dimensions[0].Remaining)
				require.Equal(t, tt.want == 0, got.Exhausted)
			}

			got, ok = Parse(header("X-RateLimit-Limit", tt.value, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1"), now)
			require.True(t, ok, "an invalid limit does not drop the dimension")
			require.Equal(t, max(tt.want, 0), got.Dimensions[0].Limit)
		})
	}
}

// A testing/synctest bubble starts in the year 2000.
func TestParseReset_inTheYear2000(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name, reset string
		want        time.Duration
	}{
		{"epoch seconds", "946684830", 30 * time.Second},
		{"epoch float seconds", "946684830.5", 30500 * time.Millisecond},
		{"epoch seconds, past", "946684799", 0},
		{"epoch milliseconds", "946684830250", 30250 * time.Millisecond},
		{"the least that is epoch seconds", "900000000", 0},
		{"the most that is seconds", "899999999", MaxReset},
		{"seconds", "30", 30 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, ok := Parse(header("X-RateLimit-Remaining", "1", "X-RateLimit-Reset", row.reset), now)
			require.Equal(t, row.want > 0, ok)
			if ok {
				require.Equal(t, row.want, got.Dimensions[0].Reset)
			}
		})
	}
}
