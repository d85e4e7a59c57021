package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// The generated table is between these markers, in docs/performance.md and, with other rows, in README.md.
const (
	overviewBegin = "<!-- overview:begin -->\n"
	overviewEnd   = "\n<!-- overview:end -->"
)

// overviewIn returns the table of a page. With UPDATE_DOCS=1 it writes the wanted table first.
func overviewIn(t *testing.T, page, want string) string {
	t.Helper()
	root, err := report.Root()
	require.NoError(t, err)
	name := filepath.Join(root, page)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), overviewBegin)
	require.True(t, ok, page)
	got, after, ok := strings.Cut(rest, overviewEnd)
	require.True(t, ok, page)
	if os.Getenv("UPDATE_DOCS") == "1" {
		require.NoError(t, os.WriteFile(name, []byte(before+overviewBegin+want+overviewEnd+after), 0o600))
		return want
	}
	return got
}

// overviewRow is a row of the table in docs/performance.md.
type overviewRow struct {
	scenario string
	topology Topology
	text     string
}

func overview() []overviewRow {
	return []overviewRow{
		{"healthy", Shared, "no fault"},
		{"errors", Own, "1 % of responses are 500, per client"},
		{"errors-30", Shared, "30 % are 500, shared"},
		{"errors-60", Own, "60 % are 500, per client"},
		{"outage", Own, "outage (503) of 30 s, per client"},
		{"cron-20s-503", Own, "one call a minute, outage of 20 s, per client"},
		{"brownout", Shared, "half capacity for 60 s, shared"},
		{"brownout", Own, "half capacity for 60 s, per client"},
		{"backends-hang-3", Shared, "3 of 10 backends hang, shared"},
		{"hang", Shared, "all requests hang for 30 s, shared"},
		{"path-fails-55", Shared, "other endpoint (55 % of calls) fails, shared"},
		{"quota", Shared, "200 calls/s, quota 100/s, shared"},
		{"1000-clients-10s-503-new", Own, "1,000 clients, half new, outage of 20 s"},
	}
}

// overviewTable is the table of docs/performance.md, from benchmarks/results/scenarios.md.
func overviewTable(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "benchmarks", "results", "scenarios.md"))
	if err != nil {
		return "", err
	}
	stored := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 9 {
			stored[cells[0]+"/"+cells[2]] = cells
		}
	}
	table := report.NewTextTable(scenarioHeading, "bare", "best peer", peers.Ours, "our attempts per call", "latency, bare→ours")
	for _, row := range overview() {
		cells, ok := stored[row.scenario+"/"+row.topology.label()]
		if !ok {
			return "", fmt.Errorf("fleet: benchmarks/results/scenarios.md has no row %s, %s", row.scenario, row.topology.label())
		}
		success, err := boldBest(cells[3:6])
		if err != nil {
			return "", err
		}
		table.Row(append(append([]string{row.text}, success...), cells[8], cells[6]+"→"+cells[7])...)
	}
	return strings.TrimSpace(table.String()), nil
}

// boldBest returns the cells with the highest figures in bold, whichever library has them. A figure
// stands before a comma.
func boldBest(cells []string) ([]string, error) {
	figures, best := make([]float64, len(cells)), 0.0
	for i, cell := range cells {
		text, _, _ := strings.Cut(strings.Trim(cell, "*"), ",")
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("fleet: benchmarks/results/scenarios.md: %w", err)
		}
		figures[i], best = x, max(best, x)
	}
	bold := make([]string, len(cells))
	for i, cell := range cells {
		figure, peer, named := strings.Cut(strings.Trim(cell, "*"), ",")
		if figures[i] == best {
			figure = "**" + figure + "**"
		}
		if bold[i] = figure; named {
			bold[i] += "," + peer
		}
	}
	return bold, nil
}

func TestOverview_isInPerformancePage(t *testing.T) {
	root, err := report.Root()
	require.NoError(t, err)
	want, err := overviewTable(root)
	require.NoError(t, err)
	require.Equal(t, want, overviewIn(t, "docs/performance.md", want), "run the test with UPDATE_DOCS=1")
}

// The costs in docs/performance.md and README.md are written by hand.
func TestPerformancePage_hasTheMeasuredCosts(t *testing.T) {
	root, err := report.Root()
	require.NoError(t, err)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(text)
	}
	page := read("docs/performance.md")
	require.Regexp(t, `takes 1\.16 ± 0\.22 times as long`, read("README.md"))
	for cost, measured := range map[string][2]string{
		"1.16 ± 0.22 times a bare client": {"overhead", "| **resilienthttp** | 1.16 ± 0.22 |"},
		"2.2 times that of a timeout":     {"overhead", "| GET, scopes: 1 | 2.827µs | 1.916µs | 4.22µs | 2.20 |"},
		"+2.27 MB":                        {"overhead", "| resilienthttp | 10.81 | 2.27 |"},
		"1.14 times that without":         {"overhead", "| resilienthttp | 10.81 | 2.27 | 54.8 | 1.14 |"},
		"5, 10 (a timeout alone: 6, 6)":   {"call-costs", "**10 allocations, 2112 B**"},
		"7 to 10 % of CPU time":           {"call-costs", "+7 to +10 %"},
		".50 to .68 of the throughput":    {"idempotency", "2,280 (**.68**)"},
		".85 to 1.18 of River's":          {"durable", "1.10–1.18"},
		"104 to 119 ns":                   {"admission", "104–119 ns"},
	} {
		require.Contains(t, page, cost)
		require.Contains(t, read("benchmarks/results/"+measured[0]+".md"), measured[1])
	}
}
