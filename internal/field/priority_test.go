package field_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

func TestParsePriority(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        int8
	}{
		{"nothing", "", field.Default},
		{"batch", "batch", field.Batch},
		{"critical", "critical", field.Critical},
		{"in capitals", "CRITICAL", field.Critical},
		{"blanks around it", " Batch\t", field.Batch},
		{"default by name", "default", field.Default},
		{"an unknown value", "urgent", field.Default},
		{"a number", "9", field.Default},
		{"two values", "critical, critical", field.Default},
		{"quoted", `"critical"`, field.Default},
		{"a Cyrillic letter", "crіtical", field.Default},
		{"a megabyte", strings.Repeat("critical", 1<<17), field.Default},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, field.ParsePriority(tt.value))
		})
	}
}

// FuzzParse checks that Parse returns one of the three priorities, and that Format reverses
// it.
func FuzzParsePriority(f *testing.F) {
	for _, s := range []string{"", "batch", "critical", " CRITICAL ", "default", "batch,critical", "\x00batch"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := field.ParsePriority(s)
		require.Contains(t, []int8{field.Batch, field.Default, field.Critical}, p)
		require.Equal(t, p, field.ParsePriority(field.FormatPriority(p)))
		if p != field.Default {
			require.True(t, strings.EqualFold(strings.TrimSpace(s), field.FormatPriority(p)))
		}
	})
}
