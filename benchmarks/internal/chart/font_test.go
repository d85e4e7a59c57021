package chart

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/plotter"
)

// Lines differ without colours, too.
func TestMarkers_differ(t *testing.T) {
	seen := map[string]bool{}
	for i := 2; i < len(markers); i++ {
		look := fmt.Sprintf("%#v", markers[i])
		require.False(t, seen[look], look)
		seen[look] = true
		require.NotEmpty(t, marked(make(plotter.XYs, 3), i))
	}
}
