package resilienthttp

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.19: the form of grpc-timeout.
func TestParseRelative_grpc(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "500m": 500 * time.Millisecond, "7u": 7 * time.Microsecond,
		"9n": 9, "0n": 0, "0H": 0, "00000001S": time.Second, "99999999n": 99_999_999, "99999999S": 99_999_999 * time.Second,
		"99999999H": 2562047 * time.Hour, "5S": 5 * time.Second,
	} {
		got, ok := parseRelative(grpcTimeoutHeader, value)
		require.True(t, ok, value)
		require.Equal(t, want, got, value)
	}
	for _, value := range []string{
		"", " ", "S", "1", "15", "1s", "1h", "1N", "1ms", "-1S", "+1S", "1.5S", "1e3m", "0x1S", "1_0S", "1 S", "１S", "100000000n", "000000001S", "1S,2S",
	} {
		_, ok := parseRelative(grpcTimeoutHeader, value)
		require.False(t, ok, value)
	}
}

// §4.19: the finest unit of grpc-timeout with at most eight digits, rounded down.
func TestFormatRelative(t *testing.T) {
	for _, row := range []struct {
		name string
		left time.Duration
		grpc string
		ms   string
	}{
		{"the shortest that is sent", time.Millisecond, "1000000n", "1"},
		{"the last with nanoseconds", 99_999_999, "99999999n", "99"},
		{"the first with microseconds", 100_000_000, "100000u", "100"},
		{"5 s", 5 * time.Second, "5000000u", "5000"},
		{"the last with microseconds", 100*time.Second - 1, "99999999u", "99999"},
		{"the first with milliseconds", 100 * time.Second, "100000m", "100000"},
		{"a day", 24 * time.Hour, "86400000m", "86400000"},
		{"30 h and almost a second: seconds, rounded down", 30*time.Hour + time.Second - 1, "108000S", "108000999"},
		{"four years: minutes", 4 * 365 * 24 * time.Hour, "2102400M", "126144000000"},
		{"the longest: hours", math.MaxInt64, "2562047H", "9223372036854"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.ms, formatRelative(timeoutHeader, row.left))
			require.Equal(t, row.grpc, formatRelative(grpcTimeoutHeader, row.left))
		})
	}
}

// A field of any name and value is ignored or read as a time, and what is sent is read as the
// time that was left, less what the unit rounds.
func FuzzRelative(f *testing.F) {
	for _, value := range []string{"", "1", "-1", "1500", "5S", "99999999H", "100000000n", "1 m", "9223372036854775808", "٣S"} {
		f.Add(timeoutHeader, value, int64(time.Second))
		f.Add(grpcTimeoutHeader, value, int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, name, value string, left int64) {
		got, ok := parseRelative(name, value)
		require.True(t, ok || got == 0)
		require.GreaterOrEqual(t, got, -time.Millisecond)
		sent := time.Duration(max(left, int64(precision)))
		text := formatRelative(name, sent)
		received, ok := parseRelative(name, text)
		require.True(t, ok, text)
		require.LessOrEqual(t, received, sent, text)
		if name != grpcTimeoutHeader {
			require.Less(t, sent-received, time.Millisecond, text)
			return
		}
		require.LessOrEqual(t, len(text), grpcDigits+1)
		require.LessOrEqual(t, sent-received, sent/100_000, "%s has at least six digits, or nanoseconds", text)
	})
}
