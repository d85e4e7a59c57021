package lab

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/config"
)

// What ended the failed calls adds up to all failed calls, and the report has a value for each
// second.
func TestRun_countsEachCall(t *testing.T) {
	t.Parallel()
	s := parsed(t, "clients=100&failure=status&start=3s&length=10s&total=20s&deadline=5s&with=resilienthttp&with=naive")
	report := s.run(t, func(float64) {})
	require.Len(t, report.Runs, 3)
	require.Equal(t, []string{"bare", "resilienthttp", "naive"}, []string{report.Runs[0].Name, report.Runs[1].Name, report.Runs[2].Name})
	require.Equal(t, [2]float64{3, 13}, report.Band)
	for _, r := range report.Runs {
		failed, arrived := 0, 0
		for _, c := range r.Ended {
			failed += c.Calls
		}
		for _, n := range r.Arrivals {
			arrived += n
		}
		require.Equal(t, r.Calls-r.Succeeded, failed, r.Name)
		require.Equal(t, r.Calls, arrived, r.Name)
		for _, values := range [][]float64{r.P50s, r.P99s, r.AttemptsPerCalls} {
			require.Len(t, values, report.Seconds, r.Name)
		}
		require.InDelta(t, 0.010, r.P50s[0], 0.005, "%s: a request takes 10 ms", r.Name)
	}
	require.Equal(t, "status 503", report.Runs[0].Ended[0].Text)
	require.Equal(t, "circuit breaker is open", report.Runs[1].Ended[0].Text)
}

func TestEndedBy(t *testing.T) {
	t.Parallel()
	refused := &resilienthttp.Error{Err: syscall.ECONNREFUSED, Attempts: []resilienthttp.Attempt{{StopReason: resilienthttp.ErrBudgetExhausted}}}
	for want, o := range map[string]fleet.Observation{
		"status 404":                   {Response: &http.Response{StatusCode: http.StatusNotFound}},
		"connection refused":           {Err: syscall.ECONNREFUSED},
		"unknown":                      {Err: errors.New("unknown")},
		"giving up after n attempt(s)": {Err: &url.Error{Op: "Post", URL: "http://api.test/", Err: errors.New("POST http://api.test/7 giving up after 5 attempt(s)")}},
		"dial tcp: connect: refused":   {Err: errors.New(`Get "http://api.test/1": dial tcp: connect: refused, Get "http://api.test/2": dial tcp: connect: refused`)},
		"retries exceeded":             {Err: errors.New("retries exceeded. last result: &{429 Too Many Requests}")},
		strings.Repeat("x", 60) + "…":  {Err: errors.New(strings.Repeat("x", 99))},
		"retry budget exhausted":       {Err: refused},
		"circuit breaker is open":      {Err: &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}},
	} {
		require.Equal(t, want, endedBy(o))
	}
}

func TestSentences_compareWithBare(t *testing.T) {
	t.Parallel()
	report := Report{Runs: []Run{
		{Name: "bare", Calls: 2000, Succeeded: 1500, Attempts: 2000, P99: 0.03},
		{Name: "better", Calls: 2000, Succeeded: 1999, Attempts: 2500, P99: 2.5, Ended: []Cause{{"no retries left", 1}}},
		{Name: "worse", Calls: 2000, Succeeded: 500, Attempts: 8000, Ended: []Cause{{"status 503", 1500}}},
		{Name: "resilienthttp", Calls: 2000, Succeeded: 1998, Attempts: 2000, P99: 0.03, Ended: []Cause{{"retry budget exhausted", 1}, {"circuit breaker is open", 1}}},
		{Name: "equal", Calls: 2000, Succeeded: 1500, Attempts: 2000, P99: 0.03, Ended: []Cause{{"timeout", 300}, {"eof", 200}}},
	}}
	var got []string
	for _, text := range report.Sentences() {
		got = append(got, strings.ReplaceAll(text, "\u00a0", " "))
	}
	require.Equal(t, []string{
		"better is better than bare by 25.0 percentage points: 99.95 % of 2,000 calls succeed (bare: 75.0 %), with 1.25 attempts per call and " +
			"a p99 of 2.5 s (bare: 30 ms). Failed calls: 1. They ended by: no retries left (1).",
		"worse is worse than bare by 50.0 percentage points: 25.0 % of 2,000 calls succeed (bare: 75.0 %), with 4.00 attempts per call and " +
			"a p99 of – (bare: 30 ms). Failed calls: 1,500. They ended by: status 503 (1,500).",
		"resilienthttp is better than bare by 24.9 percentage points: 99.9 % of 2,000 calls succeed (bare: 75.0 %), with 1.00 attempts per call and " +
			"a p99 of 30 ms (bare: 30 ms). Failed calls: 2. They ended by: retry budget exhausted (1), circuit breaker is open (1). " +
			"These fields decide about them: Budget.Ratio, Budget.Burst, Breaker.MaxWait.",
		"equal is as good as bare: 75.0 % of 2,000 calls succeed (bare: 75.0 %), with 1.00 attempts per call and " +
			"a p99 of 30 ms (bare: 30 ms). Failed calls: 500. They ended by: timeout (300), eof (200).",
	}, got)
	require.Equal(t, "Budget.Ratio Budget.Burst Breaker.MaxWait", report.Grid(), "the fields that the verdict names")
	report.Proposal = &Proposal{}
	require.Empty(t, report.Grid(), "they were tried")
}

