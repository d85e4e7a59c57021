// Overhead measures what each library adds to a request that succeeds at once: see package
// overhead. It writes benchmarks/results/overhead.md.
//
//	go run ./benchmarks/cmd/overhead
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/overhead"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func main() {
	serve := flag.Bool("serve", false, "run the server; the command starts itself with this flag")
	peer := flag.String("peer", "all", "comma-separated: all, or names: "+strings.Join(peers.Names(), ", "))
	rounds := flag.Int("rounds", 151, "number of rounds; the result is their median")
	batch := flag.Duration("batch", 2*time.Millisecond, "time of each library in a round")
	added := flag.Bool("added", false, "only measure the CPU time that this library and a timeout alone add")
	cpu := flag.Bool("cpu", false, "only measure the CPU time of calls, in memory and over loopback")
	hosts := flag.Bool("hosts", false, "only measure calls to many hosts in turn")
	binary := flag.Bool("binary", false, "only measure the size that a library adds to a binary")
	write := flag.Bool("write", true, "write benchmarks/results/overhead.md if all peers are measured")
	flag.Parse()
	do := func() error { return run(*peer, *rounds, *batch, *write) }
	if *added {
		do = func() error { return writeAdded(os.Stdout, *rounds, *batch) }
	}
	if *cpu {
		do = func() error { return writeCPU(os.Stdout, *rounds) }
	}
	if *hosts {
		do = func() error { return writeHosts(os.Stdout, *rounds) }
	}
	if *binary {
		do = func() error { return writeSizes(os.Stdout) }
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
	libraries, err := peers.Named(peer)
	if err != nil {
		return err
	}
	bare, err := peers.Named("bare")
	if err != nil {
		return err
	}
	libraries = slices.Concat(bare, slices.DeleteFunc(libraries, func(p peers.Peer) bool { return p.Name == "bare" }))
	url, stop, err := overhead.StartServer("-serve")
	if err != nil {
		return err
	}
	defer stop()
	config := overhead.Config{Peers: libraries, Rounds: rounds, Batch: batch}
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
	text := section(libraries, results)
	var floor strings.Builder
	if err := writeAdded(&floor, rounds, 5*batch); err != nil {
		return err
	}
	text += "\n## CPU time of a call\n\nIn memory, compared with the minimum for a timeout per attempt: context.WithTimeout and a body\n" +
		"that cancels it. `-added` measures only this.\n\n" + floor.String()
	var sizes strings.Builder
	if err := writeSizes(&sizes); err != nil {
		return err
	}
	text += "\n## Size of a binary\n\nA program that sends one GET. `-binary` measures only this.\n\n" + sizes.String()
	_, _ = fmt.Fprintln(os.Stdout, text)
	if !write || peer != "all" {
		return nil
	}
	root, err := report.Root()
	if err != nil {
		return err
	}
	return report.WriteResults(root, "overhead", "go run ./benchmarks/cmd/overhead", text)
}

// writeAdded writes a table of the CPU time added to a bare client's call.
func writeAdded(w io.Writer, rounds int, batch time.Duration) error {
	table := report.NewTable("CPU time", "bare", "added by a timeout", "added by resilienthttp", "ratio")
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

// writeCPU writes tables of the CPU time of whole calls with a context that can be canceled.
func writeCPU(w io.Writer, rounds int) error {
	url, stop, err := overhead.StartServer("-serve")
	if err != nil {
		return err
	}
	defer stop()
	const inMemory, overLoopback = 3000, 500
	memory := report.NewTable("CPU time, in memory", "timeout", "resilienthttp", "ratio", "with a quota", "ratio to none")
	for _, r := range overhead.MeasureCPU(rounds, inMemory) {
		memory.Row(r.Load.Name, r.Floor.String(), r.Ours.String(), twoDigits(r.OfFloor()), r.Quotas.String(), twoDigits(r.OfQuotas()))
	}
	loopback := report.NewTable("CPU time, loopback", "bare", "timeout", "resilienthttp", "ratio to bare")
	for _, r := range overhead.MeasureLoopbackCPU(url, rounds, overLoopback) {
		loopback.Row(r.Load.Name, r.Bare.String(), r.Floor.String(), r.Ours.String(), twoDigits(r.OfBare()))
	}
	_, err = fmt.Fprintf(w, "%s\n%s\n", memory, loopback)
	return err
}

// writeHosts writes a table of the cost of calls to many hosts.
func writeHosts(w io.Writer, rounds int) error {
	const calls = 5000
	table := report.NewTable("hosts in turn", "CPU time added to a call", "ratio to one host", "bytes a host")
	for _, r := range overhead.MeasureHosts(rounds, calls, 0, []int{1, 1000, 5000, 10_000, 20_000, 40_000}) {
		table.Row(strconv.Itoa(r.Hosts), r.Added.String(), twoDigits(r.Ratio), strconv.Itoa(r.Bytes))
	}
	_, err := fmt.Fprintln(w, table)
	return err
}

func twoDigits(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

// writeSizes writes a table of the sizes of binaries.
func writeSizes(w io.Writer) error {
	table := report.NewTable("binary", "MB", "added to net/http, MB")
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

func section(libraries []peers.Peer, results map[string][]overhead.Row) string {
	var text strings.Builder
	fmt.Fprintf(&text, `# Overhead of a request that succeeds at once

Machine: %s.

- Times are ratios to a bare http.Client in the same round: the median of all rounds ± half of the interquartile range. A large
  range means that the machine was busy.
- *Parallel* means 16 goroutines on one client.
- *Loopback*: the server is another process, with keep-alive connections. A real network makes all ratios smaller.
- *In memory*: the base RoundTripper reads the body without a copy. A high ratio for 1 MiB means that the library copies the body.
- Bytes and allocations are added to those of a bare client, per request.

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
		for i, p := range libraries {
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
	for i, p := range libraries {
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

// ratio is a median ± half of the interquartile range.
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
