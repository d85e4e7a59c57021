package matrix

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// behavior.md has these results. The waits of its last table are random for some libraries. UPDATE_DOCS=1 writes the page.
func TestResults(t *testing.T) {
	root, err := report.Root()
	require.NoError(t, err)
	var text strings.Builder
	fmt.Fprint(&text, `# Behavior of each library

All tests run in virtual time. Bold results may surprise a caller.

The first table has the number of attempts. The caller sets no idempotency key. Bold means that the library retries a POST
without a key, so each attempt may be a separate write. resilienthttp generates a key. With `+"`Idempotency{Disabled: true}`"+`
it sends one attempt, except after a 429, which means that the server did no work.

`)
	libraries := slices.DeleteFunc(peers.All(), func(p peers.Peer) bool { return p.Name == peers.OursHedgedAt }) // behaves as the other hedged configuration
	var all []string
	for i, probes := range tables() {
		all = append(all, table(t, libraries, probes).String())
		fmt.Fprintln(&text, all[i])
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
	if os.Getenv("UPDATE_DOCS") == "1" {
		require.NoError(t, report.WriteResults(root, "behavior", "UPDATE_DOCS=1 go test ./benchmarks/matrix", text.String()))
	}
	page, err := os.ReadFile(filepath.Join(root, "benchmarks", "results", "behavior.md"))
	require.NoError(t, err)
	for _, shown := range []string{all[0], all[1], configured.String()} {
		require.Contains(t, string(page), shown, "run the test with UPDATE_DOCS=1")
	}
}

func table(t *testing.T, libraries []peers.Peer, probes []probe) *report.Table {
	t.Helper()
	heading := []string{"library"}
	for _, p := range probes {
		heading = append(heading, p.Name)
	}
	table := report.NewTextTable(heading...)
	for _, peer := range libraries {
		cells := []string{peer.Name}
		for _, p := range probes {
			cells = append(cells, p.ask(t, peer))
		}
		table.Row(cells...)
	}
	return table
}
