package scope

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefs_heldUntilLastRelease(t *testing.T) {
	var r Refs
	require.False(t, r.Held(), "no record")
	r.Acquire()
	r.Acquire()
	r.Release()
	require.True(t, r.Held(), "one of two records")
	r.Release()
	require.False(t, r.Held(), "all released")
}

func TestRefs_concurrentRecords(t *testing.T) {
	var r Refs
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 1000 {
				r.Acquire()
				if !r.Held() {
					t.Error("not held by this record")
				}
				r.Release()
			}
		})
	}
	wg.Wait()
	require.False(t, r.Held())
}
