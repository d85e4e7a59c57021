package sqlitestore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// TestTurnAndJoinedWork: who claims what joined work is at is told so at once, from
// when that lines up until it has ended.
func TestTurnAndJoinedWork(t *testing.T) {
	mine, other := driver.ID{Key: "mine"}, driver.ID{Key: "other"}
	synctest.Test(t, func(t *testing.T) {
		s := &Store{kit: new(sqlitekit.DB)}
		first := &ticket{claims: &mine, joins: true}
		require.NoError(t, s.queue(t.Context(), first, time.Hour))
		require.ErrorIs(t, s.works.enter(&ticket{claims: &mine}), errWorking)
		require.ErrorIs(t, s.queue(t.Context(), &ticket{claims: &mine, joins: true}, time.Hour), errWorking)

		// One in line, who gives up, and one who gets the turn.
		for _, patience := range []time.Duration{time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			second := &ticket{claims: &other, joins: true}
			over := make(chan struct{})
			go func() {
				defer close(over)
				if s.queue(ctx, second, time.Hour) == nil {
					s.leave(second)
				}
			}()
			synctest.Wait()
			require.ErrorIs(t, s.works.enter(&ticket{claims: &other}), errWorking)
			if patience == time.Hour {
				s.leave(first)
			}
			<-over
			cancel()
		}
		assert.Empty(t, s.works.at)
		s.leave(first) // has no turn to give, and no work
		require.NoError(t, s.queue(t.Context(), &ticket{claims: &other}, time.Hour))
	})
}

// TestWorksStress has many enter and leave, and give up at all moments: one at a time
// has the turn, and in the end nobody is at work.
func TestWorksStress(t *testing.T) {
	var (
		s    = &Store{kit: new(sqlitekit.DB)}
		wait sync.WaitGroup
		held int // guarded by the turn
	)
	ids := []driver.ID{{Key: "mine"}, {Key: "other"}}
	for i := range 8 {
		wait.Go(func() {
			for j := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*j)%97)*time.Microsecond)
				k := &ticket{Ticket: sqlitekit.Ticket{Holds: j%4 == 3}}
				if !k.Holds {
					k.claims, k.joins = &ids[i%2], j%4 > 0
				}
				if s.queue(ctx, k, time.Hour) == nil {
					held++
					assert.Equal(t, 1, held)
					held--
					s.leave(k)
				}
				cancel()
			}
		})
	}
	wait.Wait()
	assert.Empty(t, s.works.at)
}
