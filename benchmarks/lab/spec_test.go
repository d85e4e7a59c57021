package lab

import (
	"cmp"
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

func parsed(t *testing.T, query string) *Spec {
	t.Helper()
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	s, errs := Parse(values)
	require.Empty(t, errs, query)
	return s
}

// A preset is the fleet's scenario: the same server, failure and load. The form writes the fleet's defaults out.
func TestPresets_areScenariosOfTheFleet(t *testing.T) {
	t.Parallel()
	presets := Presets()
	require.Len(t, presets, 10)
	for _, p := range presets {
		found, err := fleet.Named(p.Name)
		require.NoError(t, err)
		spec := parsed(t, p.Query)
		want, got := found[0], spec.Scenario()
		server, load := &want.Server, &want.Load
		server.Workers, server.Queue = cmp.Or(server.Workers, 12), cmp.Or(server.Queue, 1000)
		server.Service, server.AttemptTimeout = cmp.Or(server.Service, 10*time.Millisecond), cmp.Or(server.AttemptTimeout, 500*time.Millisecond)
		load.Clients, load.Deadline, load.Method = cmp.Or(load.Clients, fleet.Clients), cmp.Or(load.Deadline, 30*time.Second), cmp.Or(load.Method, http.MethodGet)
		load.Rate = cmp.Or(load.Rate, fleet.Rate)
		if load.Every > 0 {
			load.Rate = float64(load.Clients) / load.Every.Seconds()
		}
		for i := range server.Faults {
			server.Faults[i].Share = cmp.Or(server.Faults[i].Share, 1)
		}
		require.Equal(t, *server, got.Server, p.Name)
		require.Equal(t, *load, got.Load, p.Name)
		require.Equal(t, []any{want.Before, want.During, want.After}, []any{got.Before, got.During, got.After}, p.Name)
		require.True(t, want.RunsIn(spec.topology), p.Name)
		again := parsed(t, spec.Query()) // the URL of an experiment is the same experiment
		require.Equal(t, got, again.Scenario(), p.Name)
		require.Equal(t, spec.peers, again.peers, p.Name)
	}
}

// The presets by kind of API are small: a run takes seconds.
func TestAPIs(t *testing.T) {
	t.Parallel()
	names := []string{"payments", "llm", "crawler", "internal-service"}
	require.Len(t, APIs(), len(names))
	for i, p := range APIs() {
		s := parsed(t, p.Query)
		require.Equal(t, names[i], p.Name)
		require.LessOrEqual(t, s.calls(), 30_000.0, p.Name)
		require.Equal(t, s.Scenario(), parsed(t, s.Query()).Scenario(), p.Name)
	}
	require.Empty(t, parsed(t, "clients=1000&seed=12").Query(), "initial values")
	payments := parsed(t, APIs()[0].Query).Scenario()
	require.InDelta(t, 8, payments.Load.Rate, 0)
	require.Equal(t, []any{4 * time.Second, fleet.ErrRefused, "POST"}, []any{payments.During, payments.Server.Faults[0].Response.Err, payments.Load.Method})
}

func TestParse_errorsNameTheField(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]FormError{
		"clients=10001":                     {"clients": `"10001" (want 1 to 10000)`},
		"clients=many&rate=1s":              {"clients": `"many" (want 1 to 10000)`, "rate": `"1s" (want 0.01 to 100000)`},
		"total=11m":                         {"total": `"11m" (want 1s to 10m0s)`},
		"start=50s":                         {"length": "the failure ends after 1m20s (want at most the total of 1m0s)"},
		"rate=100000":                       {"rate": "6000000 calls (want at most 1000000)"},
		"failure=fire":                      {"failure": `unknown choice "fire"`},
		"share=0":                           {"share": `"0" (want 0.0001 to 1)`},
		"share=NaN":                         {"share": `"NaN" (want 0.0001 to 1)`},
		"factor=0":                          {"factor": `"0" (want 0.1 to 100)`},
		"headers=some":                      {"headers": `unknown choice "some"`},
		"seed=-1":                           {"seed": `"-1" (want 0 to 9223372036854775807)`},
		"with=":                             {"with": "0 libraries (want 1 to 4; the bare client always runs)"},
		"with=bare":                         {"with": `no library "bare"`},
		"with=curl":                         {"with": `no library "curl"`},
		"color=red":                         {"": `unknown field "color"`},
		"workers=unlimited&failure=workers": {"left": "needs a server with a number of workers"},
		"failure=slow&slow=2s&slowest=1s":   {"slowest": "1s (want at least slow, 2s)"},
		"failure=surge&arrivals=regular":    {"arrivals": "a surge needs random arrivals"},
		"config=" + url.QueryEscape(`{"Policy": {"MaxAttempts": "x", "Tries": 3}}`): {
			"config": "config: Policy.MaxAttempts: got string, want integer\nconfig: Policy.Tries: unknown field",
		},
		"config=%7B": {"config": "config: line 1: unexpected end of JSON input"},
		"config=" + url.QueryEscape(`{"Connections": {"MaxAge": "1m"}}`): {
			"config": "config: Connections.MaxAge: has no effect in the model, which has no connections",
		},
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, errs := Parse(values)
		require.Equal(t, want, errs, query)
	}
}

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
