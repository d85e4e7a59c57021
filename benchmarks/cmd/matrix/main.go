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
virtual time. What is printed in bold may surprise its caller. How they are
configured is said in the last table.

`)
	const attempts, answers = 8, 14 // the first probes of the second and the third table
	probes := matrix.Probes()
	for _, some := range [][]matrix.Probe{probes[:attempts], probes[attempts:answers], probes[answers:]} {
		heading := []string{"library"}
		for _, p := range some {
			heading = append(heading, p.Name)
		}
		table := report.NewTextTable(heading...)
		for _, peer := range peers.All() {
			cells := []string{peer.Name}
			for _, p := range some {
				cells = append(cells, p.Ask(t, peer))
			}
			table.Row(cells...)
		}
		fmt.Fprintln(&text, table)
	}
	fmt.Fprint(&text, "The first table counts attempts; a POST bears no key but the one that a library gives it.\nThe other questions are:\n\n")
	for _, p := range probes[attempts:] {
		fmt.Fprintf(&text, "- *%s*: %s.\n", p.Name, p.Note)
	}
	table := report.NewTextTable("library", "configuration")
	for _, peer := range peers.All() {
		table.Row(peer.Name, peer.Note)
	}
	fmt.Fprintf(&text, "\n%s\n", table)
	return text.String()
}
