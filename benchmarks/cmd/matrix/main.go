// Matrix asks each library how it behaves: see package matrix. It rewrites its
// section of docs/performance.md.
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
	write := flag.Bool("write", true, "rewrite the section of docs/performance.md")
	flag.Parse()
	// net/http logs that a RoundTripper returned both a response and an error.
	log.SetOutput(io.Discard) //nolint:forbidigo // a command may
	bubble.Main(func(t *testing.T) error {
		text := section(t)
		_, _ = fmt.Fprintln(os.Stdout, text)
		if !*write {
			return nil
		}
		docs, err := report.Docs()
		if err != nil {
			return err
		}
		return report.Write(docs, "matrix", text)
	})
}

func section(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprint(&text, `## How each library behaves

Found out by `+"`go run ./benchmarks/cmd/matrix`"+`, which asks each of them in
virtual time. What is printed in bold may surprise its caller.

The first table counts attempts. The POST bears no key but the one that a library
gives it: in bold it is repeated without one, so that each attempt may be a write
of its own. Ours generates a key; with `+"`Idempotency{Disabled: true}`"+` it makes one
attempt but at the 429, which says that nothing was done.

`)
	who := slices.DeleteFunc(peers.All(), func(p peers.Peer) bool { return p.Name == peers.OursHedgedAt }) // as the other hedged one
	tables := matrix.Tables()
	for i, probes := range tables {
		fmt.Fprintln(&text, table(t, who, probes))
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
	fmt.Fprintf(&text, "The libraries are configured so, here and in all experiments:\n\n%s\n", configured)
	return text.String()
}

func table(t *testing.T, who []peers.Peer, probes []matrix.Probe) *report.Table {
	t.Helper()
	heading := []string{"library"}
	for _, p := range probes {
		heading = append(heading, p.Name)
	}
	table := report.NewTextTable(heading...)
	for _, peer := range who {
		cells := []string{peer.Name}
		for _, p := range probes {
			cells = append(cells, p.Ask(t, peer))
		}
		table.Row(cells...)
	}
	return table
}
