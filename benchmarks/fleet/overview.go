package fleet

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// The generated table is between markers of this name, in docs/performance.md and, with other rows, in README.md.
const (
	overviewSection = "overview"
	performancePage = "docs/performance.md"
)

// overview are the rows of the table in docs/performance.md.
func overview() []struct {
	scenario string
	topology Topology
	text     string
} {
	type row = struct {
		scenario string
		topology Topology
		text     string
	}
	return []row{
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

// Overview is the table of docs/performance.md, from benchmarks/results/scenarios.md.
func Overview(root string) (string, error) {
	rows, err := report.Rows(root, "scenarios", scenarioHeading)
	if err != nil {
		return "", err
	}
	stored := map[string][]string{}
	for _, cells := range rows {
		stored[cells[0]+"/"+cells[2]] = cells
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

// WriteOverview writes the table of docs/performance.md.
func WriteOverview(root string) error {
	text, err := Overview(root)
	if err != nil {
		return err
	}
	return report.WriteSection(root, performancePage, overviewSection, text)
}
