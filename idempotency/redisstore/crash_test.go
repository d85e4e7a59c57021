package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// With appendfsync always, what was acknowledged before a SIGKILL of the server is there
// after its restart.
func TestStore_serverKilled(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	c := connect(t, server)
	s := redisstore.New(c, nil)
	for round := range 5 {
		require.Eventually(t, func() bool { return c.ConfigSet(t.Context(), "appendfsync", "always").Err() == nil }, time.Minute, time.Millisecond)
		var mu sync.Mutex
		held, done := map[string]driver.Lease{}, map[string]string{}
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for n := 0; ; n++ {
					key := fmt.Sprint(round, "-", worker, "-", n)
					reservation, err := s.Reserve(t.Context(), newClaim(key))
					if err != nil {
						return
					}
					lease := reservation.Record.Lease()
					mu.Lock()
					held[key] = lease
					mu.Unlock()
					if n%2 == 0 {
						continue
					}
					if s.Complete(t.Context(), lease, completed(key)) != nil {
						return
					}
					mu.Lock()
					done[key] = key
					mu.Unlock()
				}
			})
		}
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(done) > 100
		}, time.Minute, time.Millisecond)
		require.NoError(t, server.Crash())
		all.Wait()
		require.NoError(t, server.Restart(t.Context()))
		for key := range held {
			record, err := s.Load(t.Context(), newClaim(key).ID)
			for err != nil && !strings.Contains(err.Error(), "no such record") { // a connection of before
				record, err = s.Load(t.Context(), newClaim(key).ID)
			}
			require.NoError(t, err, key)
			require.Equal(t, held[key], record.Lease())
			if body, ok := done[key]; ok {
				require.Equal(t, driver.Completed, record.Status)
				require.Equal(t, body, string(record.Result.Body))
			}
		}
		t.Logf("%d claims and %d results survived", len(held), len(done))
	}
}

func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
