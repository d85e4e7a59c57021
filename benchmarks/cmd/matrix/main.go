// Matrix tests the behavior of each library: see package matrix. It writes
// benchmarks/results/behavior.md.
//
//	go run ./benchmarks/cmd/matrix
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/matrix"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func main() {
	write := flag.Bool("write", true, "write benchmarks/results/behavior.md")
	flag.Parse()
	// net/http logs that a RoundTripper returned both a response and an error.
	log.SetOutput(io.Discard) //nolint:forbidigo // a command may
	bubble.Main(func(t *testing.T) error {
		text := section(t)
		_, _ = fmt.Fprintln(os.Stdout, text)
		if !*write {
			return nil
		}
		root, err := report.Root()
		if err != nil {
			return err
		}
		return report.WriteResults(root, "behavior", "go run ./benchmarks/cmd/matrix", text)
	})
}

func section(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprint(&text, `# Behavior of each library

All tests run in virtual time. Bold results may surprise a caller.

The first table has the number of attempts. The caller sets no idempotency key. Bold means that the library retries a POST
without a key, so each attempt may be a separate write. resilienthttp generates a key. With `+"`Idempotency{Disabled: true}`"+`
it sends one attempt, except after a 429, which means that the server did no work.

`)
	libraries := slices.DeleteFunc(peers.All(), func(p peers.Peer) bool { return p.Name == peers.OursHedgedAt }) // behaves as the other hedged configuration
	tables := matrix.Tables()
	for i, probes := range tables {
		fmt.Fprintln(&text, table(t, libraries, probes))
		for _, p := range probes {
			if i > 0 {
				fmt.Fprintf(&text, "- *%s*: %s.\n", p.Name, p.Note)
			}
		}
		fmt.Fprintln(&text)
	}
	configured := report.NewTextTable("library", "configuration")
	for _, p := range peers.All() {
		configured.Row(p.Name, p.Note)
	}
	fmt.Fprintf(&text, "## Configurations\n\nThese configurations apply to all experiments.\n\n%s\n", configured)
	return text.String()
}

func table(t *testing.T, libraries []peers.Peer, probes []matrix.Probe) *report.Table {
	t.Helper()
	heading := []string{"library"}
	for _, p := range probes {
		heading = append(heading, p.Name)
	}
	table := report.NewTextTable(heading...)
	for _, peer := range libraries {
		cells := []string{peer.Name}
		for _, p := range probes {
			cells = append(cells, p.Ask(t, peer))
		}
		table.Row(cells...)
	}
	return table
}
