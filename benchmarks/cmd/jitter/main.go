// Jitter simulates clients that contend for one row, and counts the calls of each backoff
// strategy until all clients have succeeded: see package jitter. It writes
// benchmarks/results/jitter.md and its plot.
//
//	go run ./benchmarks/cmd/jitter
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/jittersim"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/jitter"
)

func main() {
	seeds := flag.Int("seeds", 50, "number of seeds; the results are means")
	write := flag.Bool("write", true, "write benchmarks/results/jitter.md and the plot")
	flag.Parse()
	if err := run(*seeds, *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(seeds int, write bool) error {
	strategies := jitter.Strategies()
	var clients []int
	for n := 10; n <= 200; n += 10 {
		clients = append(clients, n)
	}
	outcomes := make([][]jittersim.Outcome, len(strategies))
	for i, s := range strategies {
		for _, n := range clients {
			outcomes[i] = append(outcomes[i], jittersim.Mean(seeds, n, s.Backoff))
		}
	}
	text := section(seeds, strategies, clients, outcomes)
	_, _ = fmt.Fprintln(os.Stdout, text)
	if !write {
		return nil
	}
	root, err := report.Root()
	if err != nil {
		return err
	}
	file, err := report.Plot(root, "jitter.svg")
	if err != nil {
		return err
	}
	if err := draw(file, strategies, clients, outcomes); err != nil {
		return err
	}
	return report.WriteResults(root, "jitter", "go run ./benchmarks/cmd/jitter", text)
}

func section(seeds int, strategies []jitter.Strategy, clients []int, outcomes [][]jittersim.Outcome) string {
	last := len(clients) - 1
	full := outcomes[0][last]
	var text strings.Builder
	fmt.Fprintf(&text, `# Calls by backoff strategy

The experiment of [Exponential Backoff And Jitter][jitter] (AWS Architecture Blog) with the Backoffs of this library, in
simulated time. Clients contend for one row until each has written once. The results are means over %d seeds.

With %d clients, full jitter needs %.1f times fewer calls than no backoff. It needs %.1f times fewer calls and %.0f times less
time than exponential backoff without jitter.

[jitter]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

%s`, seeds, clients[last], outcomes[3][last].Calls/full.Calls, outcomes[2][last].Calls/full.Calls, outcomes[2][last].Time.Seconds()/full.Time.Seconds(),
		report.PlotLink("Calls and time until all clients have succeeded, by strategy", "jitter.svg"))
	heading := []string{"calls / seconds until all succeed"}
	some := []int{0, 4, 9, 14, 19}
	for _, j := range some {
		heading = append(heading, fmt.Sprintf("%d clients", clients[j]))
	}
	table := report.NewTable(heading...)
	for i, s := range strategies {
		cells := []string{s.Name}
		for _, j := range some {
			cells = append(cells, fmt.Sprintf("%.0f / %.2f", outcomes[i][j].Calls, outcomes[i][j].Time.Seconds()))
		}
		table.Row(cells...)
	}
	fmt.Fprintln(&text, table)
	return text.String()
}

func draw(file string, strategies []jitter.Strategy, clients []int, outcomes [][]jittersim.Outcome) error {
	calls := chart.Panel{Title: "Calls until all have succeeded", Y: "calls", XStep: 20}
	times := chart.Panel{Title: "Time until all have succeeded", X: "contending clients", Y: "seconds", XStep: 20, LogY: true}
	for i, s := range strategies {
		c, t := chart.Line{Name: s.Name, Thick: i == 0}, chart.Line{Name: s.Name, Thick: i == 0}
		for j, n := range clients {
			c.X, c.Y = append(c.X, float64(n)), append(c.Y, outcomes[i][j].Calls)
			t.X, t.Y = append(t.X, float64(n)), append(t.Y, outcomes[i][j].Time.Seconds())
		}
		calls.Lines, times.Lines = append(calls.Lines, c), append(times.Lines, t)
	}
	return chart.Write(file, 680, 560, calls, times)
}
