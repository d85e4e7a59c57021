package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// listening is a Store with the listener listen.
type listening struct {
	durable.Store

	calls  atomic.Int64
	listen func(ctx context.Context, call int64, wake func()) error
}

func (l *listening) Listen(ctx context.Context, wake func()) error {
	return l.listen(ctx, l.calls.Add(1), wake)
}

var errCut = errors.New("the connection is cut")

// TestRun_listens counts the calls of Listen and the reports of failures in two minutes.
func TestRun_listens(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name            string
		listen          func(ctx context.Context, call int64, wake func()) error
		calls, failures [2]int64 // at least and at most
	}{
		{"it goes on: one call", func(ctx context.Context, _ int64, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		}, [2]int64{1, 1}, [2]int64{}},
		{"it fails at once: the waits grow to a minute", func(context.Context, int64, func()) error {
			return errCut
		}, [2]int64{8, 10}, [2]int64{8, 10}},
		{"it fails after 70 s: a short wait", func(ctx context.Context, _ int64, _ func()) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(70 * time.Second):
				return errCut
			}
		}, [2]int64{2, 2}, [2]int64{1, 1}},
		{"it is not supported: no second call", func(context.Context, int64, func()) error {
			return fmt.Errorf("a pooler: %w", errors.ErrUnsupported)
		}, [2]int64{1, 1}, [2]int64{1, 1}},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			store := &listening{Store: new(durable.Memory), listen: row.listen}
			failures := int64(0)
			e := through(gatewayFunc(nil))
			e.Store, e.Trace = store, &durable.Trace{Failed: func(error) { failures++ }}
			runFor(t, e, 2*time.Minute) // D10: nothing of it is left, or synctest fails
			assert.GreaterOrEqual(t, store.calls.Load(), row.calls[0])
			assert.LessOrEqual(t, store.calls.Load(), row.calls[1])
			assert.GreaterOrEqual(t, failures, row.failures[0])
			assert.LessOrEqual(t, failures, row.failures[1])
		})
	}
}

// TestRun_claimsWhenTheListenerWakes has an Engine that would poll an hour later.
func TestRun_claimsWhenTheListenerWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		committed := make(chan struct{})
		store := &listening{Store: new(durable.Memory), listen: func(ctx context.Context, _ int64, wake func()) error {
			<-committed
			wake()
			<-ctx.Done()
			return ctx.Err()
		}}
		succeeds := succeeds
		e, other := through(succeeds), through(succeeds)
		e.Store, other.Store, e.PollInterval = store, store, time.Hour
		running(t, e)
		synctest.Wait()
		enqueue(t, other, pay("a", "1"))
		synctest.Wait()
		assertState(t, e, pay("a", "1").ID, durable.StatePending)
		close(committed)
		synctest.Wait()
		assertState(t, e, pay("a", "1").ID, durable.StateDone)
	})
}
