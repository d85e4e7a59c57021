package ratelimitheader

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A quota in two dialects is one dimension; different quotas are two.
func TestParse_mergesDialects(t *testing.T) {
	const s = time.Second
	both := func(limit, remaining, reset string) []string {
		return []string{
			"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30",
			"RateLimit-Limit", limit, "RateLimit-Remaining", remaining, "RateLimit-Reset", reset,
		}
	}
	first := Dimension{Limit: 10, Remaining: 9, Reset: 30 * s}
	run(t, []test{
		{name: "the same", header: header(both("10", "9", "30")...), want: dimensions(first)},
		{name: "the same, rounded", header: header(both("10", "9", "31")...), want: dimensions(first)},
		{name: "another limit", header: header(both("20", "9", "30")...), want: dimensions(first, Dimension{Name: "ratelimit", Limit: 20, Remaining: 9, Reset: 30 * s})},
		{name: "another remainder", header: header(both("10", "8", "30")...), want: dimensions(first, Dimension{Name: "ratelimit", Limit: 10, Remaining: 8, Reset: 30 * s})},
		{name: "another reset", header: header(both("10", "9", "300")...), want: dimensions(first, Dimension{Name: "ratelimit", Limit: 10, Remaining: 9, Reset: 300 * s})},
		{
			name:   "a field of another quota does not complete one",
			header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30", "RateLimit-Remaining", "4"),
			want:   dimensions(first),
		},
		{
			name:   "the remainder in one, the rest in the other",
			header: header("X-RateLimit-Limit", "10", "X-RateLimit-Reset", "30", "RateLimit-Remaining", "9"),
			want:   dimensions(first),
		},
		{
			name:   "remaining in one, limit and reset in the other",
			header: header("X-RateLimit-Remaining", "9", "RateLimit-Limit", "10", "RateLimit-Reset", "30"),
			want:   dimensions(first),
		},
		{
			name:   "the window of the only policy",
			header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30", "RateLimit-Policy", "10;w=60"),
			want:   dimensions(Dimension{Limit: 10, Remaining: 9, Reset: 30 * s, Window: 60 * s}),
		},
		{
			name: "policies of named dimensions stay theirs, also with an empty second line",
			header: header("RateLimit", `"p";r=5;t=3`, "RateLimit", "", "RateLimit-Policy", `"p";q=10;w=60`,
				"RateLimit-Limit", "10", "RateLimit-Remaining", "7", "RateLimit-Reset", "20"),
			want: dimensions(Dimension{Name: "p", Limit: 10, Remaining: 5, Reset: 3 * s, Window: 60 * s}, Dimension{Limit: 10, Remaining: 7, Reset: 20 * s}),
		},
		{
			name:   "the last valid value of a repeated key counts",
			header: header("RateLimit", "limit=10, remaining=9, reset=3, reset=30, reset=soon"),
			want:   dimensions(first),
		},
	})
}

// The order of a map is random. Fields that contradict each other must give the same result each time.
func TestParse_doesNotDependOnOrderOfFields(t *testing.T) {
	h := header("Date", date,
		"X-RateLimit-Limit", "10, 10;w=60", "X-Rate-Limit-Limit", "20, 20;w=30", "X-Rate-Limit", "30",
		"X-RateLimit-Remaining", "9", "X-Rate-Limit-Remaining", "8", "X-RateLimit-Used", "1", "X-Rate-Limit-Used", "2",
		"X-RateLimit-Reset", "1705318200", "X-Rate-Limit-Reset", "7", "X-RateLimit-Reset-After", "5", "X-Rate-Limit-Reset-After", "6",
		"X-RateLimit-Bucket", "a", "X-Rate-Limit-Bucket", "b", "X-RateLimit-Resource", "c", "RateLimit-Name", "d",
		"RateLimit-Limit", "3", "RateLimit-Remaining", "2", "RateLimit-Reset", "90", "RateLimit-ResetTime", "Mon, 15 Jan 2024 10:31:00 GMT",
		"RateLimit", `"p";r=5;t=3`, "RateLimit-Policy", `"p";q=10;w=60`, "Beta-RateLimit", `"points";r=4;t=3`, "Beta-RateLimit-Policy", `"points";q=9`,
		"X-RateLimit-Remaining-Day", "1", "X-RateLimit-Day-Remaining", "2", "X-Rate-Limit-Remaining-Day", "3",
		"X-RateLimit-Reset-Day", "4", "X-RateLimit-Day-Reset", "5", "X-RateLimit-Remaining-Limit", "6", "X-RateLimit-Reset-Limit", "7",
	)
	others := header("Date", date, "Anthropic-RateLimit-Tokens-Remaining", "1", "Anthropic-RateLimit-Tokens-Reset", "2024-01-15T10:31:00Z",
		"X-RateLimit-Remaining-Tokens", "2", "X-Shopify-Shop-Api-Call-Limit", "32/40", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "1705318200",
		"X-HubSpot-RateLimit-Remaining", "97", "X-HubSpot-RateLimit-Interval-Milliseconds", "10000",
		"Zendesk-RateLimit-A", "total=100; remaining=99; resets=41", "Zendesk-RateLimit-B", "total=100; remaining=98; resets=41")
	for dimensions, h := range map[int]http.Header{6: h, 4: others} {
		want, ok := Parse(h, now)
		require.True(t, ok)
		require.Len(t, want.Dimensions, dimensions)
		for range 300 {
			got, _ := Parse(h.Clone(), now)
			require.Equal(t, want, got)
		}
	}
}

