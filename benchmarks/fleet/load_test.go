package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedule(t *testing.T) {
	const minute = time.Minute
	for _, row := range []struct {
		name    string
		load    Load
		clients int // in the topology
		calls   float64
		within  float64
		check   func(t *testing.T, calls []*Call)
	}{
		{"a Poisson process", Load{Rate: 50}, 1, 3000, 220, nil},
		{"evenly", Load{Rate: 50, Even: true}, 1, 2999, 1, func(t *testing.T, calls []*Call) {
			t.Helper()
			require.Equal(t, 20*time.Millisecond, calls[1].at-calls[0].at)
		}},
		{"with a surge", Load{Rate: 50, Surges: []Surge{{From: 20 * time.Second, To: 30 * time.Second, Factor: 5}}}, 1, 5000, 300, nil},
		{"dealt to clients", Load{Rate: 50, Clients: 7}, 7, 3000, 220, func(t *testing.T, calls []*Call) {
			t.Helper()
			seen := map[int]bool{}
			for _, c := range calls {
				seen[c.client] = true
			}
			require.Len(t, seen, 7)
		}},
		{"each client in turn", Load{Every: 10 * time.Second, Clients: 20}, 20, 120, 0, func(t *testing.T, calls []*Call) {
			t.Helper()
			last := map[int]time.Duration{}
			for _, c := range calls {
				if at, ok := last[c.client]; ok {
					require.Equal(t, 10*time.Second, c.at-at)
				}
				last[c.client] = c.at
			}
		}},
		{"each in the same stretch", Load{Every: 30 * time.Second, Spread: time.Second, Clients: 20}, 20, 40, 0, func(t *testing.T, calls []*Call) {
			t.Helper()
			for _, c := range calls {
				require.Less(t, c.at%(30*time.Second), time.Second)
			}
		}},
		{"in bursts of a new client", Load{Burst: 5, Every: 20 * time.Second}, 3, 15, 0, func(t *testing.T, calls []*Call) {
			t.Helper()
			for i, c := range calls {
				require.Equal(t, i/5, c.client)
				require.Equal(t, time.Duration(i/5)*20*time.Second, c.at)
			}
		}},
		{"by workers", Load{Workers: 5}, 1, 0, 0, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			calls := Scenario{During: minute, Load: row.load}.schedule(Seed, row.clients)
			require.InDelta(t, row.calls, len(calls), row.within)
			for i, c := range calls {
				require.Equal(t, i, c.id)
				require.True(t, i == 0 || c.at >= calls[i-1].at)
			}
			if row.check != nil {
				row.check(t, calls)
			}
		})
	}
}

// Paths and bare clients do not change the arrivals.
func TestAssign_keepsTheArrivals(t *testing.T) {
	plain := Scenario{During: time.Minute, Load: Load{Rate: 50}}
	dressed := plain
	dressed.Load.Paths, dressed.Load.Bare = []Part{{"/export", 0.3}, {"/charge", 0.5}}, 0.1
	count := map[string]int{}
	bare := 0
	before := plain.schedule(Seed, 1)
	for i, c := range dressed.schedule(Seed, 1) {
		require.Equal(t, before[i].at, c.at)
		count[c.path]++
		if c.client < 0 {
			bare++
		}
	}
	n := float64(len(before))
	require.InDelta(t, 0.3*n, count["/export"], 100)
	require.InDelta(t, 0.5*n, count["/charge"], 110)
	require.InDelta(t, 0.2*n, count["/"], 90)
	require.InDelta(t, 0.1*n, bare, 66)
}

func TestClientsIn(t *testing.T) {
	for _, row := range []struct {
		name        string
		load        Load
		shared, own int
	}{
		{"the fleet", Load{}, 1, Clients},
		{"so many", Load{Clients: 5}, 1, 5},
		{"workers", Load{Workers: 8}, 1, 8},
		{"bursts", Load{Burst: 60, Every: time.Second}, 10, 600},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := Scenario{During: 10 * time.Second, Load: row.load}
			require.Equal(t, row.shared, s.clientsIn(Shared))
			require.Equal(t, row.own, s.clientsIn(Own))
		})
	}
}
