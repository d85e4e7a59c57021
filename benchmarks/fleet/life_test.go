package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// lifePeers are the columns of the comparison.
func lifePeers() []string {
	return slices.Concat([]string{"bare"}, peers.Defaults(), []string{peers.Ours})
}

// lifeTable is the comparison in README.md: how many of 1,000 calls failed, and the requests that the server got. The fewest
// failures are bold, whichever library has them.
func lifeTable(results map[string]Result) string {
	table := report.NewTable(slices.Concat([]string{"of 1,000 calls fail"}, lifePeers(), []string{"requests: ours, others"})...)
	for _, s := range life() {
		var failed, sent []int
		for _, peer := range lifePeers() {
			r := results[s.Name+"/"+peer]
			failed, sent = append(failed, perThousand(r.Offered-r.Succeeded, r)), append(sent, perThousand(r.Attempts, r))
		}
		row := []string{s.Note}
		for _, n := range failed {
			cell := strconv.Itoa(n)
			if n == slices.Min(failed) {
				cell = "**" + cell + "**"
			}
			row = append(row, cell)
		}
		ours, others := sent[len(sent)-1], sent[:len(sent)-1]
		table.Row(append(row, fmt.Sprintf("%d, up to %d", ours, slices.Max(others)))...)
	}
	return strings.TrimSpace(table.String())
}

func perThousand(n int, r Result) int { return (1000*n + r.Offered/2) / r.Offered }

// README.md compares the libraries by these runs. Waits are random, so two runs differ a little: a figure may be off by 5 of
// 1,000 calls, or by 3 %. UPDATE_DOCS=1 writes the table.
func TestLife_isInReadme(t *testing.T) {
	results := map[string]Result{}
	for _, s := range life() {
		for _, name := range lifePeers() {
			found, err := peers.Named(name)
			require.NoError(t, err)
			results[s.Name+"/"+name] = Run(t, Config{Scenario: s, Peer: found[0], Topology: Shared, Seed: Seed})
		}
	}
	root, err := report.Root()
	require.NoError(t, err)
	want := lifeTable(results)
	got := overviewIn(t, "README.md", want)
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), fmt.Sprintf("Two minutes, %g calls a second through one client, deadline %v s", life()[0].Load.Rate, life()[0].Load.Deadline.Seconds()))
	require.Equal(t, 2*time.Minute, life()[0].Length())

	figure := regexp.MustCompile(`\d+`)
	wanted, shown := strings.Split(want, "\n"), strings.Split(got, "\n")
	require.Len(t, shown, len(wanted), "run the test with UPDATE_DOCS=1")
	for i, line := range wanted {
		name, _, _ := strings.Cut(strings.Trim(line, "| "), " | ")
		require.True(t, strings.HasPrefix(shown[i], "| "+name+" |") || i == 1, "run the test with UPDATE_DOCS=1; want\n%s", line)
		measured, printed := figure.FindAllString(line, -1), figure.FindAllString(shown[i], -1)
		require.Len(t, printed, len(measured), line)
		for j := range measured {
			a, _ := strconv.ParseFloat(measured[j], 64)
			b, _ := strconv.ParseFloat(printed[j], 64)
			require.InDelta(t, a, b, max(5, 0.03*a), "README.md has\n%s\nmeasured\n%s", shown[i], line)
		}
	}
}
