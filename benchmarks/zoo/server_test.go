package zoo

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
)

// response is what a server says to a request.
type response struct {
	fleet.Response
	Header http.Header
}

// twice sends two requests, of which a limit of one in a minute rejects the second one.
func twice(change func(*Draw)) (permitted, rejected response) {
	s := newServer(tenWindows(func(d *Draw) {
		d.Limits[0].Quota, d.Limits[0].Clock = 1, true
		d.Status, d.Phase, d.Number = http.StatusTooManyRequests, 90*time.Second, 1
		change(d)
	}))
	permitted.Response, permitted.Header = s.Arrive(0, 1, 0)
	rejected.Response, rejected.Header = s.Arrive(1, 1, 0)
	return permitted, rejected
}

func TestServer_says(t *testing.T) {
	const remaining, reset, after = "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After"
	for _, row := range []struct {
		name           string
		change         func(*Draw)
		on, onRejected map[string]string
	}{
		{"all", func(*Draw) {}, map[string]string{remaining: "0", reset: "1767225720", after: ""}, map[string]string{remaining: "0", reset: "1767225720", after: "30"}},
		{
			"rejections", func(d *Draw) { d.Says = SaysRejections },
			map[string]string{remaining: "", reset: "", "Date": "Thu, 01 Jan 2026 00:01:30 GMT"}, map[string]string{remaining: "0", reset: "1767225720", after: "30"},
		},
		{"no reset", func(d *Draw) { d.Says = SaysNoReset }, map[string]string{remaining: "0", reset: ""}, map[string]string{remaining: "0", reset: "", after: "30"}},
		{"wait", func(d *Draw) { d.Says, d.Dialect = SaysWait, "" }, map[string]string{remaining: "", after: ""}, map[string]string{remaining: "", after: "30"}},
		{"a date", func(d *Draw) { d.Wait = WaitDate }, nil, map[string]string{after: "Thu, 01 Jan 2026 00:02:00 GMT"}},
		{"milliseconds", func(d *Draw) { d.Wait = WaitMillis }, nil, map[string]string{after: "", "Retry-After-Ms": "30001"}},
		{"milliseconds of AWS", func(d *Draw) { d.Wait, d.Number = WaitMillis, 2 }, nil, map[string]string{after: "", "X-Amz-Retry-After": "30001"}},
		{"zero", func(d *Draw) { d.Wait = WaitZero }, nil, map[string]string{after: "0"}},
		{"too short", func(d *Draw) { d.Wait = WaitShort }, nil, map[string]string{after: "7"}},
		{"none", func(d *Draw) { d.Wait = WaitNone }, nil, map[string]string{after: ""}},
		{"a lock", func(d *Draw) { d.Penalty, d.Phase = Locks, 119*time.Second }, nil, map[string]string{after: "30"}},
		{
			"remaining -1", func(d *Draw) { d.Says, d.Wrong = SaysWrong, WrongNegative },
			map[string]string{remaining: "-1"}, map[string]string{remaining: "-1"},
		},
		{"limit 0", func(d *Draw) { d.Says, d.Wrong = SaysWrong, WrongLimit0 }, map[string]string{"X-Ratelimit-Limit": "0", remaining: "0"}, nil},
		{"past", func(d *Draw) { d.Says, d.Wrong = SaysWrong, WrongPast }, map[string]string{reset: "1767222090"}, nil},
		{"an hour off", func(d *Draw) { d.Says, d.Wrong = SaysWrong, WrongHour }, map[string]string{reset: "1767229320"}, nil},
		{
			"late", func(d *Draw) { d.Says, d.Lag, d.Limits[0].Quota = SaysLate, time.Hour, 2 },
			map[string]string{remaining: "1"}, map[string]string{remaining: "1"},
		},
		{
			"a clock that is an hour off", func(d *Draw) { d.Skew = time.Hour },
			map[string]string{reset: "1767229320", "Date": "Thu, 01 Jan 2026 01:01:30 GMT"}, nil,
		},
		{"no Date", func(d *Draw) { d.NoDate = true }, map[string]string{"Date": "", reset: "1767225720"}, nil},
		{
			"a cache", func(d *Draw) { d.Says, d.Cached, d.Limits[0].Quota = SaysCached, 1, 2 },
			map[string]string{remaining: "1", "Age": ""}, map[string]string{remaining: "1", "Age": "1"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			first, second := twice(row.change)
			for name, value := range row.on {
				require.Equal(t, value, first.Header.Get(name), "on the permitted request: %s", name)
			}
			for name, value := range row.onRejected {
				require.Equal(t, value, second.Header.Get(name), "on the second request: %s", name)
			}
		})
	}
}

