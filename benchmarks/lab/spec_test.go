package lab

import (
	"cmp"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