// Each value of the grid is a configuration, and runs.
func TestKnobs_areFields(t *testing.T) {
	t.Parallel()
	for _, k := range knobs() {
		require.NotEmpty(t, k.causes, k.Name)
		for i, v := range parsed(t, "grid="+k.Name).variants() {
			require.NoError(t, config.Read(strings.NewReader(v.config), &resilienthttp.Transport{}), v.config)
			require.Equal(t, i > 1, v.config != "{}", v.config)
		}
	}
}

// The best point of the grid stands beside the present configuration, if the difference is more than chance.
func TestRun_proposes(t *testing.T) {
	t.Parallel()
	const errs = "clients=100&rate=100&failure=status&status=500&share=0.2&start=0s&length=20s&total=20s"
	for _, row := range []struct {
		name, query string
		tried       int
		want        string // of the best label; "": the present one
	}{
		{"a single attempt while a fifth fails: more attempts", errs + "&grid=Policy.MaxAttempts&config=" + url.QueryEscape(`{"policy": {"maxAttempts": 1}, "Budget": {"Ratio": -1}}`), 3, "Policy.MaxAttempts"},
		{"two fields", errs + "&grid=Policy.MaxAttempts&grid=Breaker.MaxWait&config=" + url.QueryEscape(`{"Policy": {"MaxAttempts": 1}}`), 9, "Policy.MaxAttempts"},
		{"a healthy server: the present one", "clients=100&rate=100&start=0s&length=1s&total=20s&grid=Policy.MaxAttempts", 3, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			report := parsed(t, row.query).run(t, func(float64) {})
			require.Equal(t, row.tried, report.Proposal.Tried)
			require.Equal(t, []string{"bare", "resilienthttp"}, []string{report.Runs[0].Name, report.Runs[1].Name})
			if row.want == "" {
				require.Len(t, report.Runs, 2)
				require.Empty(t, report.Proposal.Config)
				return
			}
			require.Len(t, report.Runs, 3)
			require.Contains(t, report.Runs[2].Name, row.want)
			require.Greater(t, report.Runs[2].Success(), report.Runs[1].Success()+0.1)
			var tr resilienthttp.Transport
			require.NoError(t, config.Read(strings.NewReader(report.Proposal.Config), &tr))
			require.Greater(t, tr.Policy.MaxAttempts, 1)
			if strings.Contains(row.query, "Ratio") {
				require.Equal(t, -1.0, tr.Budget.Ratio, "the rest stays") //nolint:testifylint // exact
			}
		})
	}
}

func TestIsBetter(t *testing.T) {
	t.Parallel()
	than := Run{Calls: 1000, Succeeded: 900, Attempts: 1000, P99: 1}
	for name, row := range map[string]struct {
		run    Run
		chance float64
		want   bool
	}{
		"more succeed":                         {Run{Calls: 1000, Succeeded: 910, Attempts: 2000, P99: 9}, 0, true},
		"more succeed, by chance":              {Run{Calls: 1000, Succeeded: 910, Attempts: 1000, P99: 1}, 0.01, false},
		"as many succeed, with fewer attempts": {Run{Calls: 1000, Succeeded: 898, Attempts: 800, P99: 1}, 0, true},
		"as many succeed, with more attempts":  {Run{Calls: 1000, Succeeded: 902, Attempts: 1200, P99: 0.1}, 0, false},
		"as many succeed, sooner":              {Run{Calls: 1000, Succeeded: 900, Attempts: 1000, P99: 0.5}, 0, true},
		"fewer succeed, sooner":                {Run{Calls: 1000, Succeeded: 800, Attempts: 500, P99: 0.1}, 0, false},
	} {
		require.Equal(t, row.want, row.run.isBetter(&than, row.chance), name)
	}
}

// A difference that two runs of one configuration have too is no reason to change it.
func TestReport_propose(t *testing.T) {
	t.Parallel()
	variants := []variant{{config: "present"}, {config: "present"}, {config: "a"}, {config: "b"}}
	for name, row := range map[string]struct {
		succeeded []int // of 1,000: bare, the present one, the present one again, a and b
		want      string
	}{
		"as much as by chance: the present one": {[]int{500, 900, 930, 940, 950}, ""},
		"more than by chance: the best":         {[]int{500, 900, 910, 940, 990}, "b"},
		"the first is the best":                 {[]int{500, 900, 900, 990, 940}, "a"},
	} {
		report := Report{}
		for _, n := range row.succeeded {
			report.Runs = append(report.Runs, Run{Calls: 1000, Succeeded: n, Attempts: 1000, P99: 1})
		}
		report.propose(variants)
		require.Equal(t, &Proposal{3, row.want}, report.Proposal, name)
	}
}
