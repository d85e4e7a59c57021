package fleet

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// A third of the server at three times its capacity for four seconds, with each gate and
// without one.
func TestGates(t *testing.T) {
	run := func(scenario, peer string) Result {
		s, err := Named(scenario)
		require.NoError(t, err)
		libraries, err := peers.Named(peer)
		require.NoError(t, err)
		s[0] = s[0].scaledTo(6 * time.Second)
		s[0].Server.Workers, s[0].Server.Queue, s[0].Load.Rate = defaultWorkers/3, defaultQueue/3, Rate/3
		r := Run(t, Config{Scenario: s[0], Peer: libraries[0], Topology: Shared, Seed: Seed})
		t.Logf("goodput %.3f, critical %.3f, default %.3f, batch %.3f, attempts %.3f",
			r.CapacityUsed, successAt(critical)(r), successAt("/")(r), successAt(batch)(r), r.AttemptsPerCall())
		return r
	}
	for _, peer := range []string{peers.Ours, "bare"} {
		r := run("gate-shedder", peer)
		require.Greater(t, r.CapacityUsed, 0.9)
		require.Greater(t, successAt(critical)(r), 0.98, "the header has the priority")
		require.Less(t, successAt(batch)(r), successAt("/")(r))
		require.LessOrEqual(t, r.AttemptsPerCall(), 1.1)
	}
	require.Greater(t, run("gate-failsafe-priority", "bare").CapacityUsed, 0.5)
	require.Greater(t, run("gate-failsafe", "bare").CapacityUsed, 0.5)
	require.Less(t, run("gate-none", "bare").CapacityUsed, 0.5)
}

// An admitted request keeps its worker after its client has left. A rejected request counts
// as an attempt.
func TestThroughGate_keepsWorkersOfClientsThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(Scenario{Gate: gateShedder, Server: Server{Workers: 1, Service: time.Second}}, time.Now(), Seed)
		s.open()
		answered := make(chan error)
		ctx, leave := context.WithCancel(t.Context())
		ask := func(ctx context.Context) {
			_, err := s.RoundTrip(request(ctx, http.MethodGet, "/"))
			answered <- err
		}
		go ask(ctx)
		go ask(t.Context())
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-answered, context.Canceled)
		require.Equal(t, timeoutError{}, <-answered)
		s.pool.mu.Lock()
		require.Equal(t, 1, s.pool.busy)
		require.Len(t, s.pool.queue, 1, "though both have left")
		s.pool.mu.Unlock()
		require.Equal(t, 2, s.load.total())
		s.gate.close()
	})
}
