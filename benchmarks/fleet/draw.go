package fleet

import (
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// DrawScenarios draws the figures of ScenarioResults.
func DrawScenarios(root string, rows *Rows) error {
	var names []string
	lines := map[Topology]map[string][]float64{Shared: {}, Own: {}}
	for _, g := range rows.comparisons() {
		name, best := g.scenario.Name, math.NaN()
		if g.peer != "" {
			best = g.best.Shown
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		lines[g.topology][name] = []float64{shown(g.ours), shown(g.bare), best}
	}
	panel := func(t Topology, title string) chart.Dots {
		d := chart.Dots{Title: title, X: "success", Series: []string{peers.Ours, "bare client", "best peer"}}
		for _, name := range names {
			values := lines[t][name]
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
	file := filepath.Join(root, scenarioPlot)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // documentation
		return err
	}
	return chart.WriteDots(file, 900, float64(70+12*len(names)), names, panel(Shared, "one shared Transport"), panel(Own, "one Transport per client"))
}
