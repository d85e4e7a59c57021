package priority_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/priority"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        int8
	}{
		{"nothing", "", priority.Default},
		{"batch", "batch", priority.Batch},
		{"critical", "critical", priority.Critical},
		{"in capitals", "CRITICAL", priority.Critical},
		{"blanks around it", " Batch\t", priority.Batch},
		{"default by name", "default", priority.Default},
		{"an unknown value", "urgent", priority.Default},
		{"a number", "9", priority.Default},
		{"two values", "critical, critical", priority.Default},
		{"quoted", `"critical"`, priority.Default},
		{"a Cyrillic letter", "crіtical", priority.Default},
		{"a megabyte", strings.Repeat("critical", 1<<17), priority.Default},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, priority.Parse(tt.value))
		})
	}
}

// FuzzParse checks that Parse returns one of the three priorities, and that Format reverses
// it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "batch", "critical", " CRITICAL ", "default", "batch,critical", "\x00batch"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := priority.Parse(s)
		require.Contains(t, []int8{priority.Batch, priority.Default, priority.Critical}, p)
		require.Equal(t, p, priority.Parse(priority.Format(p)))
		if p != priority.Default {
			require.True(t, strings.EqualFold(strings.TrimSpace(s), priority.Format(p)))
		}
	})
}
