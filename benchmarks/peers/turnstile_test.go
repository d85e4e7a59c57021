package peers

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTurnstile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stile turnstile
		var group sync.WaitGroup
		inside, served := 0, 0
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond+time.Microsecond)
		defer cancel()
		for range 100 {
			group.Go(func() {
				if stile.enter(ctx) != nil {

					return
				}
				defer stile.leave()
				inside++
				require.Equal(t, 1, inside)
				<-time.After(10 * time.Millisecond)
				inside--
				served++
			})
			synctest.Wait()
		}
		group.Wait()
		require.Equal(t, 6, served)
		require.False(t, stile.busy)
		require.Empty(t, stile.waiting)
		require.NoError(t, stile.enter(t.Context()), "ready for the next")
	})
}
