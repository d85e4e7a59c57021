package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

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
	if os.Getenv("UPDATE_DOCS") == "1" {
		require.NoError(t, report.WriteSection(root, "README.md", overviewSection, want))
	}
	got, err := report.Section(root, "README.md", overviewSection)
	require.NoError(t, err)

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
