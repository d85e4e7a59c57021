// Overhead measures what each library adds to a request that succeeds at once: see package
// overhead. It writes benchmarks/results/overhead.md.
//
//	go run ./benchmarks/cmd/overhead
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/overhead"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func main() {
	serve := flag.Bool("serve", false, "run the server; the command starts itself with this flag")
	rounds := flag.Int("rounds", 151, "number of rounds; the result is their median")
	added := flag.Bool("added", false, "only measure the CPU time that this library and a timeout alone add")
	cpu := flag.Bool("cpu", false, "only measure the CPU time of calls, in memory and over loopback")
	hosts := flag.Bool("hosts", false, "only measure calls to many hosts in turn")
	size := flag.Bool("size", false, "only build the programs, and print their sizes and the time that it takes to compile them")
	flag.Parse()
	var err error
	switch {
	case *size:
		err = saySizes()
	case *added:
		err = say(overhead.Added(*rounds, batch, scopes()...))
	case *cpu:
		err = sayCPU(*rounds)
	case *hosts:
		err = say(overhead.Hosts(*rounds, 5000, 0, 1, 1000, 5000, 10_000, 20_000, 40_000))
	case *serve:
		err = overhead.Serve()
	default:
		err = run(*rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// batch is the time of each library in a round.
const batch = 2 * time.Millisecond

func run(rounds int) error {
	libraries := peers.All() // the bare client is the first
	url, stop, err := overhead.StartServer("-serve")
	if err != nil {
		return err
	}
	defer stop()
	results := map[string][]overhead.Row{}
	for _, way := range []overhead.Way{overhead.InMemory(), overhead.Loopback(url)} {
		for _, parallel := range []bool{false, true} {
			way.Parallel = parallel
			for _, load := range overhead.Loads() {
				fmt.Fprintf(os.Stderr, "%s, parallel %v, %s\n", way.Name, parallel, load.Name)
				results[column(way, load)] = overhead.Measure(libraries, rounds, batch, load, way)
			}
		}
	}
	text := section(libraries, results)
	table, err := sizes()
	if err != nil {
		return err
	}
	text += "\n## CPU time of a call\n\nIn memory, compared with the minimum for a timeout per attempt: context.WithTimeout and a body\n" +
		"that cancels it. `-added` measures only this.\n\n" + overhead.Added(rounds, 5*batch, scopes()...).String() +
		"\n## Size of a binary\n\n" + aboutSizes + table.String()
	root, err := report.Root()
	if err != nil {
		return err
	}
	if err := say(text); err != nil {
		return err
	}
	return report.WriteResults(root, "overhead", "go run ./benchmarks/cmd/overhead", text)
}

func say(text any) error {
	_, err := fmt.Fprintln(os.Stdout, text)
	return err
}

// scopes are the numbers of scopes of the table of added times.
func scopes() []int { return []int{1, 1000} }

func sayCPU(rounds int) error {
	url, stop, err := overhead.StartServer("-serve")
	if err != nil {
		return err
	}
	defer stop()
	return errors.Join(say(overhead.MemoryCPU(rounds, 3000)), say(overhead.LoopbackCPU(url, rounds, 500)))
}

const aboutSizes = "A program that sends one GET, with its debug information. It is compiled with all its packages, those of the standard library\n" +
	"too (`go build -a`): the processor time of the commands, without the system's. `-size` measures only this.\n\n"

func saySizes() error {
	table, err := sizes()
	if err != nil {
		return err
	}
	return say(table)
}

// sizes is a table of the binaries.
func sizes() (*report.Table, error) {
	table := report.NewTable("binary", "MB", "added to net/http, MB", "compiled in, s", "ratio")
	var least int64
	var fastest time.Duration
	for _, p := range overhead.Programs() {
		size, err := p.Size(context.Background())
		if err != nil {
			return table, err
		}
		used, err := p.CompileTime(context.Background())
		if err != nil {
			return table, err
		}
		if p.Import == "" {
			least = size
			fastest = used
		}
		table.Row(p.Name, fmt.Sprintf("%.2f", float64(size)/1e6), fmt.Sprintf("%.2f", float64(size-least)/1e6),
			fmt.Sprintf("%.1f", used.Seconds()), fmt.Sprintf("%.2f", used.Seconds()/fastest.Seconds()))
	}
	return table, nil
}

func column(w overhead.Way, l overhead.Load) string {
	return fmt.Sprintf("%s %v %s", w.Name, w.Parallel, l.Name)
}

func section(libraries []peers.Peer, results map[string][]overhead.Row) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Machine: %s.\n\n", report.Machine())
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
