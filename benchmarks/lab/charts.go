package lab

import (
	"encoding/base64"
	"html/template"
	"math"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
)

// plot is a picture of the page.
type plot struct {
	Title string
	Image template.URL
}

// The size of a plot: its text is legible on a phone.
const plotWidth, plotHeight = 360, 210

// plots draw each library beside the bare client.
func (r *Report) plots() ([]plot, error) {
	var all []plot
	for _, p := range []struct {
		title  string
		values func(*Run) []float64
		log    bool
	}{
		{"Requests per second at the server", func(r *Run) []float64 { return floats(r.Load) }, false},
		{"Successful calls per second", func(r *Run) []float64 { return floats(r.Goodput) }, false},
		{"Attempts per call", func(r *Run) []float64 { return r.AttemptsPerCalls }, false},
		{"Median latency of successful calls (s)", func(r *Run) []float64 { return r.P50s }, true},
		{"p99 latency of successful calls (s)", func(r *Run) []float64 { return r.P99s }, true},
	} {
		panel, ok := r.panel(p.values, p.log)
		if !ok {
			continue
		}
		svg, err := chart.SVG(plotWidth, plotHeight, panel)
		if err != nil {
			return nil, err
		}
		all = append(all, plot{p.title, template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg))}) //nolint:gosec // base64
	}
	return all, nil
}

// panel has a line for each run. A logarithmic one leaves out seconds without a value, and is not ok
// without any.
func (r *Report) panel(values func(*Run) []float64, log bool) (panel chart.Panel, ok bool) {
	panel = chart.Panel{X: "seconds", LogY: log, XStep: tick(r.Seconds)}
	low, high := math.Inf(1), 0.0
	for i, run := range r.drawn() {
		line := chart.Line{Name: run.Name, Thick: i == 0}
		for second, v := range values(run) {
			if log && v <= 0 {
				continue
			}
			line.X, line.Y = append(line.X, float64(second)), append(line.Y, v)
			low, high = min(low, v), max(high, v)
		}
		ok = ok || len(line.X) > 0
		panel.Lines = append(panel.Lines, line)
	}
	if log {
		panel.Min, panel.Max = decade(math.Floor(math.Log10(low))), decade(math.Ceil(math.Log10(high)))
		if panel.Max <= panel.Min {
			panel.Max = 10 * panel.Min
		}
	} else {
		panel.Max = max(1.05*high, 1)
	}
	if r.Band[1] > r.Band[0] {
		panel.Bands = [][2]float64{r.Band}
	}
	return panel, ok
}

// drawn returns the runs in the order of their lines: the first library is thick, the bare client
// is the second and black.
func (r *Report) drawn() []*Run {
	runs := []*Run{&r.Runs[1], &r.Runs[0]}
	for i := 2; i < len(r.Runs); i++ {
		runs = append(runs, &r.Runs[i])
	}
	return runs
}

// tick is the step between two labels of the time: at most seven.
func tick(seconds int) float64 {
	for _, step := range []int{1, 2, 5, 10, 20, 30, 60} {
		if seconds/step <= 7 {
			return float64(step)
		}
	}
	return 120
}

func decade(exponent float64) float64 { return math.Pow(10, exponent) }

func floats(counts []int) []float64 {
	all := make([]float64, len(counts))
	for i, n := range counts {
		all[i] = float64(n)
	}
	return all
}
