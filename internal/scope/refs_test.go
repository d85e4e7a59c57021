package scope

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A value to which a record points is evicted after the others.
func TestRefs_heldValueIsEvictedLast(t *testing.T) {
	type value struct{ Refs }
	m := Map[string, value]{Max: 4, Keep: func(v *value) bool { return v.Held() }}
	held := m.Get("held")
	held.Acquire()
	held.Acquire()
	held.Release()
	require.True(t, held.Held())
	for i := range 20 {
		m.Get(strconv.Itoa(i))
	}
	require.Same(t, held, m.Peek("held"))
	held.Release()
	require.False(t, held.Held())
	for i := range 20 {
		m.Get(strconv.Itoa(i))
	}
	require.Nil(t, m.Peek("held"))
}
