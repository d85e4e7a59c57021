package zoo

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
)

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
