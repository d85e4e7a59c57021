package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// resultOf is a result with one measured target.
func resultOf(what string, v float64) []Result {
	return []Result{{Targets: map[string]float64{what: v}}}
}

func TestVerdict(t *testing.T) {
	most := atMost("p99, ms", p99, 71, "%.1f")
	for _, row := range []struct {
		name     string
		target   Target
		measured []float64
		want     string
		has      string
		reached  bool
	}{
		{"met", most, []float64{71}, "≤ 71.0", "71.0", true},
		{"missed", most, []float64{80}, "≤ 71.0", "80.0", false},
		{"the mean of the seeds", most, []float64{60, 80}, "≤ 71.0", "70.0", true},
		{"the worst of the seeds", most.worstSeed(), []float64{60, 80}, "≤ 71.0", "80.0", false},
		{"a bare client's value: met", most.orBare(), []float64{90}, "≤ 100.0", "90.0", true},
		{"at least", atLeast("p99, ms", p99, 71, "%.1f"), []float64{80, 60}, "≥ 71.0", "70.0", false},
		{"the minimum of the seeds", atLeast("p99, ms", p99, 71, "%.1f").worstSeed(), []float64{80, 60}, "≥ 71.0", "60.0", false},
		{"a long time in milliseconds", most, []float64{4000}, "≤ 71.0", "4000.0", false},
		{"no recovery", recoversWithin(time.Second), []float64{never.Seconds()}, "≤ 1.0", "never", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var ours []Result
			for _, v := range row.measured {
				ours = append(ours, resultOf(row.target.What, v)...)
			}
			verdict, ok := row.target.verdict(ours, resultOf(row.target.What, 100))
			require.True(t, ok)
			require.Equal(t, row.want, verdict.Want)
			require.Equal(t, row.has, verdict.Measured)
			require.Equal(t, row.reached, verdict.Reached)
		})
	}
}

// A target that depends on a bare client's value has no verdict without it.
func TestVerdict_needsABareClient(t *testing.T) {
	few := atMost("429s", tooMany, 1.25, "%.0f").timesBare(tooMany)
	near := atLeast("success", Result.Success, -0.01, "%.3f").plusBare(Result.Success)
	for _, row := range []struct {
		target         Target
		measured, bare float64
		want           string
		reached        bool
	}{
		{few, 9, 8, "≤ 10", true},
		{near, 0.63, 0.65, "≥ 0.640", false},
		{near, 0.641, 0.65, "≥ 0.640", true},
	} {
		ours := resultOf(row.target.What, row.measured)
		_, ok := row.target.verdict(ours, nil)
		require.False(t, ok)
		verdict, ok := row.target.verdict(ours, []Result{{Bare: map[string]float64{row.target.What: row.bare}}})
		require.True(t, ok)
		require.Equal(t, row.want, verdict.Want)
		require.Equal(t, row.reached, verdict.Reached)
	}
	r := Result{Config: Config{Scenario: Scenario{Targets: []Target{near}}}, Offered: 4, Succeeded: 3}
	r.measure()
	require.InDelta(t, 0.75, r.Bare["success"], 1e-9)
}

func TestRuleVerdicts(t *testing.T) {
	with := func(share float64) []Result { return []Result{{Offered: 1000, Succeeded: int(1000 * share)}} }
	missed := func(ours, bare, best float64) (names []string) {
		for _, target := range ruleVerdicts(with(ours), with(bare), best) {
			if !target.Reached {
				names = append(names, target.What)
			}
		}
		return names
	}
	require.Empty(t, missed(0.80, 0.81, 0))
	require.Equal(t, []string{"success, vs bare"}, missed(0.79, 0.81, 0))
	require.Empty(t, missed(0.0, 0.19, 0), "a bare client succeeds too rarely")
	require.Empty(t, missed(0.80, 0.5, 0.82))
	workers := with(0.1)
	workers[0].Scenario.Load.Workers = 8
	require.Empty(t, ruleVerdicts(workers, with(0.9), 0.9))
	require.Equal(t, []string{"success, vs best peer"}, missed(0.80, 0.5, 0.83))
}

func TestCeiling(t *testing.T) {
	for _, row := range []struct {
		name string
		of   Scenario
		want float64
	}{
		{"enough for all", Scenario{During: time.Minute}, 1},
		{"a quota", Scenario{During: time.Minute, Load: Load{Rate: 200}, Server: Server{Limit: Limit{Quota: 100}}}, 0.5},
		{"a quota of ten seconds", Scenario{During: time.Minute, Load: Load{Rate: 200}, Server: Server{Limit: Limit{Quota: 1000, Window: 10 * time.Second}}}, 0.5},
		{"a bucket", Scenario{During: time.Minute, Load: Load{Rate: 100}, Server: Server{Limit: Limit{Rate: 50, Burst: 60}}}, 0.51},
		{"the workers, and their queue", Scenario{During: time.Minute, Load: Load{Rate: 2400}, Server: Server{Queue: 1440}}, 0.51},
		{"no workers", Scenario{During: time.Minute, Load: Load{Rate: 2400}, Server: Server{Workers: -1}}, 1},
		{"workers: unknown rate", Scenario{During: time.Minute, Load: Load{Workers: 8}, Server: Server{Limit: Limit{Quota: 1}}}, 1},
		{"a part of the load is not measured", Scenario{During: time.Minute, Load: Load{Rate: 250, Bare: 0.2}, Server: Server{Limit: Limit{Quota: 100}}}, 0.5},
	} {
		t.Run(row.name, func(t *testing.T) { require.InDelta(t, row.want, row.of.ceiling(), 1e-9) })
	}
}

func TestVerdict_cell(t *testing.T) {
	require.Equal(t, "**missed**", Verdict{}.cell())
	require.Equal(t, "**goal missed**", Verdict{Goal: true}.cell())
	require.Equal(t, "met", Verdict{Reached: true, Goal: true}.cell())
}

func TestRecovery(t *testing.T) {
	scenario := Scenario{Before: time.Second, During: time.Second, After: 8 * time.Second}
	for _, row := range []struct {
		name string
		good func(tenth int) int // of ten arrivals
		want time.Duration
		back bool
	}{
		{"at once", func(int) int { return 10 }, 0, true},
		{"95 % are enough", func(i int) int { return 9 + i%2 }, 0, true},
		{"after 1.5 s", func(i int) int { return ifElse(i < 35, 0, 10) }, 1500 * time.Millisecond, true},
		{"a moment is no recovery", func(i int) int { return ifElse(i < 30 || i >= 45, 10, 0) }, 2500 * time.Millisecond, true},
		{"never", func(int) int { return 5 }, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			tallied := tally(nil)
			for tenth := range 100 {
				for range 10 {
					tallied.fine.add(time.Duration(tenth) * fine)
				}
				for range row.good(tenth) {
					tallied.good.add(time.Duration(tenth) * fine)
				}
			}
			got, back := scenario.recovery(tallied)
			require.Equal(t, row.back, back)
			require.Equal(t, row.want, got)
		})
	}
}

func ifElse(condition bool, then, otherwise int) int {
	if condition {
		return then
	}
	return otherwise
}
