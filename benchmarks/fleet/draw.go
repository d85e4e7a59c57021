package fleet

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// plotted are the peers that have a line in the plots: each library at its defaults,
// and two with a breaker, failsafe-go with all that it has and the stack.
var plotted = []string{ //nolint:gochecknoglobals // a table
	peers.Ours, "bare", "naive", "go-retryablehttp", "failsafe-go", "rehttp", "heimdall", "azcore", "resty",
	"aws-sdk-go-v2", "failsafe-go-full", "gobreaker+backoff+rate",
}

// Draw draws the plots of the fleet's own scenarios into the directory, as svg or
// png: of each row the first result.
func Draw(dir, format string, rows *Rows) error {
	var results []Result
	for _, key := range rows.keys {
		results = append(results, rows.results[key][0])
	}
	for _, name := range []string{"outage", "brownout"} {
		for _, topology := range []Topology{Shared, Own} {
			file := filepath.Join(dir, fmt.Sprintf("fleet-%s-%s.%s", name, topology, format))
			if err := drawSeries(file, pick(results, name, topology)); err != nil {
				return err
			}
		}
	}
	return drawTail(filepath.Join(dir, "fleet-tail."+format), pick(results, "tail", Shared))
}

// DrawTroubles draws all troubles at a glance, a line for each: the table of them
// that stands in the directory's performance.md.
func DrawTroubles(dir, format string) error {
	rows, err := report.Rows(dir, glanceHeading)
	if err != nil {
		return err
	}
	titles := map[string]string{}
	for _, s := range Scenarios() {
		titles[s.Note] = s.title()
	}
	var names []string
	lines := map[Topology]map[string][]float64{Shared: {}, Own: {}}
	for _, cells := range rows {
		name, ok := titles[cells[0]]
		if !ok {
			return fmt.Errorf("no trouble is called %q", cells[0])
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		lines[Topology(cells[1])][name] = []float64{figure(cells[4]), figure(cells[2]), figure(cells[3])}
	}
	panel := func(t Topology, title string) chart.Dots {
		d := chart.Dots{Title: title, X: "success", Series: []string{peers.Ours, "a bare client", "the best peer"}}
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
	return chart.WriteDots(filepath.Join(dir, "fleet-troubles."+format), 900, float64(70+12*len(names)), names,
		panel(Shared, "one client for all callers"), panel(Own, "a client for each"))
}

// figure is what a cell shows, or NaN.
func figure(cell string) float64 {
	number, _, _ := strings.Cut(strings.Trim(cell, "*"), ",")
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return math.NaN()
	}
	return value
}

func pick(results []Result, scenario string, topology Topology) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool {
		return r.Scenario.Name != scenario || r.Topology != topology
	})
}

// drawSeries draws the load on the server and the goodput over time.
func drawSeries(file string, results []Result) error {
	if len(results) == 0 {
		return nil
	}
	s := results[0].Scenario
	band := [][2]float64{{s.Before.Seconds(), (s.Before + s.During).Seconds()}}
	who := map[Topology]string{Shared: "one client shared by all callers", Own: "1000 clients that know nothing of each other"}[results[0].Topology]
	load := chart.Panel{Title: fmt.Sprintf("Load on the server in the %s, %s", s.Name, who),
		X: "seconds", Y: "attempts / offered", Max: 5.5, Bands: band, XStep: 10, YStep: 1}
	good := chart.Panel{Title: "Goodput", X: "seconds", Y: "successes / offered", Max: 1.5, Bands: band, XStep: 10, YStep: 0.5}
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

// drawn is a series as multiples of what was offered in the same second, while
// requests arrive. Its name says who recovers.
func drawn(r Result, counts []int) chart.Line {
	l := chart.Line{Name: r.Peer.Name + ": " + back(r), Thick: r.Peer.Name == peers.Ours, Dashed: !r.Recovered}
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

// back tells how long after the trouble goodput is back.
func back(r Result) string {
	if !r.Recovered {
		return "never back"
	}
	return fmt.Sprintf("back in %.1f s", r.Recovery.Seconds())
}

// drawTail draws tail latency against extra load, for what hedges, and for what
// everybody else has.
func drawTail(file string, results []Result) error {
	var points []chart.Point
	for _, r := range results {
		if strings.Contains(r.Peer.Name, "hedged") || r.Peer.Name == "bare" || r.Peer.Name == peers.Ours {
			name := r.Peer.Name
			if r.Success() < 0.999 {
				name = fmt.Sprintf("%s (%.0f %% succeed)", name, 100*r.Success())
			}
			points = append(points, chart.Point{
				Name: name, X: 100 * (r.AttemptsPerCall() - 1), Y: milliseconds(r.P99),
				Ours: strings.HasPrefix(r.Peer.Name, peers.Ours),
			})
		}
	}
	if len(points) == 0 {
		return nil
	}
	return chart.Scatter(file, 620, 380, "5 % of answers take 1 s, the others 20 ms; one client shared by all", "extra load, %", "p99, ms", points)
}