func TestServer_trouble(t *testing.T) {
	first, second := twice(func(d *Draw) { d.Trouble.Errors, d.Status = 1, http.StatusForbidden })
	require.Equal(t, http.StatusInternalServerError, first.Status, "after it was counted")
	require.Equal(t, http.StatusForbidden, second.Status)

	s := newServer(tenWindows(func(d *Draw) { d.Trouble.DownAt, d.Trouble.DownFor = time.Second, time.Second }))
	for second, err := range []error{nil, fleet.ErrRefused, nil} {
		resp, _ := s.Arrive(0, 1+second, time.Duration(second)*time.Second)
		require.Equal(t, err, resp.Err)
	}
}

// Other clients use a part of a quota.
func TestServer_others(t *testing.T) {
	d := tenWindows(func(d *Draw) { d.Says, d.Others, d.Limits[0].Clock = SaysShared, 0.4, true })
	s, c, got := newServer(d), call{tokens: 1}, 0
	for now := time.Duration(0); now < time.Hour; now += 100 * time.Millisecond {
		if s.earliest(c, now) <= now {
			s.take(c, now, now)
			got++
		}
	}
	// In each window 10 requests a second compete with 40 in a minute for 100.
	require.InDelta(t, 60*100*10/(10+40.0/60), got, 60)
}

const draws = 2000

// 2,000 draws have every family, and each value of each choice.
func TestNew_drawsAllFamilies(t *testing.T) {
	seen := map[string]int{}
	calls, most, least, processes, paths := 0.0, 0, maxQuota, 0, 0
	for number := range draws {
		d := New(1, number)
		l := d.drawnLimit()
		for _, what := range []any{
			d.Family(), d.Wrong, "dialect " + d.Dialect, d.Wait, d.Status, d.Penalty, d.Skew, fmt.Sprintf("clock %v %s", l.Clock, l.Kind),
			fmt.Sprintf("limits %d %s, secret %v", len(d.Limits), d.Limits[len(d.Limits)-1].Name, d.Limits[len(d.Limits)-1].Secret), "split " + string(l.Split),
			fmt.Sprint("errors ", d.Trouble.Errors > 0), fmt.Sprint("slow ", d.Trouble.Slow > 0), fmt.Sprint("down ", d.Trouble.DownFor > 0),
			fmt.Sprint("no Date ", d.NoDate), fmt.Sprint("next ", d.Next), fmt.Sprint("first ", d.Load.First > d.drawnLimit().Capacity(), d.Load.First > 0), fmt.Sprint("deadline ", d.Load.Deadline > 0),
		} {
			seen[fmt.Sprint(what)]++
		}
		most, least = max(most, l.Quota), min(least, l.Quota)
		processes, paths = max(processes, d.Load.Processes), max(paths, d.Load.Paths)
		calls += d.Load.Rate * d.Length.Seconds()
		require.Less(t, d.Load.Rate*d.Length.Seconds(), maxCalls*1.001, "%v", d)
		require.Positive(t, d.Length, "%v", d)
		require.Positive(t, d.Load.Service, "%v", d)
		if d.Load.Kind == Open || d.Load.Kind == Bursts {
			require.GreaterOrEqual(t, d.Load.Factor, 0.3, "%v", d)
			require.LessOrEqual(t, d.Load.Factor, 3.0, "%v", d)
		}
	}
	for _, kind := range limiter.Kinds() {
		for _, says := range allSays() {
			if kind == limiter.Concurrency && !slices.Contains([]Says{SaysWait, SaysWrong, SaysNothing}, says) {
				continue
			}
			for _, load := range loads() {
				require.Positive(t, seen[fmt.Sprintf("%s × %s × %s", kind, says, load)], "%s %s %s", kind, says, load)
			}
		}
	}
	for _, what := range []any{
		WrongRemaining0, WrongNegative, WrongLimit0, WrongPast, WrongHour, WaitSeconds, WaitDate, WaitMillis, WaitZero, WaitNone, WaitShort,
		429, 503, 403, 400, Counts, Locks, time.Hour, -time.Hour, "clock true window", "clock false window",
		"limits 2 tokens, secret false", "limits 2 long, secret false", "limits 2 path, secret false", "limits 2 model, secret false", "limits 2 requests, secret true",
		"split path", "split model", "errors true", "slow true", "down true", "no Date true", "next true", "deadline true", "deadline false", "first true true", "first false true", "first false false",
	} {
		require.Positive(t, seen[fmt.Sprint(what)], "%v", what)
	}
	for _, l := range limiter.Dialects() {
		require.Positive(t, seen["dialect "+l.Name], l.Name)
	}
	troubled := seen["errors true"] + seen["slow true"] + seen["down true"]
	require.InDelta(t, 0.05*draws, troubled, 40, "four standard deviations")
	require.LessOrEqual(t, least, 1)
	require.GreaterOrEqual(t, most, maxQuota*9/10)
	require.Greater(t, processes, 45)
	require.Equal(t, 20, paths)
	require.InDelta(t, 6500, calls/draws, 1500)
}

func TestNew_repeats(t *testing.T) {
	again := New(1, 7)
	require.Equal(t, New(1, 7), again)
	require.NotEqual(t, New(1, 7).String(), New(1, 8).String())
	require.NotEqual(t, New(1, 7).String(), New(2, 7).String())
}
