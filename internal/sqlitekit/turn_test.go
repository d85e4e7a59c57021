package sqlitekit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTurnIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turn
		first := &Ticket{}
		require.NoError(t, line.enter(t.Context(), first))
		var order []int
		for i := range 10 {
			go func() {
				k := &Ticket{}
				assert.NoError(t, line.enter(t.Context(), k))
				order = append(order, i)
				line.leave(k)
			}()
			synctest.Wait()
		}
		line.leave(first)
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order)
	})
}

func TestTurnEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turn
		first, second := &Ticket{}, &Ticket{}
		require.NoError(t, line.enter(t.Context(), first))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, line.enter(ctx, second), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))

		line.leave(second) // has no turn to give
		third := &Ticket{}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, line.enter(ctx, third))
		line.leave(first)
		require.NoError(t, line.enter(t.Context(), &Ticket{}), "nobody who left is waited for")
	})
}

// TestTurnOfHolders: who Holds a lease goes before those who claim.
func TestTurnOfHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turn
		first := &Ticket{}
		require.NoError(t, line.enter(t.Context(), first))
		var order []string
		for _, k := range []struct {
			name  string
			Holds bool
		}{{"claim 1", false}, {"renewal 1", true}, {"claim 2", false}, {"renewal 2", true}} {
			go func() {
				place := &Ticket{Holds: k.Holds}
				assert.NoError(t, line.enter(t.Context(), place))
				order = append(order, k.name)
				line.leave(place)
			}()
			synctest.Wait()
		}
		line.leave(first)
		synctest.Wait()
		assert.Equal(t, []string{"renewal 1", "renewal 2", "claim 1", "claim 2"}, order)
	})
}

// TestTurnStress has many enter and leave, and give up at all moments: one at a
// time has the turn, and in the end nobody has it.
func TestTurnStress(t *testing.T) {
	var (
		line turn
		wait sync.WaitGroup
		held int // guarded by the turn
	)
	for i := range 8 {
		wait.Go(func() {
			for j := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*j)%97)*time.Microsecond)
				k := &Ticket{Holds: j%4 == 3}
				if line.enter(ctx, k) == nil {
					held++
					assert.Equal(t, 1, held)
					held--
					line.leave(k)
				}
				cancel()
			}
		})
	}
	wait.Wait()
	assert.Nil(t, line.holder)
	assert.Equal(t, 0, len(line.lines[0])+len(line.lines[1]))
}
