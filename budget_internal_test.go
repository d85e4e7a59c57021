package resilienthttp

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/allowance"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// §4.18
func TestBudgetScopesAreBounded(t *testing.T) {
	now := time.Now()
	var b Budget
	for i := range 10_000 {
		key := scope.Key{Name: strconv.Itoa(i)}
		b.called(key, now)
		_, ok := b.admit(key, now, allowance.Ask{})
		require.True(t, ok)
		b.covers(key, now)
	}
	require.LessOrEqual(t, b.scopes.Len(), 4096)

	off := &Budget{Ratio: -1}
	off.called(scope.Key{Name: "h"}, now)
	_, ok := off.admit(scope.Key{Name: "h"}, now, allowance.Ask{})
	require.True(t, ok)
	require.True(t, off.covers(scope.Key{Name: "h"}, now), "there is no cap")
	require.Zero(t, off.scopes.Len(), "one that is off keeps nothing")
}
