package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
)

func TestOverview_isInPerformancePage(t *testing.T) {
	root, err := report.Root()
	require.NoError(t, err)
	want, err := Overview(root)
	require.NoError(t, err)
	got, err := report.Section(root, overviewSection)
	require.NoError(t, err)
	require.Equal(t, want, got, "run: go run ./benchmarks/cmd/fleet -stored")
}

func TestOverview_needsTheStoredRows(t *testing.T) {
	root := t.TempDir()
	_, err := Overview(root)
	require.Error(t, err)
	require.NoError(t, report.WriteResults(root, "scenarios", "", "\n| scenario | |\n|---|---|\n| other | x | shared |\n"))
	_, err = Overview(root)
	require.ErrorContains(t, err, "no row healthy, shared")
}
