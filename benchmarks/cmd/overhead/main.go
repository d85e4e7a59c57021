// Overhead measures what each library adds to a request that succeeds at once:
// see package overhead. It rewrites its section of docs/performance.md.
//
//	go run ./benchmarks/cmd/overhead
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/overhead"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func main() {
	serve := flag.Bool("serve", false, "be the server (the command starts itself so)")
	peer := flag.String("peer", "all", "of "+strings.Join(peers.Names(), ", ")+"; several with commas; or all")
	rounds := flag.Int("rounds", 151, "of which the median counts")
	batch := flag.Duration("batch", 2*time.Millisecond, "that each library takes in each round")
	added := flag.Bool("added", false, "measure the processor time alone that this library adds, beside the least that a timeout costs")
	binary := flag.Bool("binary", false, "measure the size alone that a library adds to a program's binary")
	write := flag.Bool("write", true, "rewrite the section of docs/performance.md, if all peers were measured")
	redraw := flag.Bool("draw", false, "only draw the plot anew, from the figures in docs/performance.md")
	flag.Parse()
	do := func() error { return run(*peer, *rounds, *batch, *write) }
	if *added {
		do = func() error { return tellAdded(os.Stdout, *rounds, *batch) }
	}
	if *binary {
		do = func() error { return writeSizes(os.Stdout) }
	}
	if *redraw {
		do = drawAnew
	}
	if *serve {
		do = overhead.Serve
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(peer string, rounds int, batch time.Duration, write bool) error {
	who, err := peers.Named(peer)
	if err != nil {
		return err
	}
	bare, err := peers.Named("bare")
	if err != nil {
		return err
	}
	who = slices.Concat(bare, slices.DeleteFunc(who, func(p peers.Peer) bool { return p.Name == "bare" }))
	url, stop, err := overhead.StartServer("-serve")
	if err != nil {
		return err
	}
	defer stop()
	config := overhead.Config{Peers: who, Rounds: rounds, Batch: batch}
	results := map[string][]overhead.Row{}
	for _, way := range []overhead.Way{overhead.InMemory(), overhead.Loopback(url)} {
		for _, parallel := range []bool{false, true} {
			way.Parallel = parallel
			for _, load := range overhead.Loads() {
				fmt.Fprintf(os.Stderr, "%s, parallel %v, %s\n", way.Name, parallel, load.Name)
				results[column(way, load)] = overhead.Measure(config, load, way)
			}
		}
	}
	text := section(who, results)
	var floor strings.Builder
	if err := tellAdded(&floor, rounds, 5*batch); err != nil {
		return err
	}
	text += "\nProcessor time of a call in memory, beside the least that gives each attempt a timeout (context.WithTimeout and a body\n" +
		"that ends it); `-added` measures this alone.\n\n" + floor.String()
	var sizes strings.Builder
	if err := writeSizes(&sizes); err != nil {
		return err
	}
	text += "\nSize of the binary of a program that makes one GET; `-binary` measures this alone.\n\n" + sizes.String()
	_, _ = fmt.Fprintln(os.Stdout, text)
	if !write || peer != "all" {
		return nil
	}
	docs, err := report.Docs()
	if err != nil {
		return err
	}
	return errors.Join(report.Write(docs, "overhead", text), draw(docs))
}

// drawAnew draws what was measured last.
func drawAnew() error {
	docs, err := report.Docs()
	if err != nil {
		return err
	}
	return draw(docs)
}

// tellAdded writes a table of what is added to a bare client's call.
func tellAdded(w io.Writer, rounds int, batch time.Duration) error {
	table := report.NewTable("processor time", "bare", "a timeout adds", "resilienthttp adds", "timeouts")
	for _, load := range overhead.Loads()[:2] {
		for _, scopes := range []int{1, 1000} {
			added, err := overhead.MeasureAdded(overhead.Config{Rounds: rounds, Batch: batch}, load, scopes)
			if err != nil {
				return err
			}
			table.Row(fmt.Sprintf("%s, scopes: %d", load.Name, scopes), added.Bare.String(), added.Floor.String(), added.Ours.String(), fmt.Sprintf("%.2f", added.Ratio()))
		}
	}
	_, err := fmt.Fprintln(w, table)
	return err
}

// writeSizes writes a table of the sizes of binaries.
func writeSizes(w io.Writer) error {
	table := report.NewTable("binary", "MB", "more than net/http alone")
	var least int64
	for _, p := range overhead.Programs() {
		size, err := p.Size(context.Background())
		if err != nil {
			return err
		}
		if p.Import == "" {
			least = size
		}
		table.Row(p.Name, fmt.Sprintf("%.2f", float64(size)/1e6), fmt.Sprintf("%.2f", float64(size-least)/1e6))
	}
	_, err := fmt.Fprintln(w, table)
	return err
}

func column(w overhead.Way, l overhead.Load) string {
	return fmt.Sprintf("%s %v %s", w.Name, w.Parallel, l.Name)
}

func section(who []peers.Peer, results map[string][]overhead.Row) string {
	var text strings.Builder
	fmt.Fprintf(&text, `## Overhead of a request that succeeds at once

Measured by `+"`go run ./benchmarks/cmd/overhead`"+` on %s. Times are
ratios to the bare http.Client's in the same round, in which all libraries have
their turn: the median of all rounds, and half the distance between the quartiles.
Where that is large, the machine had other work. In parallel means 16 goroutines on
one client. Over loopback the server is another process, and connections are kept
alive; a real network makes all ratios smaller still. In memory, the base looks at
a body without copying it, so that the ratios of the 1 MiB show who does. Bytes and allocations are what is added to the bare client's,
for each request.

![Time over loopback, as a ratio to the bare client](overhead.svg)

`, report.Machine())
	loads := overhead.Loads()
	for _, way := range []overhead.Way{overhead.Loopback(""), overhead.InMemory()} {
		heading := []string{"time, " + way.Name}
		for _, parallel := range []string{"", ", parallel"} {
			for _, load := range loads {
				heading = append(heading, load.Name+parallel)
			}
		}
		table := report.NewTable(heading...)
		for i, p := range who {
			cells := []string{name(p)}
			for _, way.Parallel = range []bool{false, true} {
				for _, load := range loads {
					cells = append(cells, ratio(results[column(way, load)][i]))
				}
			}
			table.Row(cells...)
		}
		fmt.Fprintln(&text, table)
	}
	table := report.NewTable("added, in memory", "GET: allocations", "bytes", "POST 64 B: allocations", "bytes", "POST 1 MiB: allocations", "bytes")
	for i, p := range who {
		cells := []string{name(p)}
		for _, load := range loads {
			row := results[column(overhead.InMemory(), load)][i]
			cells = append(cells, fmt.Sprintf("%.0f", math.Abs(math.Round(row.Allocs))), bytes(row.Bytes))
		}
		table.Row(cells...)
	}
	fmt.Fprintln(&text, table)
	return text.String()
}

// ratio is a median, and half the distance of the quartiles around it.
func ratio(r overhead.Row) string {
	if r.Ratio >= 10 {
		return fmt.Sprintf("%.0f ± %.0f", r.Ratio, (r.High-r.Low)/2)
	}
	return fmt.Sprintf("%.2f ± %.2f", r.Ratio, (r.High-r.Low)/2)
}

func name(p peers.Peer) string {
	if p.Name == peers.Ours {
		return "**" + p.Name + "**"
	}
	return p.Name
}

func bytes(n float64) string {
	switch n = math.Round(n); {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	case n >= 10<<10:
		return fmt.Sprintf("%.0f KiB", n/(1<<10))
	default:
		return fmt.Sprintf("%.0f B", math.Abs(n))
	}
}

// draw shows the GET over loopback, from one goroutine and from many, as the page
// says it.
func draw(docs string) error {
	rows, err := report.Rows(docs, "time, "+overhead.Loopback("").Name)
	if err != nil {
		return err
	}
	var bars []chart.Bar
	for _, cells := range rows {
		bar := chart.Bar{Name: strings.Trim(cells[0], "*")}
		bar.Ours = strings.HasPrefix(bar.Name, peers.Ours)
		for _, i := range []int{1, 1 + len(overhead.Loads())} {
			median, _, _ := strings.Cut(cells[i], " ")
			value, err := strconv.ParseFloat(median, 64)
			if err != nil {
				return err
			}
			bar.Values = append(bar.Values, value)
		}
		bars = append(bars, bar)
	}
	return chart.Bars(filepath.Join(docs, "overhead.svg"), 800, 440, "GET over loopback", "time, as a ratio to the bare client", []string{"one goroutine", "16 goroutines"}, bars)
}
