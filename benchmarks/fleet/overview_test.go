package fleet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
)

func TestOverview_isInPerformancePage(t *testing.T) {
	root, err := report.Root()
	require.NoError(t, err)
	want, err := Overview(root)
	require.NoError(t, err)
	got, err := report.Section(root, performancePage, overviewSection)
	require.NoError(t, err)
	require.Equal(t, want, got, "run: go run ./benchmarks/cmd/fleet -stored")
}

func TestBoldBest(t *testing.T) {
	for _, row := range []struct {
		name       string
		give, want []string // nil: an error
	}{
		{"ours", []string{"0.1", "0.2, x", "**0.3**"}, []string{"0.1", "0.2, x", "**0.3**"}},
		{"a peer", []string{"0.1", "0.4, x", "**0.3**"}, []string{"0.1", "**0.4**, x", "0.3"}},
		{"bare", []string{"0.7499", "0.2, x", "**0.7498**"}, []string{"**0.7499**", "0.2, x", "0.7498"}},
		{"equal ones", []string{"0.1", "1.0, x", "**1.0**"}, []string{"0.1", "**1.0**, x", "**1.0**"}},
		{"no figure", []string{"-", "1.0, x", "**1.0**"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := boldBest(row.give)
			require.Equal(t, row.want == nil, err != nil)
			require.Equal(t, row.want, got)
		})
	}
}

// The costs in docs/performance.md and README.md are written by hand.
func TestPerformancePage_hasTheMeasuredCosts(t *testing.T) {
	root, err := report.Root()
	require.NoError(t, err)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(text)
	}
	page := read("docs/performance.md")
	require.Regexp(t, `takes 1\.16 ± 0\.22 times as long`, read("README.md"))
	for cost, measured := range map[string][2]string{
		"1.16 ± 0.22 times a bare client": {"overhead", "| **resilienthttp** | 1.16 ± 0.22 |"},
		"2.2 times that of a timeout":     {"overhead", "| GET, scopes: 1 | 2.827µs | 1.916µs | 4.22µs | 2.20 |"},
		"+1.75 MB":                        {"overhead", "| resilienthttp | 10.29 | 1.75 |"},
		"5, 10 (a timeout alone: 6, 6)":   {"call-costs", "**10 allocations, 2112 B**"},
		"7 to 10 % of CPU time":           {"call-costs", "+7 to +10 %"},
		".50 to .68 of the throughput":    {"idempotency", "2,280 (**.68**)"},
		".85 to 1.18 of River's":          {"durable", "1.10–1.18"},
		"104 to 119 ns":                   {"admission", "104–119 ns"},
	} {
		require.Contains(t, page, cost)
		require.Contains(t, read("benchmarks/results/"+measured[0]+".md"), measured[1])
	}
}

func TestOverview_needsTheStoredRows(t *testing.T) {
	root := t.TempDir()
	_, err := Overview(root)
	require.Error(t, err)
	require.NoError(t, report.WriteResults(root, "scenarios", "", "\n| scenario | |\n|---|---|\n| other | x | shared |\n"))
	_, err = Overview(root)
	require.ErrorContains(t, err, "no row healthy, shared")
}
