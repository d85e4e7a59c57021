package fleet

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ask makes the first attempt of a call to the path.
func ask(t *testing.T, s *server, id int, path string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(withCall(t.Context(), &Call{id: id}), 5*time.Second)
	defer cancel()
	return get(ctx, s, path)
}

func TestFault_responses(t *testing.T) {
	for _, row := range []struct {
		name    string
		timeout time.Duration
		fault   Fault
		status  int
		err     error
		after   string // Retry-After
		least   time.Duration
		most    time.Duration
	}{
		{name: "a status", fault: Fault{Response: Response{Status: 500}}, status: 500},
		{name: "a status after the work", fault: Fault{Response: Response{Status: 500}, Worked: true}, status: 500, least: defaultService, most: defaultService},
		{name: "a status with Retry-After", fault: Fault{Response: Response{Status: 503, RetryAfter: 7}}, status: 503, after: "7"},
		{name: "a refused connection", fault: Fault{Response: Response{Err: ErrRefused}}, err: syscall.ECONNREFUSED},
		{name: "a reset", fault: Fault{Response: Response{Err: ErrReset}}, err: syscall.ECONNRESET},
		{name: "slow", fault: Fault{Response: Response{Status: 200, After: 300 * time.Millisecond}}, status: 200, least: 300 * time.Millisecond, most: 300 * time.Millisecond},
		{name: "slow, by chance", fault: Fault{Response: Response{Status: 200, After: 100 * time.Millisecond, Until: 400 * time.Millisecond}}, status: 200, least: 100 * time.Millisecond, most: 400 * time.Millisecond},
		{name: "slower than the timeout", fault: Fault{Response: Response{Status: 200, After: time.Second}}, err: timeoutError{}, least: defaultTimeout, most: defaultTimeout},
		{name: "slow without a timeout", timeout: -1, fault: Fault{Response: Response{Status: 200, After: time.Second}}, status: 200, least: time.Second, most: time.Second},
		{name: "hangs until the timeout of the attempt", fault: Fault{Response: Response{Hang: true}}, err: timeoutError{}, least: defaultTimeout, most: defaultTimeout},
		{name: "hangs until the deadline of the call", timeout: -1, fault: Fault{Response: Response{Hang: true}}, err: context.DeadlineExceeded, least: 5 * time.Second, most: 5 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, Scenario{During: time.Minute, Server: Server{AttemptTimeout: row.timeout, Faults: []Fault{row.fault}}}, func(t *testing.T, s *server) {
				r := ask(t, s, 1, "/")
				require.Equal(t, row.status, r.status)
				require.Equal(t, row.after, r.header.Get("Retry-After"))
				require.GreaterOrEqual(t, r.took, row.least)
				require.LessOrEqual(t, r.took, row.most)
				require.ErrorIs(t, r.err, row.err)
			})
		})
	}
}

func TestFault_matches(t *testing.T) {
	bad := Response{Status: 500}
	for _, row := range []struct {
		name  string
		fault Fault
		want  float64 // ratio of the calls
	}{
		{"all", Fault{Response: bad}, 1},
		{"a share", Fault{Share: 0.2, Response: bad}, 0.2},
		{"a path", Fault{Path: "/even", Response: bad}, 0.5},
		{"some backends", Fault{Backends: []int{0, 5, 9}, Response: bad}, 0.3},
		{"a share of a path", Fault{Path: "/even", Share: 0.5, Response: bad}, 0.25},
		{"some times", Fault{Times: 20, Response: bad}, 0.01},
		{"another time", Fault{From: time.Hour, To: 2 * time.Hour, Response: bad}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, Scenario{During: time.Minute, Server: Server{Workers: -1, Backends: 10, Faults: []Fault{row.fault}}}, func(t *testing.T, s *server) {
				const n = 2000
				failed := 0
				for id := range n {
					path := "/odd"
					if id%2 == 0 {
						path = "/even"
					}
					if ask(t, s, id, path).status == 500 {
						failed++
					}
				}
				require.InDelta(t, row.want*n, failed, 90, "four standard deviations")
			})
		})
	}
}

// A fault has a period, or the scenario's During.
func TestFault_periods(t *testing.T) {
	s := Scenario{Before: 10 * time.Second, During: 10 * time.Second, After: 10 * time.Second, Server: Server{Workers: -1, Faults: []Fault{
		{Response: Response{Status: 500}},
		{From: 25 * time.Second, To: 26 * time.Second, Response: Response{Err: ErrRefused}},
	}}}
	inBubble(t, s, func(t *testing.T, s *server) {
		var bad []int
		for second := range 30 {
			if r := ask(t, s, second, "/"); r.status == 500 || errors.Is(r.err, syscall.ECONNREFUSED) {
				bad = append(bad, second)
			}
			<-time.After(time.Until(Epoch().Add(time.Duration(second+1) * time.Second)))
		}
		require.Equal(t, []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 25}, bad)
	})
}

// The second attempt of a call gets other random values than the first, and the same values
// as the second attempt of another client.
func TestFault_dependsOnCallAndAttempt(t *testing.T) {
	outcome := func() (statuses []int) {
		inBubble(t, Scenario{During: time.Minute, Server: Server{Workers: -1, Faults: []Fault{{Share: 0.5, Response: Response{Status: 500}}}}}, func(t *testing.T, s *server) {
			c := &Call{id: 3}
			for range 40 {
				resp, err := s.RoundTrip(request(withCall(t.Context(), c), http.MethodGet, "/"))
				require.NoError(t, err)
				statuses = append(statuses, resp.StatusCode)
			}
		})
		return statuses
	}
	first := outcome()
	require.Contains(t, first, 200)
	require.Contains(t, first, 500)
	require.Equal(t, first, outcome())
}

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
		require.Equal(t, 25*time.Millisecond, get(t.Context(), s, "/").took)
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
					require.Equal(t, 200, get(t.Context(), s, "/").status)
				}
				require.InEpsilon(t, row.mean, time.Since(start)/requests, 0.08)
			})
		})
	}
}

func TestServer_networkDeliversAfterTimeouts(t *testing.T) {
	scenario := Scenario{During: time.Hour, Server: Server{Workers: 1, Service: time.Second, Network: time.Millisecond, AttemptTimeout: 100 * time.Millisecond}}
	inBubble(t, scenario, func(t *testing.T, s *server) {
		require.ErrorIs(t, get(t.Context(), s, "/").err, timeoutError{})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { require.ErrorIs(t, get(ctx, s, "/").err, context.Canceled) })
		time.Sleep(50 * time.Millisecond)
		cancel()
		group.Wait()
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, 2, s.taken.total(), "requests that the server has received")
	})
}
