package fleet

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Each mean has cells of all kinds, rates and numbers of clients, in the sample too.
func TestRide_groupsHaveAllCells(t *testing.T) {
	for name, tt := range map[string]struct {
		cells                []Scenario
		kinds, rates, fleets int
	}{"all": {ride(), 3, 4, 3}, "the sample": {inGroup(t, "ride-quick"), 2, 3, 2}} {
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
	var rows Rows
	require.Empty(t, rows.RideText())
	for _, name := range []string{"ride-reset-4s-300-deadline-10s-20", "ride-path-0.5-deadline-10s"} {
		found, err := Named(name)
		require.NoError(t, err)
		rows.Add(Run(t, configOf(t, found[0], "bare", found[0].Topologies[0])))
	}
	text := rows.RideText()
	require.Regexp(t, `deadline 10s, away 4s +bare +0\.980 +0\.000 +0\.000! +1\.000 +1\.000 +1\.\d\d +1\.\d\d +1\.0000 +1\.0000 +0\.0 +0\.0 \n`, text)
	require.Regexp(t, `ride-path-0\.5-deadline-10s +bare +0\.001 +0\.001 +0\.001 +0\.001 +1\.0000 +1\.0000 +0\.020 +0\.020 +1\.0000`, text)
}

// judge runs a scenario with this library and a bare client, and returns the missed targets.
func judge(t *testing.T, s Scenario, seed uint64) (missed []Verdict) {
	t.Helper()
	libraries := named(t, peers.Ours+",bare")
	var rows Rows
	for _, p := range libraries {
		rows.Add(Run(t, Config{Scenario: s, Peer: p, Topology: Shared, Seed: seed}))
	}
	for _, v := range rows.VerdictsOf(rows.all[0]) {
		if by, err := strconv.ParseFloat(v.MissedBy, 64); !v.Reached && (v.What != "success, vs bare" || err != nil || by > findsEnd) {
			missed = append(missed, v)
		}
	}
	return missed
}

// findsEnd are the calls of some two seconds: a probe a second finds the end of the hang, and slow start follows.
const findsEnd = 0.02

// L2: the circuit of a server that only hangs opens, and callers are then held for a small part of
// their timeout. Beside the rows, clients with POSTs, little time before it and none. The client's jitter is not
// seeded: a server must miss a target twice to fail.
func TestHanging_targets(t *testing.T) {
	if testing.Short() {
		t.Skip("a dozen runs")
	}
	for _, s := range append(hanging(), each(hangingServer.scenario,
		hangingServer{rate: 2.7, timeout: time.Second, attempt: true, method: http.MethodPost, healthy: 10 * time.Second},
		hangingServer{rate: 20, timeout: 30 * time.Second, method: http.MethodPost, healthy: 10 * time.Second},
		hangingServer{rate: 20, timeout: 2 * time.Second, method: http.MethodPost},
	)...) {
		missed := judge(t, s, Seed)
		if len(missed) > 0 {
			missed = judge(t, s, Seed)
		}
		require.Empty(t, missed, "-scenario=%s: %s", s.Name, s.Note)
	}
}

// A bare client misses each target of a hanging server.
func TestHanging_bareClientMissesThem(t *testing.T) {
	for _, s := range hanging() {
		r := Run(t, configOf(t, s, "bare", Shared))
		require.InDelta(t, never.Seconds(), failsAtOnce(r), 0.1, s.Name)
		require.InDelta(t, 1, r.Targets[s.Targets[1].What], 0.01, s.Name)
	}
}

// A third of the server at three times its capacity for four seconds, with each gate and
// without one.
func TestGates(t *testing.T) {
	run := func(scenario, peer string) Result {
		s, err := Named(scenario)
		require.NoError(t, err)
		s[0] = s[0].scaledTo(6 * time.Second)
		s[0].Server.Workers, s[0].Server.Queue, s[0].Load.Rate = defaultWorkers/3, defaultQueue/3, Rate/3
		r := Run(t, configOf(t, s[0], peer, Shared))
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

// atOnce is the client of the models: it repeats a failed attempt at once.
type atOnce struct {
	base     http.RoundTripper
	attempts int
}

func (c atOnce) Do(req *http.Request) (resp *http.Response, err error) {
	for range c.attempts {
		resp, err = c.base.RoundTrip(req)
		if err == nil && resp.StatusCode < http.StatusBadRequest {
			break
		}
	}
	return resp, err
}

// The client of each model has the published success in this simulator.
func TestPublished_clientsOfTheModels(t *testing.T) {
	for _, m := range models() {
		if m.published == nil {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			seeds := uint64(20)
			if m.load.perSecond() == Rate {
				seeds = 1 // ten thousand calls
			}
			var row Row
			own := peers.Peer{Name: "model", New: func(s peers.Setting) peers.Client { return atOnce{s.Base, m.attempts} }}
			for seed := range seeds {
				row = append(row, Run(t, Config{Scenario: m.scenario(1), Peer: own, Topology: Shared, Seed: Seed + seed}))
			}
			for i, got := range phasesOf(row) {
				t.Logf("phase %d: published %.3f, measured %.3f", i+1, m.published[i], got)
				if m.published[i] != unknown {
					require.InDelta(t, m.published[i], got, 0.15)
				}
			}
		})
	}
}

func TestPhases(t *testing.T) {
	m := model{before: 1, during: 2, after: 10, later: []time.Duration{7}}
	require.Equal(t, []phase{{0, 1}, {1, 3}, {3, 7}, {7, 13}}, m.phases())
	require.Equal(t, []phase{{0, 2}}, model{during: 2}.phases())
}
