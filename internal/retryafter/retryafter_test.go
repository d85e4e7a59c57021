package retryafter

import (
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is the server's clock; now is the client's, which is wrong by an hour so that a
// confusion of the two fails a test.
var (
	server = time.Date(2015, time.October, 21, 7, 28, 0, 0, time.UTC)
	now    = server.Add(time.Hour)
)

// header makes a header of name, value, name, value.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestParse(t *testing.T) {
	const date = "Wed, 21 Oct 2015 07:28:00 GMT" // server
	for _, tt := range []struct {
		name   string
		header http.Header
		want   time.Duration
		wantOK bool
	}{
		{"nil header", nil, 0, false},
		{"no field", header("Date", date), 0, false},
		{"empty value", header("Retry-After", ""), 0, false},
		{"blank value", header("Retry-After", " \t "), 0, false},

		// Seconds.
		{"seconds", header("Retry-After", "120"), 2 * time.Minute, true},
		{"seconds with blanks", header("Retry-After", " \t120 "), 2 * time.Minute, true},
		{"zero", header("Retry-After", "0"), 0, true},
		{"fraction", header("Retry-After", "1.5"), 1500 * time.Millisecond, true},
		{"fraction of Discord", header("Retry-After", "64.57"), 64570 * time.Millisecond, true},
		{"fraction below a nanosecond is cut", header("Retry-After", "0.0000000019"), 1, true},
		{"seconds do not need a Date", header("Retry-After", "3", "Date", "never"), 3 * time.Second, true},

		// Forms that the RFC does not know.
		{"a list of a gateway", header("Retry-After", "30, 30"), 30 * time.Second, true},
		{"a list without a blank", header("Retry-After", "30,120"), 30 * time.Second, true},
		{"a list with parameters", header("Retry-After", "30;w=60"), 30 * time.Second, true},
		{"a list that begins with a word", header("Retry-After", "soon, 30"), 0, false},
		{"epoch seconds", header("Retry-After", "1445412510", "Date", date), 30 * time.Second, true},
		{"epoch milliseconds", header("Retry-After", "1445412510000", "Date", date), 30 * time.Second, true},
		{"epoch seconds in the past", header("Retry-After", "1445412400", "Date", date), 0, true},
		{"epoch seconds, by the client's clock", header("Retry-After", "1445416110"), 30 * time.Second, true},
		{"RFC 3339 date", header("Retry-After", "2015-10-21T07:28:30Z", "Date", date), 30 * time.Second, true},
		{"RFC 3339 date with an offset", header("Retry-After", "2015-10-21T09:28:30+02:00", "Date", date), 30 * time.Second, true},
		{"RFC 3339 date without seconds", header("Retry-After", "2015-10-21T07:29Z", "Date", date), time.Minute, true},
		{"a duration with a unit", header("Retry-After", "10s"), 10 * time.Second, true},
		{"a negative duration", header("Retry-After", "-10s"), 0, false},
		{"an HTTP date, which has a comma", header("Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT", "Date", date), 30 * time.Second, true},

		// Absurd.
		{"just below the maximum", header("Retry-After", "31535999"), Max - time.Second, true},
		{"the maximum", header("Retry-After", "31536000"), Max, true},
		{"a fraction above the maximum", header("Retry-After", "31536000.5"), Max, true},
		{"overflows a duration", header("Retry-After", "9223372037"), Max, true},
		{"overflows an int64", header("Retry-After", "9223372036854775808"), Max, true},
		{"wraps an int64 to 1", header("Retry-After", "18446744073709551617"), Max, true},
		{"four hundred digits", header("Retry-After", strings.Repeat("9", 400)), Max, true},
		{"four hundred zeros", header("Retry-After", strings.Repeat("0", 400)+"1"), time.Second, true},
		{"year 9999", header("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", "Date", date), Max, true},
		{"year 9999 without Date", header("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), Max, true},

		// Malformed.
		{"negative", header("Retry-After", "-1"), 0, false},
		{"exponent", header("Retry-After", "1e3"), 0, false},
		{"hexadecimal", header("Retry-After", "0x10"), 0, false},
		{"a word", header("Retry-After", "soon"), 0, false},
		{"point first", header("Retry-After", ".5"), 0, false},
		{"point last", header("Retry-After", "5."), 0, false},
		{"two points", header("Retry-After", "1.2.3"), 0, false},
		{"blank inside", header("Retry-After", "1 0"), 0, false},
		{"letter behind the clamp", header("Retry-After", strings.Repeat("9", 40)+"x"), 0, false},
		{"full-width digits", header("Retry-After", "１２"), 0, false},

		// Dates.
		{"IMF-fixdate", header("Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT", "Date", date), 30 * time.Second, true},
		{"RFC 850 date", header("Retry-After", "Wednesday, 21-Oct-15 07:28:30 GMT", "Date", date), 30 * time.Second, true},
		{"RFC 850 date in UTC", header("Retry-After", "Wednesday, 21-Oct-15 07:28:30 UTC", "Date", date), 30 * time.Second, true},
		{"asctime date", header("Retry-After", "Wed Oct 21 07:28:30 2015", "Date", date), 30 * time.Second, true},
		{"asctime date, one-digit day", header("Retry-After", "Sun Nov  1 07:28:00 2015", "Date", date), 11 * 24 * time.Hour, true},
		{"date with blanks", header("Retry-After", "  Wed, 21 Oct 2015 07:28:30 GMT\t", "Date", date), 30 * time.Second, true},
		{"date equal to Date", header("Retry-After", date, "Date", date), 0, true},
		{"past date", header("Retry-After", "Wed, 21 Oct 2015 07:27:59 GMT", "Date", date), 0, true},
		{"date before the epoch", header("Retry-After", "Thu, 01 Jan 1931 00:00:00 GMT", "Date", date), 0, true},
		{"date without Date", header("Retry-After", "Wed, 21 Oct 2015 08:28:30 GMT"), 30 * time.Second, true},
		{"past date without Date", header("Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT"), 0, true},
		{"date with a malformed Date", header("Retry-After", "Wed, 21 Oct 2015 08:28:30 GMT", "Date", "yesterday"), 30 * time.Second, true},
		{"date with a Date after a malformed one", header("Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT", "Date", "yesterday", "Date", date), 30 * time.Second, true},
		{"date with an empty Date", header("Retry-After", "Wed, 21 Oct 2015 08:28:30 GMT", "Date", ""), 30 * time.Second, true},
		{"Date in another form", header("Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT", "Date", "Wednesday, 21-Oct-15 07:28:00 GMT"), 30 * time.Second, true},
		{"other zone", header("Retry-After", "Wed, 21 Oct 2015 07:28:30 PST", "Date", date), 0, false},
		{"other zone, RFC 850", header("Retry-After", "Wednesday, 21-Oct-15 07:28:30 PST", "Date", date), 0, false},
		{"too long for a date", header("Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT"+strings.Repeat(" ", 99)+".", "Date", date), 0, false},

		// Milliseconds.
		{"milliseconds", header("Retry-After-Ms", "1500"), 1500 * time.Millisecond, true},
		{"fraction of a millisecond", header("Retry-After-Ms", "0.25"), 250 * time.Microsecond, true},
		{"zero milliseconds", header("Retry-After-Ms", "0"), 0, true},
		{"huge milliseconds", header("Retry-After-Ms", "99999999999999999999"), Max, true},
		{"the maximum in milliseconds", header("Retry-After-Ms", "31536000000"), Max, true},
		{"Azure milliseconds", header("X-Ms-Retry-After-Ms", "20"), 20 * time.Millisecond, true},
		{"AWS milliseconds", header("X-Amz-Retry-After", "500"), 500 * time.Millisecond, true},
		{"AWS milliseconds win over seconds", header("Retry-After", "2", "X-Amz-Retry-After", "1999"), 1999 * time.Millisecond, true},
		{"malformed AWS milliseconds fall back", header("Retry-After", "2", "X-Amz-Retry-After", "soon"), 2 * time.Second, true},
		{"milliseconds are no date", header("Retry-After-Ms", date, "Date", date), 0, false},
		{"milliseconds win over seconds", header("Retry-After", "2", "Retry-After-Ms", "1999"), 1999 * time.Millisecond, true},
		{"Azure milliseconds win over seconds", header("Retry-After", "2", "X-Ms-Retry-After-Ms", "1999"), 1999 * time.Millisecond, true},
		{"Retry-After-Ms wins over Azure's", header("X-Ms-Retry-After-Ms", "9", "Retry-After-Ms", "7"), 7 * time.Millisecond, true},
		{"malformed milliseconds fall back", header("Retry-After", "2", "Retry-After-Ms", "-7", "X-Ms-Retry-After-Ms", "NaN"), 2 * time.Second, true},
		{"malformed Retry-After-Ms falls back to Azure's", header("Retry-After", "2", "Retry-After-Ms", "", "X-Ms-Retry-After-Ms", "3"), 3 * time.Millisecond, true},

		// Several lines.
		{"first line wins", header("Retry-After", "5", "Retry-After", "9"), 5 * time.Second, true},
		{"malformed first line", header("Retry-After", "soon", "Retry-After", "9"), 9 * time.Second, true},
		{"malformed first millisecond line", header("Retry-After-Ms", "x", "Retry-After-Ms", "9"), 9 * time.Millisecond, true},
		{"nothing valid", header("Retry-After", "soon", "Retry-After-Ms", "x", "X-Ms-Retry-After-Ms", "y"), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Parse(tt.header, now)
			require.Equal(t, tt.wantOK, ok)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestNumberTime(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		unit     time.Duration
		want     time.Time
	}{
		{"epoch", "0", time.Second, time.Unix(0, 0)},
		{"seconds", "1470173023.123", time.Second, time.Unix(1470173023, 123e6)},
		{"milliseconds", "1470173023123.5", time.Millisecond, time.Unix(1470173023, 123500e3)},
		{"saturated seconds", strings.Repeat("9", 99), time.Second, time.Unix(1e13, 0)},
		{"saturated milliseconds", strings.Repeat("9", 99), time.Millisecond, time.Unix(1e13, 807e6)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, ok := ParseNumber(tt.in)
			require.True(t, ok)
			require.Equal(t, tt.want.UTC(), n.Time(tt.unit))
		})
	}
}

// Every failed attempt calls Parse, mostly without these fields.
func TestParse_absentDoesNotAllocate(t *testing.T) {
	h := ordinary()
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = Parse(h, now) }))
}