// Of fields that mean the same, one counts.
func TestParse_prefersOneField(t *testing.T) {
	const s = time.Second
	run(t, []test{
		{
			name: "both places of a quota's name: the name last",
			header: header("X-RateLimit-Day-Remaining", "2", "X-RateLimit-Day-Reset", "9",
				"X-RateLimit-Remaining-Day", "3", "X-RateLimit-Limit-Day", "5"),
			want: dimensions(Dimension{Name: "day", Limit: 5, Remaining: 3, Reset: 9 * s}),
		},
		{
			name:   "an invalid field of a higher rank: the valid one",
			header: header("X-RateLimit-Remaining", "-1", "X-Rate-Limit-Remaining", "3", "X-RateLimit-Reset", "soon", "X-Rate-Limit-Reset", "9"),
			want:   dimensions(Dimension{Remaining: 3, Reset: 9 * s}),
		},
		{
			name:   "the used count of a named quota",
			header: header("X-RateLimit-Remaining-Requests", "3", "X-RateLimit-Used-Requests", "4", "X-RateLimit-Reset-Requests", "9"),
			want:   dimensions(Dimension{Name: "requests", Limit: 7, Remaining: 3, Reset: 9 * s}),
		},
		{
			name: "a quota's name in two dialects: one quota",
			header: header("X-RateLimit-Remaining-Tokens", "5", "X-RateLimit-Reset-Tokens", "9",
				"Anthropic-RateLimit-Tokens-Remaining", "3", "Anthropic-RateLimit-Tokens-Reset", "8", "RateLimit", `"tokens";r=2;t=7`),
			want: dimensions(Dimension{Name: "tokens", Remaining: 2, Reset: 7 * s, Costed: true}),
		},
	})
}

// A limited number of lines and bytes of a field is read. A line that is malformed or too
// long does not hide the others.
func TestParse_limitsLinesAndBytes(t *testing.T) {
	const s = time.Second
	quota := func(name string) string { return fmt.Sprintf(`%q;r=5;t=3`, name) }
	padded := func(name string, to int) string {
		line := quota(name) + `;x="`
		return line + strings.Repeat("x", to-len(line)-1) + `"`
	}
	field := func(field string, bad int, line string, more ...string) []string {
		var pairs []string
		for range bad {
			pairs = append(pairs, field, "= malformed")
		}
		for _, l := range append([]string{line}, more...) {
			pairs = append(pairs, field, l)
		}
		return pairs
	}
	rest := []string{"X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30"}
	named := func(name string) Dimension { return Dimension{Name: name, Remaining: 5, Reset: 3 * s} }
	policies := make([]string, maxNamed+1)
	for i := range policies {
		policies[i] = fmt.Sprintf(`"p%d";q=10;w=60`, i)
	}
	run(t, []test{
		{name: "a valid line after malformed ones", header: header(field("RateLimit", maxLines-1, quota("a"))...), want: dimensions(named("a"))},
		{name: "too many before it", header: header(field("RateLimit", maxLines, quota("a"))...), want: dimensions()},
		{name: "the maximum length", header: header(field("RateLimit", 0, padded("a", maxLine))...), want: dimensions(named("a"))},
		{name: "a line that is too long and a valid one", header: header(field("RateLimit", 0, padded("a", maxLine+1), quota("b"))...), want: dimensions(named("b"))},
		{
			name:   "two of the maximum length",
			header: header(field("RateLimit", 0, padded("a", maxLine), padded("b", maxLine))...),
			want:   dimensions(named("a"), named("b")),
		},
		{name: "a dictionary after bad lines", header: header(field("RateLimit", 2, "limit=10, remaining=9, reset=30")...), want: dimensions(Dimension{Limit: 10, Remaining: 9, Reset: 30 * s})},
		{
			name:   "a policy after bad ones",
			header: header(append(field("RateLimit-Policy", 2, `"a";q=10;w=60`), "RateLimit", quota("a"))...),
			want:   dimensions(Dimension{Name: "a", Limit: 10, Remaining: 5, Reset: 3 * s, Window: 60 * s}),
		},
		{
			name:   "a policy before bad ones",
			header: header("RateLimit-Policy", `"a";q=10;w=60`, "RateLimit-Policy", "= malformed", "RateLimit", quota("a")),
			want:   dimensions(Dimension{Name: "a", Limit: 10, Remaining: 5, Reset: 3 * s, Window: 60 * s}),
		},
		{
			name:   "a quota comes before policies without one",
			header: header("RateLimit-Policy", strings.Join(policies, ","), "RateLimit", quota("p13")+","+quota("p14")),
			want: dimensions(
				Dimension{Name: "p13", Limit: 10, Remaining: 5, Reset: 3 * s, Window: 60 * s},
				Dimension{Name: "p14", Limit: 10, Remaining: 5, Reset: 3 * s, Window: 60 * s},
			),
		},
		{name: "a limit after bad ones", header: header(append(field("X-RateLimit-Limit", maxLines-1, "10"), rest...)...), want: dimensions(Dimension{Limit: 10, Remaining: 9, Reset: 30 * s})},
		{name: "a limit after too many", header: header(append(field("X-RateLimit-Limit", maxLines, "10"), rest...)...), want: dimensions(Dimension{Remaining: 9, Reset: 30 * s})},
	})
}
