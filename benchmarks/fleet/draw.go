package fleet

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// DrawScenarios draws all scenarios from the table in benchmarks/results/scenarios.md.
func DrawScenarios(root string) error {
	rows, err := report.Rows(root, "scenarios", scenarioHeading)
	if err != nil {
		return err
	}
	var names []string
	lines := map[string]map[string][]float64{Shared.label(): {}, Own.label(): {}}
	for _, cells := range rows {
		name, transport := cells[0], cells[2]
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		lines[transport][name] = []float64{figure(cells[5]), figure(cells[3]), figure(cells[4])}
	}
	panel := func(t Topology, title string) chart.Dots {
		d := chart.Dots{Title: title, X: "success", Series: []string{peers.Ours, "bare client", "best peer"}}
		for _, name := range names {
			values := lines[t.label()][name]
			if values == nil {
				values = []float64{math.NaN(), math.NaN(), math.NaN()}
			}
			d.Values = append(d.Values, values)
		}
		return d
	}
	if len(names) == 0 {
		return nil
	}
	file, err := report.Plot(root, scenarioPlot+".svg")
	if err != nil {
		return err
	}
	return chart.WriteDots(file, 900, float64(70+12*len(names)), names, panel(Shared, "one shared Transport"), panel(Own, "one Transport per client"))
}

// figure is the number in a cell, or NaN.
func figure(cell string) float64 {
	number, _, _ := strings.Cut(strings.Trim(cell, "*"), ",")
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return math.NaN()
	}
	return value
}