func TestParse_secondsDoesNotAllocate(t *testing.T) {
	h := ordinary()
	h.Set("Retry-After", "1.5")
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = Parse(h, now) }))
}

// FuzzParse checks that Parse never panics or leaves [0, Max], and that each accepted
// number has the value that big.Rat parses.
func FuzzParse(f *testing.F) {
	for _, v := range []string{"30, 30", "30;w=1", "1445412510", "1445412510000", "2015-10-21T07:28:30,5Z", "6m0s", "120", "1.5", "0.999999999", "365.000000001", "9223372037", "1e308", "Wed, 21 Oct 2015 07:28:30 GMT", "-1", "0x10"} {
		f.Add(v, "", "", "", "Wed, 21 Oct 2015 07:28:00 GMT")
		f.Add("", v, "", "", "")
		f.Add("", "", v, "", "")
		f.Add("", "", "", v, "")
		f.Add("1", "", "", "", v)
	}
	f.Fuzz(func(t *testing.T, seconds, millis, azure, aws, date string) {
		h := http.Header{
			"Retry-After":         {seconds},
			"Retry-After-Ms":      {millis},
			"X-Ms-Retry-After-Ms": {azure},
			"X-Amz-Retry-After":   {aws},
			"Date":                {date},
		}
		wait, ok := Parse(h, now)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, Max)
		if !ok {
			require.Zero(t, wait)
		}
		for _, s := range []string{seconds, millis, azure, aws} {
			n, ok := ParseNumber(s)
			if !ok {
				require.Zero(t, n)
				continue
			}
			requireExact(t, s, n)
		}
	})
}

