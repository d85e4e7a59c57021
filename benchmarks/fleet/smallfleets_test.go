package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The capacity is twice the load, and a third of it in a brownout. Each client has made two
// calls before the fault, or half of the clients none.
func TestSmallFleets_areAsDescribed(t *testing.T) {
	rows := map[int]int{}
	for _, s := range smallFleets() {
		t.Run(s.Name, func(t *testing.T) {
			rows[s.Row]++
			load := s.Load.perSecond()
			require.InDelta(t, 2*load, s.Server.capacity(), 0.001*load)
			for _, p := range s.Server.Staff {
				require.InDelta(t, load/3, s.Server.capacity()*float64(p.Workers)/float64(s.Server.workers()), 0.001*load)
			}
			require.Equal(t, 20*time.Second, s.During)
			require.GreaterOrEqual(t, s.During+s.After, time.Minute, "the minute is over")
			before := make([]int, s.Load.Clients)
			for _, c := range s.schedule(Seed, s.Load.Clients) {
				if c.at < s.Before {
					before[c.client]++
				}
			}
			byCalls := map[int]int{}
			for _, n := range before {
				byCalls[n]++
			}
			if strings.HasSuffix(s.Name, "-new") {
				require.InDelta(t, s.Load.Clients/2, byCalls[0], 0.1*float64(s.Load.Clients))
			} else {
				require.Equal(t, map[int]int{2: s.Load.Clients}, byCalls)
			}
		})
	}
	require.Equal(t, map[int]int{32: 12, 33: 6, 34: 6}, rows)
}

// The period includes its start and excludes its end.
func TestSuccessBetween(t *testing.T) {
	r := Result{calls: []*Call{
		{at: 0, success: true}, {at: 1, success: true}, {at: 2}, {at: 3}, {at: 4, success: true},
	}}
	require.InDelta(t, 1.0/3, r.successBetween(1, 4), 1e-9)
	require.InDelta(t, 1, r.successBetween(5, 9), 1e-9, "of no calls")
}

func TestBusiestSecond(t *testing.T) {
	require.InDelta(t, 7, busiestSecond(Result{Load: []int{3, 7, 5}}), 0)
	require.Zero(t, busiestSecond(Result{}))
}
