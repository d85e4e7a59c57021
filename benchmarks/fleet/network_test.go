package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each request that is in the server makes the next one slower.
func TestServer_perRequest(t *testing.T) {
	scenario := Scenario{During: time.Minute, Server: Server{Workers: -1, Service: time.Second, PerRequest: 10 * time.Millisecond, AttemptTimeout: -1}}
	inBubble(t, scenario, func(t *testing.T, s *server) {
		for range 2 {
			for i, r := range crowd(t.Context(), s, 3) {
				require.Equal(t, time.Second+time.Duration(i+1)*10*time.Millisecond, r.took)
			}
			time.Sleep(time.Millisecond) // until the last one has left
		}
	})
}

// A request has the service time of the period in which it arrives, though it starts later.
func TestServer_paces(t *testing.T) {
	scenario := Scenario{During: time.Minute, Server: Server{
		Workers: 1, Service: 25 * time.Millisecond, AttemptTimeout: -1, Paces: []Pace{{0, time.Millisecond, 100 * time.Millisecond}},
	}}
	inBubble(t, scenario, func(t *testing.T, s *server) {
		replies := crowd(t.Context(), s, 2)
		require.Equal(t, 100*time.Millisecond, replies[0].took)
		require.Equal(t, 200*time.Millisecond, replies[1].took)
		require.Equal(t, 25*time.Millisecond, get(t.Context(), s).took)
	})
}

// The means of exponential delays. The server works though its client has left.
func TestServer_exponentialTimes(t *testing.T) {
	for _, row := range []struct {
		name   string
		server Server
		mean   time.Duration
	}{
		{"service time", Server{Workers: 1, Service: 50 * time.Millisecond, Exponential: true}, 50 * time.Millisecond},
		{"network: both ways", Server{Workers: -1, Service: time.Nanosecond, Network: 100 * time.Millisecond}, 200 * time.Millisecond},
		{"network and queue", Server{Workers: 1, Service: 50 * time.Millisecond, Network: 100 * time.Millisecond}, 250 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.server.AttemptTimeout = -1
			inBubble(t, Scenario{During: time.Hour, Server: row.server}, func(t *testing.T, s *server) {
				const requests = 2000
				start := time.Now()
				for range requests {
					require.Equal(t, 200, get(t.Context(), s).status)
				}
				require.InEpsilon(t, row.mean, time.Since(start)/requests, 0.08)
			})
		})
	}
}

func TestServer_networkDeliversAfterTimeouts(t *testing.T) {
	scenario := Scenario{During: time.Hour, Server: Server{Workers: 1, Service: time.Second, Network: time.Millisecond, AttemptTimeout: 100 * time.Millisecond}}
	inBubble(t, scenario, func(t *testing.T, s *server) {
		require.ErrorIs(t, get(t.Context(), s).err, timeoutError{})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { require.ErrorIs(t, get(ctx, s).err, context.Canceled) })
		time.Sleep(50 * time.Millisecond)
		cancel()
		group.Wait()
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, 2, s.taken.total(), "requests that the server has received")
	})
}
