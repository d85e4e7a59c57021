package ratelimitheader

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// server is the server's clock; now is the client's, which is wrong by an hour so that a
// confusion of the two fails a test.
var (
	server = time.Date(2024, time.January, 15, 10, 30, 0, 0, time.UTC)
	now    = server.Add(time.Hour)
)

const (
	date  = "Mon, 15 Jan 2024 10:30:00 GMT" // server
	epoch = 1705314600                      // server
)

// header makes a header from name, value, name, value, with canonical names.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// at is the moment d after the server wrote its response.
func at(d time.Duration) time.Time { return server.Add(d) }

// test is a row of a table. want is as stateText writes it.
type test struct {
	name   string
	header http.Header
	want   string
}

func run(t *testing.T, tests []test) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Parse(tt.header, now)
			require.Equal(t, tt.want, stateText(got))
			require.Equal(t, len(got.Dimensions) > 0, ok)
			date := time.Time{}
			for _, d := range got.Dimensions {
				require.True(t, got.Exhausted || d.Remaining > 0, "%s is exhausted", d.Name)
				if !d.Instant.IsZero() {
					date = retryafter.Date(tt.header, time.Time{})
				}
			}
			require.Equal(t, date, got.Date)
			require.Equal(t, got.Bucket != "" && got.Bucket == tt.header.Get("X-Ratelimit-Bucket"), got.PerID)
		})
	}
}

// stateText writes a State in one line, for example "[core] requests 9/10 per 1m0s in 5s, tokens 7/? in 1s costed":
// the bucket, and what remains of which limit, for which window and until which reset. "at" is a reset's Instant.
func stateText(s State) string {
	var quotas []string
	exhausted := s.Exhausted
	for _, d := range s.Dimensions {
		exhausted = exhausted && d.Remaining > 0
		limit := "?"
		if d.Limit > 0 {
			limit = fmt.Sprint(d.Limit)
		}
		text := strings.TrimSpace(fmt.Sprintf("%s %d/%s", d.Name, d.Remaining, limit))
		if d.Window > 0 {
			text += fmt.Sprintf(" per %v", d.Window)
		}
		text += fmt.Sprintf(" in %v", d.Reset)
		if !d.Instant.IsZero() {
			text += d.Instant.Format(" at " + time.RFC3339Nano)
		}
		if d.Costed {
			text += " costed"
		}
		quotas = append(quotas, text)
	}
	text := strings.Join(quotas, ", ")
	if s.Bucket != "" {
		text = strings.TrimSpace("[" + s.Bucket + "] " + text)
	}
	if s.Global {
		text = strings.TrimSpace("global " + text)
	}
	if exhausted { // without a dimension of which nothing remains
		text = strings.TrimSpace(text + " exhausted")
	}
	return text
}

func TestParse_ignoresCachedResponses(t *testing.T) {
	for _, tt := range []struct {
		name string
		age  []string
		want bool // parsed
	}{
		{"no Age", nil, true},
		{"zero", []string{"0"}, true},
		{"one", []string{"1"}, false},
		{"fraction", []string{"0.5"}, false},
		{"list, first counts", []string{"0, 7"}, true},
		{"lines, first counts", []string{"7", "0"}, false},
		{"negative is invalid", []string{"-1"}, true},
		{"malformed, then positive", []string{"old", "7"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "X-RateLimit-Resource", "core",
				"X-RateLimit-Global", "true")
			h["Age"] = tt.age
			got, ok := Parse(h, now)
			require.Equal(t, tt.want, ok)
			if !ok {
				require.Zero(t, got, "not even the bucket")
			}
		})
	}
}

func TestParse_bucket(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header http.Header
		want   string
	}{
		{"none", header("X-RateLimit-Remaining", "1"), ""},
		{"blank", header("X-RateLimit-Bucket", " "), ""},
		{"blanks around", header("X-RateLimit-Bucket", "\ta b "), "a b"},
		{"blank first line", header("X-RateLimit-Bucket", "", "X-RateLimit-Bucket", "b"), "b"},
		{"longest", header("X-RateLimit-Bucket", strings.Repeat("a", MaxName)), strings.Repeat("a", MaxName)},
		{"too long", header("X-RateLimit-Bucket", strings.Repeat("a", MaxName+1)), ""},
		{"too long, then another", header("X-RateLimit-Bucket", strings.Repeat("a", MaxName+1), "X-RateLimit-Resource", "core"), "core"},
		{"the last name of a field counts", header("RateLimit-Name", "c", "X-RateLimit-Resource", "b", "X-RateLimit-Bucket", "a"), "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := Parse(tt.header, now)
			require.Equal(t, tt.want, got.Bucket)
		})
	}
}

