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

// test is a row of a table. complete sets want.Exhausted, want.Date and want.PerID.
type test struct {
	name      string
	header    http.Header
	want      State
	exhausted bool // also without a dimension that has 0 remaining
}

// complete sets the fields of want that follow from the rest of the row.
func (tt *test) complete() {
	tt.want.Exhausted = tt.exhausted
	for _, a := range tt.want.Dimensions {
		tt.want.Exhausted = tt.want.Exhausted || a.Remaining == 0
		if !a.Instant.IsZero() {
			tt.want.Date = retryafter.Date(tt.header, time.Time{})
		}
	}
	tt.want.PerID = tt.want.Bucket != "" && tt.want.Bucket == tt.header.Get("X-Ratelimit-Bucket")
}

func run(t *testing.T, tests []test) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Parse(tt.header, now)
			tt.complete()
			require.Equal(t, tt.want, got)
			require.Equal(t, len(tt.want.Dimensions) > 0, ok)
		})
	}
}

func dimensions(a ...Dimension) State { return State{Dimensions: a} }

func TestParse_takesFirstValidLine(t *testing.T) {
	run(t, []test{
		{
			name: "the first lines belong together",
			header: header("X-RateLimit-Limit", "10", "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "9",
				"X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "1", "X-RateLimit-Reset", "3600"),
			want: dimensions(Dimension{Limit: 10, Remaining: 9, Reset: time.Second}),
		},
		{
			name: "malformed ones are passed over",
			header: header("X-RateLimit-Remaining", "", "X-RateLimit-Remaining", "9",
				"X-RateLimit-Reset", "soon", "X-RateLimit-Reset", "-1s", "X-RateLimit-Reset", "1"),
			want: dimensions(Dimension{Remaining: 9, Reset: time.Second}),
		},
	})
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
		{"huge", []string{strings.Repeat("9", 400)}, false},
		{"fraction", []string{"0.5"}, false},
		{"blanks", []string{" 1 "}, false},
		{"list, first counts", []string{"0, 7"}, true},
		{"list, first counts, positive", []string{"7, 0"}, false},
		{"lines, first counts", []string{"7", "0"}, false},
		{"negative is invalid", []string{"-1"}, true},
		{"malformed", []string{"old"}, true},
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
		for i := range maxFields / 2 {
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
		require.Equal(t, dimensions(Dimension{Limit: 1, Remaining: 1, Reset: time.Second, Window: time.Second}), got)
	})
}

func TestParse_doesNotModifyHeader(t *testing.T) {
	h := header("Date", date, "RateLimit", `"p";r=1;t=2;pk=:YQ==:`, "X-RateLimit-Remaining-Tokens", "1", "X-RateLimit-Reset-Tokens", "1")
	before := h.Clone()
	_, _ = Parse(h, now)
	require.Equal(t, before, h)
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
