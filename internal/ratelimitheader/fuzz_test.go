package ratelimitheader

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// FuzzParse builds a header from lines and checks Parse's documented guarantees.
func FuzzParse(f *testing.F) {
	for _, lines := range []string{
		"Date: " + date + "\nX-Ratelimit-Limit: 5000\nX-Ratelimit-Remaining: 4966\nX-Ratelimit-Reset: 1705318200\nX-Ratelimit-Resource: core",
		"Ratelimit-Limit: 60\nRatelimit-Name: throttle\nRatelimit-Remaining: 0\nRatelimit-Reset: 1609844400\nRatelimit-Resettime: Tue, 05 Jan 2021 11:00:00 GMT",
		"X-Ratelimit-Remaining-Requests: 59\nX-Ratelimit-Reset-Requests: 12ms\nX-Ratelimit-Remaining-Tokens: 7\nX-Ratelimit-Reset-Tokens: 6m0s",
		"Date: " + date + "\nAnthropic-Ratelimit-Input-Tokens-Remaining: 7\nAnthropic-Ratelimit-Input-Tokens-Reset: 2024-01-15T10:31:00Z",
		"Date: " + date + "\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1705314602.871\nX-Ratelimit-Reset-After: 1.371\nX-Ratelimit-Bucket: abcd\nX-Ratelimit-Global: true",
		"X-Ratelimit-Used: 4\nX-Ratelimit-Remaining: 995.0\nX-Ratelimit-Reset: 542",
		"X-Rate-Limit: 700\nX-Rate-Limit-Remaining: 699\nRatelimit-Reset: 41",
		"X-Shopify-Shop-Api-Call-Limit: 32/40",
		"Ratelimit-Policy: \"a,\\\"b\";q=100;w=60;qu=\"content-bytes\";pk=:YQ==:\nRatelimit: \"a,\\\"b\";r=50;t=30;pk=:YQ==:, tok;r=1;t=1",
		"Ratelimit: limit=100, remaining=50, reset=30\nRatelimit-Policy: 100;w=10",
		"Ratelimit-Limit: 100, 100;w=60\nRatelimit-Remaining: 50\nRatelimit-Reset: 30",
		"Ratelimit: (1 \"x\";a=?1 %\"f%c3\");b=@-1, *t:/;c=-1.5;r=9223372036854775808;t=1e9",
		"Ratelimit: \"p\";a=1;w=1;c=9;pk=:YQ==:\nRatelimit-Policy: \"p\";q=9;w=60",
		"Age: 5\nRatelimit: \"p\";r=1;t=1",
		"X-Ram: 1\nBeta-M: 2",
	} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		h := http.Header{}
		for line := range strings.Lines(lines) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			h.Add(name, value) // canonical only if the name is valid; Parse must handle both
		}
		before := h.Clone()
		got, ok := Parse(h, now)
		require.Equal(t, before, h, "the header is not modified")
		require.Equal(t, len(got.Dimensions) > 0, ok)
		require.LessOrEqual(t, len(got.Dimensions), MaxDimensions)
		require.LessOrEqual(t, len(got.Bucket), MaxName)
		if got.Global {
			require.Empty(t, got.Bucket)
		}
		base := now
		if d, err := http.ParseTime(strings.Trim(h.Get("Date"), " \t")); err == nil {
			base = d
		}
		names := map[string]bool{}
		for _, a := range got.Dimensions {
			require.LessOrEqual(t, len(a.Name), MaxName)
			require.False(t, names[a.Name], "%q twice", a.Name)
			names[a.Name] = true
			require.GreaterOrEqual(t, a.Limit, int64(0))
			require.GreaterOrEqual(t, a.Remaining, int64(0))
			require.Positive(t, a.Reset)
			require.LessOrEqual(t, a.Reset, MaxReset)
			require.GreaterOrEqual(t, a.Window, time.Duration(0))
			require.LessOrEqual(t, a.Window, MaxReset)
			if !a.Instant.IsZero() && h.Get("Date") == "" {
				require.Equal(t, a.Reset, a.Instant.Sub(base))
			}
			require.True(t, a.Remaining > 0 || got.Exhausted)
		}
		// The result must not depend on the order of the map.
		again, _ := Parse(h, now)
		require.Equal(t, got, again)
	})
}

// FuzzReset compares the reset of a quota with package time for values that both accept.
func FuzzReset(f *testing.F) {
	for _, s := range []string{
		"30", "0.25", "1705314630", "1705314630250.5", "12ms", "6m0s", "1h2m3.5s", "1d12h", "5µs", "-1s", "1m30",
		"2024-01-15T10:30:30Z", "2024-01-15T12:30:30.5+02:00", "Mon, 15 Jan 2024 10:30:30 GMT", "Mon Jan 15 10:30:30 2024",
		"Monday, 15-Jan-24 10:30:30 GMT", "30, 60", "30;x=y", "never", "1e3", "9999-12-31T23:59:59Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := Parse(http.Header{"X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Reset": {s}}, server)
		d := Dimension{}
		if ok {
			d = got.Dimensions[0]
			require.Positive(t, d.Reset)
			require.LessOrEqual(t, d.Reset, MaxReset)
		}
		if !d.Instant.IsZero() {
			require.Equal(t, d.Reset, d.Instant.Sub(server))
		}
		if want, err := time.ParseDuration(s); err == nil && s[0] >= '0' && s[0] <= '9' {
			require.Equal(t, Dimension{Remaining: 1, Reset: min(cmp.Or(want, time.Second), MaxReset)}, d)
		}
		if want, err := time.Parse(time.RFC3339, s); err == nil {
			left := cmp.Or(want.Sub(server), time.Second)
			require.Equal(t, min(max(left, 0), MaxReset), d.Reset)
		}
	})
}

// FuzzMembers checks that the quota of a list is read, whatever its name and another parameter contain.
func FuzzMembers(f *testing.F) {
	f.Add("burst", "x", uint32(99), uint32(40))
	f.Add(`a,b;c="d\e`, `,;r=1\`, uint32(0), uint32(1))
	f.Fuzz(func(t *testing.T, name, comment string, remaining, wait uint32) {
		printable := func(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) }
		if !printable(name) || !printable(comment) || len(name) > MaxName || len(comment) > maxLine/4 || wait >= 9e8 {
			t.Skip()
		}
		line := fmt.Sprintf("%s;comment=%s;r=%d;t=%d", field.Quote(name), field.Quote(comment), remaining, wait)
		want := State{Exhausted: remaining == 0}
		if wait > 0 || remaining > 0 {
			q := quota{name: name}
			if name == standard {
				name = custom
			}
			reset := min(time.Duration(max(wait, 1))*time.Second, MaxReset)
			want.Dimensions = []Dimension{{Name: name, Remaining: int64(remaining), Reset: reset, Costed: q.costed()}}
		}
		got, _ := Parse(http.Header{"Ratelimit": {line}}, now)
		require.Equal(t, want, got)
	})
}
