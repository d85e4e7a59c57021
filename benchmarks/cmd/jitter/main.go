// Jitter simulates clients that contend for one row, and counts the calls of each backoff
// strategy until all clients have succeeded: see package jitter. It writes
// benchmarks/results/jitter.md.
//
//	go run ./benchmarks/cmd/jitter
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/jitter"
)

func main() {
	seeds := flag.Int("seeds", 50, "number of seeds; the results are means")
	write := flag.Bool("write", true, "write benchmarks/results/jitter.md")
	flag.Parse()
	if err := run(*seeds, *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(seeds int, write bool) error {
	strategies := jitter.Strategies()
	clients := []int{10, 50, 100, 150, 200}
	outcomes := make([][]jitter.Outcome, len(strategies))
	for i, s := range strategies {
		for _, n := range clients {
			outcomes[i] = append(outcomes[i], jitter.Mean(seeds, n, s.Backoff))
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
	return report.WriteResults(root, "jitter", "go run ./benchmarks/cmd/jitter", text)
}

func section(seeds int, strategies []jitter.Strategy, clients []int, outcomes [][]jitter.Outcome) string {
	last := len(clients) - 1
	full := outcomes[0][last]
	var text strings.Builder
	fmt.Fprintf(&text, `# Calls by backoff strategy

The experiment of [Exponential Backoff And Jitter][jitter] (AWS Architecture Blog) with the Backoffs of this library, in
simulated time. Clients contend for one row until each has written once. The results are means over %d seeds.

With %d clients, full jitter needs %.1f times fewer calls than no backoff. It needs %.1f times fewer calls and %.0f times less
time than exponential backoff without jitter.

[jitter]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

`, seeds, clients[last], outcomes[3][last].Calls/full.Calls, outcomes[2][last].Calls/full.Calls, outcomes[2][last].Time.Seconds()/full.Time.Seconds())
	heading := []string{"calls / seconds until all succeed"}
	for _, n := range clients {
		heading = append(heading, fmt.Sprintf("%d clients", n))
	}
	table := report.NewTable(heading...)
	for i, s := range strategies {
		cells := []string{s.Name}
		for j := range clients {
			cells = append(cells, fmt.Sprintf("%.0f / %.2f", outcomes[i][j].Calls, outcomes[i][j].Time.Seconds()))
		}
		table.Row(cells...)
	}
	fmt.Fprintln(&text, table)
	return text.String()
}