// FuzzDate compares ParseDate with package time, which accepts zones other than GMT too.
func FuzzDate(f *testing.F) {
	for _, s := range []string{
		"Wed, 21 Oct 2015 07:28:00 GMT", "wed, 21 oct 2015 07:28:00 GMT", "Mon, 21 Oct 2015 07:28:00 GMT", "edT, 21 Oct 2015 07:28:00 GMT",
		"Wed, 21 anF 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 PST", "Wed, 21 Oct 2015 07-28-00 GMT", "Wed; 21-Oct-2015 07:28:00 GMT",
		"Sun, 29 Feb 2015 07:28:00 GMT", "Sat, 29 Feb 2020 07:28:00 GMT", "Wed, 00 Oct 2015 07:28:00 GMT", "Wed, 31 Nov 2015 07:28:00 GMT",
		"Wed, 21 Oct 2015 24:28:00 GMT", "Wed, 21 Oct 2015 07:60:00 GMT", "Wed, 21 Oct 2015 07:28:60 GMT", "Wed, +1 Oct 2015 07:28:00 GMT",
		"Wed, 21 Oct -015 07:28:00 GMT", "Fri, 01 Jan 0000 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 21 Oct 2015 7:28:00 GMT ",
		"Wednesday, 21-Oct-15 07:28:00 GMT", "Wed Oct 21 07:28:00 2015",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := http.ParseTime(strings.Trim(s, " \t"))
		zone, _ := want.Zone()
		valid := err == nil && (zone == "GMT" || zone == "UTC")
		got, ok := ParseDate(s)
		require.Equal(t, valid, ok)
		if ok {
			require.Equal(t, want.UTC(), got)
		}
	})
}