// A hostile server must not make the client keep much memory or work long.
func TestParse_boundsHostileHeaders(t *testing.T) {
	t.Run("dimensions in field names", func(t *testing.T) {
		h := header()
		for i := range MaxDimensions {
			h[fmt.Sprintf("X-Ratelimit-Remaining-%04d", i)] = []string{"0"}
			h[fmt.Sprintf("X-Ratelimit-Reset-%04d", i)] = []string{"1"}
		}
		for range 3 {
			got, ok := Parse(h, now)
			require.True(t, ok)
			require.Len(t, got.Dimensions, maxNamed)
			for i, a := range got.Dimensions {
				require.Equal(t, fmt.Sprintf("%04d", i), a.Name, "always the same ones")
			}
		}
		h["X-Ratelimit-Resource"] = []string{"core"}
		got, _ := Parse(h, now)
		require.Zero(t, got, "too many fields")
	})
	t.Run("dimensions in a list", func(t *testing.T) {
		var b strings.Builder
		for i := range 300 {
			fmt.Fprintf(&b, `"%03d";r=1;t=1;pk=:%03d:, `, i, i)
		}
		line := strings.TrimSuffix(b.String(), ", ")
		got, ok := Parse(header("RateLimit", line, "RateLimit-Policy", line, "RateLimit", line), now)
		require.True(t, ok)
		require.Len(t, got.Dimensions, maxNamed)
		require.Equal(t, "000,001,002,003,004,005,006,007,008,009,010,011,012,013,014,015", got.Bucket, "the first ones")
	})
	t.Run("policies", func(t *testing.T) {
		line := strings.TrimSuffix(strings.Repeat("1;w=1, ", 1000), ", ")
		got, ok := Parse(header("RateLimit", "limit=1, remaining=1, reset=1", "RateLimit-Policy", line), now)
		require.True(t, ok)
		require.Equal(t, "1/1 per 1s in 1s", stateText(got))
	})
}

// The caller keeps names as long as the quota. A name must not keep the header alive.
func TestParse_copiesNames(t *testing.T) {
	inside := func(part, whole string) bool {
		at, from := uintptr(unsafe.Pointer(unsafe.StringData(part))), uintptr(unsafe.Pointer(unsafe.StringData(whole)))
		return at >= from && at < from+uintptr(len(whole))
	}
	line := `"policy";r=2;t=2;pk=:YWJj:, "policy";r=1;t=2`
	got, ok := Parse(header("RateLimit", line), now)
	require.True(t, ok)
	require.Equal(t, "policy", got.Dimensions[0].Name)
	require.False(t, inside(got.Dimensions[0].Name, line))
	require.Equal(t, "YWJj", got.Bucket)
	require.False(t, inside(got.Bucket, line))

	bucket := "abcdefgh"
	got, _ = Parse(header("X-RateLimit-Bucket", bucket), now)
	require.Equal(t, bucket, got.Bucket)
	require.False(t, inside(got.Bucket, bucket))
}

// A quota needs memory for its dimensions only.
func TestParse_allocations(t *testing.T) {
	with, without := ordinary(), ordinary()
	for name, value := range map[string]string{"Limit": "10", "Remaining": "9", "Reset": "30"} {
		with.Set("X-RateLimit-"+name, value)
	}
	without.Set("X-RateLimiter", "nginx")
	named := ordinary()
	for _, name := range []string{"Requests", "Tokens"} {
		named.Set("X-RateLimit-Remaining-"+name, "9")
		named.Set("X-RateLimit-Reset-"+name, "30")
	}
	for _, row := range []struct {
		name   string
		header http.Header
		want   float64
	}{{"no quota: none", without, 0}, {"one quota: one", with, 1}, {"two with usual names: one", named, 1}} {
		t.Run(row.name, func(t *testing.T) {
			require.InDelta(t, row.want, testing.AllocsPerRun(100, func() { _, _ = Parse(row.header, time.Time{}) }), 0)
		})
	}
}

