package quota

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

func (l *Limiter) freeSlots(scope string) int {
	s := l.Set(scope).slots
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.tokens)
}

// storeIf returns a new store, or nil.
func storeIf(shared bool) quotastore.Store {
	if shared {
		return &quotastore.Memory{}
	}
	return nil
}

// §4.26: a request takes its slot before its token of the fixed limit: tokens are not saved up while a
// slow server holds all slots. In any time T at most Burst + Limit × T.
func TestSlots_fixedLimit(t *testing.T) {
	for _, row := range []struct {
		name   string
		shared bool
		took   time.Duration // for 98 calls; a process asks the store only for the tokens of calls with a slot
	}{
		{"of this process", false, 11 * time.Second},
		{"of many processes", true, 22 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{Limit: 10, Burst: 2, MaxInFlight: 2, MaxWait: time.Hour, Shared: storeIf(row.shared)})
			s := newQuotaScript(t, l, faulttest.Sequence(late(20*time.Second, says(1000, 900, time.Minute)), late(20*time.Second, says(1000, 900, time.Minute)), says(1000, 900, time.Minute)))
			var calls sync.WaitGroup
			for range 100 {
				calls.Go(func() {
					_, refused := s.get(t, "/")
					assert.Nil(t, refused)
				})
			}
			calls.Wait()
			requests := s.Requests()
			require.Len(t, requests, 100)
			requireCeiling(t, 10, 2, time.Second/2, len(requests), func(i int) time.Time { return requests[i].ReceivedAt })
			require.Less(t, requests[99].ReceivedAt.Sub(requests[2].ReceivedAt), row.took, "and no slower than that")
		})
	}
}

// A call does not wait for a slot if calls that wait for tokens would make it too late.
func TestSlots_tokensTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 1, MaxInFlight: 2, MaxWait: 1500 * time.Millisecond})
		first, second, third := newExchange(t.Context(), l), newExchange(t.Context(), l), newExchange(t.Context(), l)
		require.Nil(t, first.enter())
		go func() { _ = second.enter() }()
		synctest.Wait()
		begun := time.Now()
		require.Equal(t, waitqueue.Rejection{Reason: waitqueue.MaxWaitExceeded, NotBefore: begun.Add(2 * time.Second)}, *third.enter())
		require.Zero(t, time.Since(begun))
	})
}

// When a slot is free is unknown, also if there are tokens.
func TestSlots_notBeforeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 10, MaxInFlight: 1, MaxWait: -1})
		require.Nil(t, newExchange(t.Context(), l).enter())
		require.Equal(t, waitqueue.Rejection{Reason: waitqueue.MaxWaitExceeded}, *newExchange(t.Context(), l).enter())
	})
}

// §4.26: a call that waits for the server's quota holds no slot: a call with another credential uses it.
func TestSlots_quotaOfAnother(t *testing.T) {
	for name, shared := range map[string]bool{"of this process": false, "of many processes": true} {
		bubble.Run(t, name, func(t *testing.T) {
			l := with(Config{MaxInFlight: 1, Shared: storeIf(shared)})
			first, second, other := newExchange(t.Context(), l), newExchange(t.Context(), l), newExchange(t.Context(), l)
			other.Credential = l.Hash("another")
			require.Nil(t, first.enter())
			first.shows(10, 0, 30)
			begun := time.Now()
			go func() {
				if second.enter() == nil {
					second.done()
				}
			}()
			synctest.Wait()
			require.Equal(t, 1, l.freeSlots(first.scope))
			require.Nil(t, other.enter())
			require.Less(t, time.Since(begun), time.Second)
			other.done()
			time.Sleep(time.Minute)
			require.Equal(t, 1, l.freeSlots(first.scope))
		})
	}
}