// requireExact compares n, the result of parsing s, with big.Rat's result.
func requireExact(t *testing.T, s string, n Number) {
	t.Helper()
	if len(s) > 500 { // keep the fuzzer quick
		return
	}
	exact, ok := new(big.Rat).SetString(strings.Trim(s, " \t"))
	require.True(t, ok, "%q is a number to ParseNumber alone", s)
	require.GreaterOrEqual(t, exact.Sign(), 0)

	whole := new(big.Int).Quo(exact.Num(), exact.Denom())
	if whole.IsInt64() {
		require.Equal(t, whole.Int64(), n.Whole)
	} else {
		require.Equal(t, int64(math.MaxInt64), n.Whole)
	}
	fraction := new(big.Rat).Sub(exact, new(big.Rat).SetInt(whole))
	fraction.Mul(fraction, big.NewRat(1e9, 1))
	require.Equal(t, new(big.Int).Quo(fraction.Num(), fraction.Denom()).Int64(), n.Nanos)

	for _, unit := range []time.Duration{time.Nanosecond, time.Millisecond, time.Second, time.Minute, 24 * time.Hour} {
		// The exact duration of the number with nine digits.
		want := new(big.Int).Add(
			new(big.Int).Mul(whole, big.NewInt(int64(unit))),
			new(big.Int).Quo(new(big.Int).Mul(big.NewInt(n.Nanos), big.NewInt(int64(unit))), big.NewInt(1e9)),
		)
		if want.Cmp(big.NewInt(int64(Max))) > 0 {
			want.SetInt64(int64(Max))
		}
		require.Equal(t, want.Int64(), int64(n.Duration(unit)), "%q times %s", s, unit)
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		require.False(t, n.Time(unit).Before(time.Unix(0, 0)))
	}
}

// ordinary is the header of a typical API response without a wait.
func ordinary() http.Header {
	return header(
		"Date", "Wed, 21 Oct 2015 07:28:00 GMT",
		"Content-Type", "application/json",
		"Content-Length", "1234",
		"Server", "nginx",
		"Cache-Control", "no-store",
		"Etag", `"abc"`,
		"Vary", "Accept-Encoding",
		"X-Request-Id", "6f1c1b0e",
		"Strict-Transport-Security", "max-age=31536000",
		"Connection", "keep-alive",
	)
}
