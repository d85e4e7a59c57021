package sqlitestore

import (
	"context"
	"errors"
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

// TestTurnOfHolders: who holds a lease goes before those who claim.
func TestTurnOfHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turn
		first := &ticket{}
		require.NoError(t, line.enter(t.Context(), first))
		var order []string
		for _, k := range []struct {
			name  string
			holds bool
		}{{"claim 1", false}, {"renewal 1", true}, {"claim 2", false}, {"renewal 2", true}} {
			go func() {
				place := &ticket{holds: k.holds}
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

// TestTurnAndJoinedWork: who claims what joined work is at is told so at once, from
// when that lines up until it has ended.
func TestTurnAndJoinedWork(t *testing.T) {
	mine, other := idempotency.ID{Key: "mine"}, idempotency.ID{Key: "other"}
	synctest.Test(t, func(t *testing.T) {
		var line turn
		working := func(id *idempotency.ID) bool {
			done, err := line.join(&ticket{claims: id})
			if !done {
				t.Error("it stands in line")
			}
			return errors.Is(err, errWorking)
		}
		first := &ticket{claims: &mine, joins: true}
		require.NoError(t, line.enter(t.Context(), first))
		assert.True(t, working(&mine))
		require.ErrorIs(t, line.enter(t.Context(), &ticket{claims: &mine, joins: true}), errWorking)

		// One in line, who gives up, and one who gets the turn.
		for _, patience := range []time.Duration{time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			second := &ticket{claims: &other, joins: true}
			over := make(chan struct{})
			go func() {
				defer close(over)
				if line.enter(ctx, second) == nil {
					line.leave(second)
				}
			}()
			synctest.Wait()
			assert.True(t, working(&other))
			if patience == time.Hour {
				line.leave(first)
			}
			<-over
			cancel()
		}
		assert.Empty(t, line.works)
		require.NoError(t, line.enter(t.Context(), &ticket{claims: &other}))
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
	ids := []idempotency.ID{{Key: "mine"}, {Key: "other"}}
	for i := range 8 {
		wait.Go(func() {
			for j := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*j)%97)*time.Microsecond)
				k := &ticket{holds: j%4 == 3}
				if !k.holds {
					k.claims, k.joins = &ids[i%2], j%4 > 0
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
	assert.Equal(t, 0, len(line.lines[0])+len(line.lines[1])+len(line.works))
}
