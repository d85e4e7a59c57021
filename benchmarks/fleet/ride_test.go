package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Each mean has cells of all kinds, rates and numbers of clients, in the sample too.
func TestRide_groupsHaveAllCells(t *testing.T) {
	for name, tt := range map[string]struct {
		cells                []Scenario
		kinds, rates, fleets int
	}{"all": {ride(), 3, 4, 3}, "the sample": {quickRide(), 2, 3, 2}} {
		t.Run(name, func(t *testing.T) {
			kinds, rates, fleets := map[string]map[any]bool{}, map[string]map[any]bool{}, map[string]map[any]bool{}
			add := func(to map[string]map[any]bool, group string, value any) {
				if to[group] == nil {
					to[group] = map[any]bool{}
				}
				to[group][value] = true
			}
			for _, s := range tt.cells {
				group := s.rideGroups()[0]
				if group == "" {
					continue
				}
				kind, _, _ := strings.Cut(s.Note, " ")
				add(kinds, group, kind)
				add(rates, group, s.Load.Rate)
				add(fleets, group, s.Load.Clients)
			}
			require.Len(t, kinds, 4*5, "deadlines and outages")
			for group := range kinds {
				require.GreaterOrEqual(t, len(kinds[group]), tt.kinds, group)
				require.GreaterOrEqual(t, len(rates[group]), tt.rates, group)
				require.GreaterOrEqual(t, len(fleets[group]), tt.fleets, group)
			}
		})
	}
}

func TestRideWant(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		deadline, outage time.Duration
		want             float64
	}{
		{2 * s, s, 0.85}, {2 * s, 4 * s, 0.425}, {10 * s, 4 * s, 0.98}, {-1, 8 * s, 0.95}, {30 * s, 20 * s, 0.90}, {10 * s, 20 * s, 0}, {-1, 20 * s, 0},
	} {
		require.InDelta(t, tt.want, rideWant(tt.deadline, tt.outage), 1e-9, "%v", tt)
	}
}

func TestBackAfterOutage(t *testing.T) {
	const ms = time.Millisecond
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	usual, held := &Call{at: at(1), latency: 20 * ms, success: true}, &Call{at: at(11), latency: 3 * time.Second, success: true}
	for name, tt := range map[string]struct {
		calls []*Call
		want  float64
	}{
		"all as before: at once":                              {[]*Call{usual, {at: at(12.5), latency: 119 * ms, success: true}}, 0},
		"slow calls after the outage: their last second":      {[]*Call{usual, {at: at(12.5), latency: 200 * ms, success: true}, {at: at(15.5), latency: 200 * ms, success: true}}, 4},
		"a call fails: as a slow one":                         {[]*Call{usual, {at: at(13.5), latency: ms}}, 2},
		"the last call of the outage ends: counts from there": {[]*Call{usual, held, {at: at(15.5), latency: 200 * ms, success: true}}, 2},
		"slow only while it waits: at once":                   {[]*Call{usual, held, {at: at(12.5), latency: 200 * ms, success: true}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := Scenario{Before: 10 * time.Second, During: 2 * time.Second, After: 10 * time.Second}
			require.InDelta(t, tt.want, backAfterOutage(Result{Config: Config{Scenario: s}, calls: tt.calls}), 1e-9)
		})
	}
}

// A bare client loses all calls of an outage, and only these, with one attempt each. A broken path costs it
// nothing more than its calls.
func TestRideText(t *testing.T) {
	bare, err := peers.Named("bare")
	require.NoError(t, err)
	var rows Rows
	require.Empty(t, rows.RideText())
	for _, name := range []string{"ride-reset-4s-300-deadline-10s-20", "ride-path-0.5-deadline-10s"} {
		found, err := Named(name)
		require.NoError(t, err)
		rows.Add(Run(t, Config{Scenario: found[0], Peer: bare[0], Topology: found[0].topologies()[0], Seed: Seed}))
	}
	text := rows.RideText()
	require.Regexp(t, `deadline 10s, away 4s +bare +0\.980 +0\.000 +0\.000! +1\.000 +1\.000 +1\.\d\d +1\.\d\d +1\.0000 +1\.0000 +0\.0 +0\.0 \n`, text)
	require.Regexp(t, `ride-path-0\.5-deadline-10s +bare +0\.001 +0\.001 +0\.001 +0\.001 +1\.0000 +1\.0000 +0\.020 +0\.020 +1\.0000`, text)
}
