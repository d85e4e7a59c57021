package lab

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
)

func parsed(t *testing.T, query string) *Spec {
	t.Helper()
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	s, err := Parse(values)
	require.NoError(t, err, query)
	return s
}

// A preset is the fleet's scenario: the same server, failure and load.
func TestPresets_areScenariosOfTheFleet(t *testing.T) {
	t.Parallel()
	presets := Presets()
	require.Len(t, presets, 10)
	for _, p := range presets {
		found, err := fleet.Named(p.Name)
		require.NoError(t, err)
		want, got := found[0], parsed(t, p.Query).Scenario()
		if want.Load.Clients == fleet.Clients {
			want.Load.Clients = 0 // the default
		}
		require.Equal(t, want.Server, got.Server, p.Name)
		require.Equal(t, want.Load, got.Load, p.Name)
		require.Equal(t, []any{want.Before, want.During, want.After}, []any{got.Before, got.During, got.After}, p.Name)
		require.True(t, want.RunsIn(got.Topologies[0]), p.Name)
		require.Equal(t, p.Name, got.Name)
	}
}

// The presets by kind of API are small: a run takes seconds.
func TestAPIs(t *testing.T) {
	t.Parallel()
	names := []string{"payments", "llm", "crawler", "internal-service"}
	require.Len(t, APIs(), len(names))
	for i, p := range APIs() {
		s := parsed(t, p.Query)
		require.Equal(t, []string{names[i], names[i]}, []string{p.Name, s.Scenario().Name})
		require.LessOrEqual(t, s.calls(), 30_000.0, p.Name)
		require.Equal(t, s.Scenario(), parsed(t, s.Query()).Scenario(), p.Name)
	}
	payments := parsed(t, APIs()[0].Query).Scenario()
	require.InDelta(t, 8, payments.Load.Rate, 0)
	require.Equal(t, []any{4 * time.Second, fleet.ErrRefused, "POST"}, []any{payments.During, payments.Server.Faults[0].Response.Err, payments.Load.Method})
}

// The URL of an experiment is the same experiment.
func TestSpec_queryRoundTrip(t *testing.T) {
	t.Parallel()
	for _, p := range Presets() {
		s := parsed(t, p.Query)
		require.Equal(t, s.Scenario(), parsed(t, s.Query()).Scenario(), p.Name)
		require.Equal(t, s.peers, parsed(t, s.Query()).peers, p.Name)
	}
	require.Empty(t, parsed(t, "clients=1000&seed=12").Query(), "initial values")
}

func TestParse_errorsNameTheField(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]FormError{
		"clients=10001":                     {"clients": `"10001" (want 1 to 10000)`},
		"clients=many&rate=1s":              {"clients": `"many" (want 1 to 10000)`, "rate": `"1s" (want 0.01 to 100000)`},
		"total=11m":                         {"total": `"11m" (want 1s to 10m0s, such as 500ms)`},
		"start=50s":                         {"length": "the failure ends after 1m20s (want at most the total of 1m0s)"},
		"rate=100000":                       {"rate": "6000000 calls (want at most 1000000)"},
		"failure=fire":                      {"failure": `unknown choice "fire"`},
		"share=0":                           {"share": `"0" (want 0.0001 to 1)`},
		"share=NaN":                         {"share": `"NaN" (want 0.0001 to 1)`},
		"factor=0":                          {"factor": `"0" (want 0.1 to 100)`},
		"window=1500ms":                     {"window": `"1500ms" (want whole seconds)`},
		"headers=some":                      {"headers": `unknown choice "some"`},
		"seed=-1":                           {"seed": `"-1" (want a number)`},
		"name=A+b":                          {"name": `"A b" (want up to 40 of a-z, 0-9 and -)`},
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
		_, err = Parse(values)
		var errs FormError
		require.ErrorAs(t, err, &errs, query)
		require.Equal(t, want, errs, query)
	}
}

// The exported rows of all kinds of experiments compile in package fleet.
func TestRow_compiles(t *testing.T) {
	t.Parallel()
	root, err := report.Root()
	require.NoError(t, err)
	var file strings.Builder
	file.WriteString("package fleet\n\nimport \"time\"\n\nvar labRows = []Scenario{\n")
	queries := []string{
		"failure=refused&share=0.5", "failure=reset&method=POST", "failure=none&service=1500us&queue=none&full=3", "quota=7&window=1m&headers=rejections",
		"quota=7&headers=none", "deadline=none&failure=status&after=5", "failure=surge",
		"config=" + url.QueryEscape(`{"Policy": {"MaxAttempts": 3}}`), "config=" + url.QueryEscape("{\"Policy\":\n{}}"),
	}
	for _, p := range append(APIs(), Presets()...) {
		queries = append(queries, p.Query)
	}
	for _, query := range queries {
		fmt.Fprintf(&file, "%s,\n", strings.TrimSpace(parsed(t, query).Row()))
	}
	file.WriteString("}\n\nvar _ time.Duration\n")
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "rows.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(source, []byte(file.String()), 0o600))
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "benchmarks", "fleet", "labrows.go"): source}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replaced, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "./fleet")
	build.Dir = filepath.Join(root, "benchmarks")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, file.String())
	require.Equal(t, `Scenario{
	Name:       "outage",
	Before:     10 * time.Second,
	During:     30 * time.Second,
	After:      80 * time.Second,
	Server:     Server{Faults: []Fault{{Response: Response{Status: 503}}}},
	Topologies: []Topology{Shared},
}
`, parsed(t, Presets()[1].Query).Row())
}
