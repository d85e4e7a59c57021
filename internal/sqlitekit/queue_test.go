package sqlitekit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func TestWriterQueue_order(t *testing.T) {
	type waiter struct {
		name       string
		holdsLease bool
	}
	for _, row := range []struct {
		name    string
		waiters []waiter
		want    []string
	}{
		{
			"claims only: first come, first served",
			[]waiter{{"1", false}, {"2", false}, {"3", false}, {"4", false}},
			[]string{"1", "2", "3", "4"},
		},
		{
			"claims and renewals: renewals first",
			[]waiter{{"claim 1", false}, {"renewal 1", true}, {"claim 2", false}, {"renewal 2", true}},
			[]string{"renewal 1", "renewal 2", "claim 1", "claim 2"},
		},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var queue writerQueue
			first := &Waiter{}
			require.NoError(t, queue.Enter(t.Context(), first, time.Hour))
			var order []string
			for _, each := range row.waiters {
				go func() {
					w := &Waiter{HoldsLease: each.holdsLease}
					assert.NoError(t, queue.Enter(t.Context(), w, time.Hour))
					order = append(order, each.name)
					queue.Leave(w)
				}()
				synctest.Wait()
			}
			queue.Leave(first)
			synctest.Wait()
			assert.Equal(t, row.want, order)
		})
	}
}

func TestWriterQueue_waitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue writerQueue
		first := &Waiter{}
		require.NoError(t, queue.Enter(t.Context(), first, 0), "a free queue grants at once")
		for _, row := range []struct {
			name             string
			context, timeout time.Duration
			want             error
		}{
			{"context: its error", time.Second, time.Hour, context.DeadlineExceeded},
			{"timeout: ErrLocked", time.Hour, time.Second, ErrLocked},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), row.context)
			began, w := time.Now(), &Waiter{}
			require.ErrorIs(t, queue.Enter(ctx, w, row.timeout), row.want, row.name)
			assert.Equal(t, time.Second, time.Since(began), row.name)
			cancel()
			queue.Leave(w) // does nothing
			require.ErrorIs(t, queue.Enter(t.Context(), &Waiter{}, 0), ErrLocked, "the first still writes")
		}
		queue.Leave(first)
		require.NoError(t, queue.Enter(t.Context(), &Waiter{}, 0), "waiters that left are forgotten")
	})
}
