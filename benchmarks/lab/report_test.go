package lab

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
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
		require.Equal(t, r.Offered-r.Succeeded, failed, r.Name)
		require.Equal(t, r.Offered, arrived, r.Name)
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
	run := func(name string, succeeded, attempts int, p99 time.Duration, ended ...Cause) Run {
		return Run{Name: name, Result: fleet.Result{Offered: 2000, Succeeded: succeeded, Attempts: attempts, P99: p99}, Ended: ended}
	}
	report := Report{Runs: []Run{
		run("bare", 1500, 2000, 30*time.Millisecond),
		run("better", 1999, 2500, 2500*time.Millisecond, Cause{"no retries left", 1}),
		run("worse", 500, 8000, 0, Cause{"status 503", 1500}),
		run("resilienthttp", 1998, 2000, 30*time.Millisecond, Cause{"retry budget exhausted", 1}, Cause{"circuit breaker is open", 1}),
		run("equal", 1500, 2000, 30*time.Millisecond, Cause{"timeout", 300}, Cause{"eof", 200}),
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
}
