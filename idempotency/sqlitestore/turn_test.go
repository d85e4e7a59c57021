package sqlitestore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

func TestTurnIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turn
		first := &ticket{}
		require.NoError(t, line.enter(t.Context(), first))
		var order []int
		for i := range 10 {
			go func() {
				k := &ticket{}
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
		first, second := &ticket{}, &ticket{}
		require.NoError(t, line.enter(t.Context(), first))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, line.enter(ctx, second), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))

		line.leave(second) // has no turn to give
		third := &ticket{}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, line.enter(ctx, third))
		line.leave(first)
		require.NoError(t, line.enter(t.Context(), &ticket{}), "nobody who left is waited for")
	})
}

func TestTurnAndTakeover(t *testing.T) {
	mine, other := idempotency.ID{Key: "mine"}, idempotency.ID{Key: "other"}
	synctest.Test(t, func(t *testing.T) {
		var line turn
		begin := &ticket{work: &mine}
		require.NoError(t, line.enter(t.Context(), begin))
		require.ErrorIs(t, line.enter(t.Context(), &ticket{over: &mine}), errWorking, "at once")

		// One who is in line when a transaction of the record gets its turn.
		next, over := &ticket{work: &other}, &ticket{over: &other}
		answers := make(chan string, 3)
		enter := func(name string, k *ticket) {
			go func() {
				if err := line.enter(t.Context(), k); err != nil {
					name += " " + err.Error()
				}
				answers <- name
			}()
			synctest.Wait()
		}
		enter("next", next)
		enter("over", over)
		enter("last", &ticket{})
		assert.Empty(t, answers)
		line.leave(begin)
		assert.ElementsMatch(t, []string{"next", "over " + errWorking.Error()}, []string{<-answers, <-answers})
		synctest.Wait()
		assert.Empty(t, answers)
		line.leave(next)
		assert.Equal(t, "last", <-answers)
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
	id := idempotency.ID{Key: "mine"}
	for i := range 8 {
		wait.Go(func() {
			for j := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*j)%97)*time.Microsecond)
				k := &ticket{}
				switch j % 3 {
				case 0:
					k.work = &id
				case 1:
					k.over = &id
				}
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
	assert.Empty(t, line.line)
}
