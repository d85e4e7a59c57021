package resilienthttp

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.19: the header for clocks of any zone, and its value after parsing.
func TestDeadlineHeader(t *testing.T) {
	d := DeadlineHeader{Margin: 100 * time.Millisecond}.withDefaults()
	now := time.Date(2026, time.March, 4, 23, 59, 59, 500e6, time.FixedZone("far", 5*3600+1800))
	for _, row := range []struct {
		name     string
		deadline time.Time
		want     string // "": nothing is left
		left     string
	}{
		{"UTC", now.Add(time.Second), "2026-03-04T18:30:00.400Z", "900"},
		{"another zone", now.Add(time.Second).In(time.FixedZone("near", -3600)), "2026-03-04T18:30:00.400Z", "900"},
		{"rounded down", now.Add(101*time.Millisecond + 999*time.Microsecond), "2026-03-04T18:29:59.501Z", "1"},
		{"less than a millisecond", now.Add(101*time.Millisecond - 1), "", ""},
		{"now", now, "", ""},
		{"long ago", time.Time{}, "", ""},
		{"far ahead", now.AddDate(1000, 0, 0), "2318-06-14T18:17:16.254Z", "9223372036754"},
	} {
		t.Run("§4.19 "+row.name, func(t *testing.T) {
			before := http.Header{"Accept": {"*/*"}}
			h, ok := d.header(before, row.deadline, now)
			require.Equal(t, http.Header{"Accept": {"*/*"}}, before)
			require.Equal(t, row.want != "", ok)
			if !ok {
				return
			}
			require.Equal(t, http.Header{"Accept": {"*/*"}, "X-Request-Deadline": {row.want}, "X-Request-Timeout-Ms": {row.left}}, h)
			counted, ok := DeadlineHandler{}.received(h, now)
			require.True(t, ok)
			delete(h, timeoutHeader)
			recorded, ok := DeadlineHandler{}.received(h, now)
			require.True(t, ok)
			require.LessOrEqual(t, counted, row.deadline.Sub(now)-d.Margin)
			require.InDelta(t, counted, recorded, float64(time.Millisecond))
		})
	}
}

func TestParseTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1": time.Millisecond, "0": 0, "-0": 0, "-1": -time.Millisecond, "007": 7 * time.Millisecond,
		"9223372036854": 9223372036854 * time.Millisecond, "9223372036855": 9223372036854 * time.Millisecond,
		"9223372036854775807": 9223372036854 * time.Millisecond, "9223372036854775808": 9223372036854 * time.Millisecond,
		"-9223372036854775809": -time.Millisecond,
	} {
		got, ok := parseTimeout(value)
		require.True(t, ok, value)
		require.Equal(t, want, got, value)
		require.Less(t, int64(got), int64(math.MaxInt64))
	}
	for _, value := range []string{"", " ", "+1", "1.0", "1e3", "0x1", "1_0", "１", "1 2", "-", "--1", "+99999999999999999999"} {
		_, ok := parseTimeout(value)
		require.False(t, ok, value)
	}
}
