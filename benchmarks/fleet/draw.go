package fleet

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// plotted are the libraries with a line in the plots: each with its defaults, and two with
// a circuit breaker: failsafe-go with all mechanisms, and gobreaker+backoff+rate.
var plotted = []string{ //nolint:gochecknoglobals // a table
	peers.Ours, "bare", "naive", "go-retryablehttp", "failsafe-go", "rehttp", "heimdall", "azcore", "resty",
	"aws-sdk-go-v2", "failsafe-go-full", "gobreaker+backoff+rate",
}

// The plot of docs/performance.md.
const (
	plottedScenario = "brownout"
	brownoutPlot    = "fleet-brownout-own.svg"
)

// Draw draws the brownout of clients with a Transport each below the root: the first seed of each row.
func Draw(root string, rows *Rows) error {
	var results []Result
	for _, row := range rows.all {
		if r := row[0]; r.Scenario.Name == plottedScenario && r.Topology == Own {
			results = append(results, r)
		}
	}
	file, err := report.Plot(root, brownoutPlot)
	if err != nil || len(results) == 0 {
		return err
	}
	return drawSeries(file, results)
}

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

// drawSeries draws the load on the server and the goodput over time.
func drawSeries(file string, results []Result) error {
	s := results[0].Scenario
	band := [][2]float64{{s.Before.Seconds(), (s.Before + s.During).Seconds()}}
	load := chart.Panel{
		Title: fmt.Sprintf("Load on the server, %s: one Transport for each of 1000 clients", s.Name),
		X:     "seconds", Y: "requests / offered calls", Max: 5.5, Bands: band, XStep: 10, YStep: 1,
	}
	good := chart.Panel{Title: "Goodput", X: "seconds", Y: "successful / offered calls", Max: 1.5, Bands: band, XStep: 10, YStep: 0.5}
	for _, name := range plotted {
		i := slices.IndexFunc(results, func(r Result) bool { return r.Peer.Name == name })
		if i < 0 {
			continue
		}
		r := results[i]
		load.Lines = append(load.Lines, drawn(r, r.Load))
		good.Lines = append(good.Lines, drawn(r, r.Goodput))
	}
	return chart.Write(file, 860, 620, load, good)
}

// drawn is a series as multiples of the offered calls of the same second. Its name has the
// recovery time.
func drawn(r Result, counts []int) chart.Line {
	l := chart.Line{Name: r.Peer.Name + ": " + recoveryText(r), Thick: r.Peer.Name == peers.Ours, Dashed: !r.Recovered}
	for i, offered := range r.Arrivals {
		n := 0
		if i < len(counts) {
			n = counts[i]
		}
		l.X = append(l.X, float64(i)+0.5)
		l.Y = append(l.Y, float64(n)/float64(max(offered, 1)))
	}
	return l
}

// recoveryText is the recovery time of a run.
func recoveryText(r Result) string {
	if !r.Recovered {
		return "no recovery"
	}
	return fmt.Sprintf("recovers in %.1f s", r.Recovery.Seconds())
}