func ordinary() http.Header {
	return header(
		"Date", date,
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

// A quota in two dialects is one dimension; different quotas are two.
func TestParse_mergesDialects(t *testing.T) {
	both := func(limit, remaining, reset string) []string {
		return []string{
			"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30",
			"RateLimit-Limit", limit, "RateLimit-Remaining", remaining, "RateLimit-Reset", reset,
		}
	}
	run(t, []test{
		{"the same, rounded", header(both("10", "9", "31")...), "9/10 in 30s"},
		{"another limit", header(both("20", "9", "30")...), "9/10 in 30s, ratelimit 9/20 in 30s"},
		{"another remainder", header(both("10", "8", "30")...), "9/10 in 30s, ratelimit 8/10 in 30s"},
		{"another reset", header(both("10", "9", "300")...), "9/10 in 30s, ratelimit 9/10 in 5m0s"},
		{"a field of another quota does not complete one", header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30", "RateLimit-Remaining", "4"),
			"9/10 in 30s"},
		{"the remainder in one, the rest in the other", header("X-RateLimit-Limit", "10", "X-RateLimit-Reset", "30", "RateLimit-Remaining", "9"),
			"9/10 in 30s"},
		{"the window of the only policy", header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "30", "RateLimit-Policy", "10;w=60"),
			"9/10 per 1m0s in 30s"},
		{"policies of named dimensions stay theirs, also with an empty second line", header("RateLimit", `"p";r=5;t=3`, "RateLimit", "", "RateLimit-Policy", `"p";q=10;w=60`,
			"RateLimit-Limit", "10", "RateLimit-Remaining", "7", "RateLimit-Reset", "20"), "p 5/10 per 1m0s in 3s, 7/10 in 20s"},
		{"the last valid value of a repeated key counts", header("RateLimit", "limit=10, remaining=9, reset=3, reset=30, reset=soon"), "9/10 in 30s"},
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

// §4.17b: of fields that mean the same, and of their lines, one counts: of two windows the one with the least left.
func TestParse_prefersOneField(t *testing.T) {
	run(t, []test{
		{"the first lines belong together", header("X-RateLimit-Limit", "10", "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "9",
			"X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "1", "X-RateLimit-Reset", "3600"), "9/10 in 1s"},
		{"of two windows the one with the least left", header("X-RateLimit-Limit", "10", "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "9",
			"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1", "X-RateLimit-Reset", "3600"), "0/5000 in 1h0m0s"},
		{"the same with one reset", header("X-RateLimit-Limit", "10", "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "9",
			"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "60"), "3/5000 in 1m0s"},
		{"the same with used counts", header("RateLimit-Used", "1", "RateLimit-Used", "4997", "RateLimit-Remaining", "9",
			"RateLimit-Remaining", "3", "RateLimit-Reset", "1", "RateLimit-Reset", "60"), "3/5000 in 1m0s"},
		{"two windows beside members in two lines", header("RateLimit", `"a";r=5;t=1`, "RateLimit", `"b";r=6;t=2`, "RateLimit-Remaining", "9",
			"RateLimit-Remaining", "3", "RateLimit-Reset", "60"), "a 5/? in 1s, b 6/? in 2s, 3/? in 1m0s"},
		{"as much left in both: the first", header("X-RateLimit-Remaining", "3", "X-RateLimit-Remaining", "3",
			"X-RateLimit-Reset", "1", "X-RateLimit-Reset", "60"), "3/? in 1s"},
		{"malformed ones are passed over", header("X-RateLimit-Remaining", "", "X-RateLimit-Remaining", "9",
			"X-RateLimit-Reset", "soon", "X-RateLimit-Reset", "-1s", "X-RateLimit-Reset", "1"), "9/? in 1s"},
		{"both places of a quota's name: the name last", header("X-RateLimit-Day-Remaining", "2", "X-RateLimit-Day-Reset", "9",
			"X-RateLimit-Remaining-Day", "3", "X-RateLimit-Limit-Day", "5"), "day 3/5 in 9s"},
		{"an invalid field of a higher rank: the valid one", header("X-RateLimit-Remaining", "-1", "X-Rate-Limit-Remaining", "3", "X-RateLimit-Reset", "soon", "X-Rate-Limit-Reset", "9"),
			"3/? in 9s"},
		{"the used count of a named quota", header("X-RateLimit-Remaining-Requests", "3", "X-RateLimit-Used-Requests", "4", "X-RateLimit-Reset-Requests", "9"),
			"requests 3/7 in 9s"},
		{"a quota's name in two dialects: one quota", header("X-RateLimit-Remaining-Tokens", "5", "X-RateLimit-Reset-Tokens", "9",
			"Anthropic-RateLimit-Tokens-Remaining", "3", "Anthropic-RateLimit-Tokens-Reset", "8", "RateLimit", `"tokens";r=2;t=7`),
			"tokens 2/? in 7s costed"},
	})
}

// A limited number of lines and bytes of a field is read. A line that is malformed or too
// long does not hide the others.
func TestParse_limitsLinesAndBytes(t *testing.T) {
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
	policies := make([]string, maxNamed+1)
	for i := range policies {
		policies[i] = fmt.Sprintf(`"p%d";q=10;w=60`, i)
	}
	run(t, []test{
		{"a valid line after malformed ones", header(field("RateLimit", maxLines-1, quota("a"))...), "a 5/? in 3s"},
		{"too many before it", header(field("RateLimit", maxLines, quota("a"))...), ""},
		{"a line that is too long and a valid one", header(field("RateLimit", 0, padded("a", maxLine+1), quota("b"))...), "b 5/? in 3s"},
		{"two of the maximum length", header(field("RateLimit", 0, padded("a", maxLine), padded("b", maxLine))...), "a 5/? in 3s, b 5/? in 3s"},
		{"a policy after bad ones", header(append(field("RateLimit-Policy", 2, `"a";q=10;w=60`), "RateLimit", quota("a"))...), "a 5/10 per 1m0s in 3s"},
		{"a quota comes before policies without one", header("RateLimit-Policy", strings.Join(policies, ","), "RateLimit", quota("p13")+","+quota("p14")),
			"p13 5/10 per 1m0s in 3s, p14 5/10 per 1m0s in 3s"},
		{"a limit after too many", header(append(field("X-RateLimit-Limit", maxLines, "10"), rest...)...), "9/? in 30s"},
	})
}

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
		{"epoch, this moment", "1705314600", time.Second, true},
		{"epoch, past", "1705314599", 0, true},
		{"epoch, huge", strings.Repeat("9", 400), MaxReset, true},
		{"milliseconds", "12ms", 12 * time.Millisecond, false},
		{"minutes and seconds", "6m0s", 6 * time.Minute, false},
		{"hours and minutes", "1h2m", 62 * time.Minute, false},
		{"days", "1d12h", 0, false},
		{"more than a year", "9999h", MaxReset, false},
		{"zero duration", "0s", time.Second, false},
		{"duration with a sign", "-1s", 0, false},
		{"RFC 3339", "2024-01-15T10:30:30Z", 30 * time.Second, true},
		{"RFC 3339, fraction and offset", "2024-01-15T12:30:30.5+02:00", 30500 * time.Millisecond, true},
		{"RFC 3339, past", "2024-01-15T10:29:59Z", 0, true},
		{"RFC 3339, year 9999", "9999-12-31T23:59:59Z", MaxReset, true},
		{"RFC 3339, year 0", "0000-01-01T00:00:00Z", 0, true},
		{"RFC 3339 without a zone", "2024-01-15T10:30:30", 0, true},
		{"HTTP date", "Mon, 15 Jan 2024 10:30:30 GMT", 30 * time.Second, true},
		{"HTTP date, past", "Mon, 15 Jan 2024 10:29:30 GMT", 0, true},
		{"two lines joined", "30, 60", 30 * time.Second, false},
		{"parameter", "30;comment=x", 30 * time.Second, false},
		{"zero, rounded down", "0", time.Second, false},
		{"too little to tell from zero", "0.0000000001", time.Second, false},
		{"negative", "-5", 0, false},
		{"not a number", "NaN", 0, false},
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

// A testing/synctest bubble starts in the year 2000.
func TestParseReset_inTheYear2000(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name, reset string
		want        time.Duration
	}{
		{"epoch seconds", "946684830", 30 * time.Second},
		{"epoch seconds, past", "946684799", 0},
		{"the least that is epoch seconds", "900000000", 0},
		{"the most that is seconds", "899999999", MaxReset},
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
