package fleet

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// published are models of retries that others published. Each has a client of its own, which
// ride_test.go runs in this simulator beside the published figures.
//
// The libraries get the timeout of the model for each attempt, because the models give an
// attempt a timeout and a call none. This library gets it as AttemptTimeout, the others from
// the network. The deadline of a call is that of the other groups, 30 s: most libraries wait
// between attempts, and the clients of the models do not.
//
// A run of m1 has few calls, and one slow response of its only worker can decide: a figure needs
// twenty seeds, which is -seeds=20 of the command.
func published() (all []Scenario) {
	for _, m := range models() {
		for i, clients := range []int{1, 5, 20, 100} {
			s := m.scenario(clients)
			if m.today != nil {
				s.Targets = append([]Target{atLeast("success", Result.Success, m.today[i]-publishedNoise, "%.3f")}, s.Targets...)
			}
			all = append(all, s)
		}
	}
	return all
}

// model is a published model.
type model struct {
	name, note, source string

	before, during, after time.Duration
	later                 []time.Duration // phases after the trigger that begin later

	server   Server
	load     Load
	attempts int // of a call, by the client of the model

	published []float64 // success in each phase of the client of the model; nil: none
	today     []float64 // success of this library that must remain, of 1, 5, 20 and 100 clients; nil: none
	most      float64   // attempts per call; 0: no maximum
	reason    string
}

const (
	happySimulator = "https://github.com/adamfilli/happy-simulator/blob/ba004646d7f69ccbbc84b6f0330c35aa36438541/examples/queuing/metastable_state.py"
	moonpool       = "https://github.com/PierreZ/moonpool/pull/193"
	collapseSim    = "https://github.com/mbrooker/simulator_example/blob/bbfe3946f0459a69f6012737c68fc63b973471be/simple_collapse_sim/sim.py"
	retrySim       = "https://brooker.co.za/blog/2022/02/28/retries.html"
)

func models() []model {
	all := []model{{
		// The client of the source makes five attempts: its max_retries counts the first one too. It takes
		// the late response to an earlier attempt, which an HTTP client cannot; without these responses
		// its first figure is .25. The figures are means of the seeds 42 to 141.
		name: "m1", source: happySimulator,
		note:   "10/s with exponential service times; 9/s, from 20 s to 30 s 20/s, then 9/s, 7/s from 60 s, 5/s from 75 s, 3/s from 90 s; timeout 500 ms",
		before: 20 * time.Second, during: 10 * time.Second, after: 70 * time.Second,
		later:  []time.Duration{60 * time.Second, 75 * time.Second, 90 * time.Second},
		server: Server{Workers: 1, Service: 100 * time.Millisecond, Exponential: true, Queue: unlimited, AttemptTimeout: 500 * time.Millisecond},
		load: Load{Rate: 9, Even: true, Surges: []Surge{
			{20 * time.Second, 30 * time.Second, 20. / 9}, {60 * time.Second, 75 * time.Second, 7. / 9},
			{75 * time.Second, 90 * time.Second, 5. / 9}, {90 * time.Second, 100 * time.Second, 3. / 9},
		}},
		attempts: 5, published: []float64{.38, 0, 0, 0, 0, 0},
	}, {
		// The figures of m2 are means of ten runs of the source, without backoff, by the start of a call.
		name: "m2-spike", source: collapseSim, note: collapseNote + "40/s, from 20 s to 25 s 80/s",
		before: 20 * time.Second, during: 5 * time.Second, after: 55 * time.Second,
		server: collapsing(), load: Load{Rate: 40, Surges: []Surge{{20 * time.Second, 25 * time.Second, 2}}},
		attempts: 3, published: []float64{1, .80, .31},
	}, {
		// The rate rises from the start, so the trigger has no sharp begin: it is the time above 72/s.
		name: "m2-ramp", source: collapseSim, note: collapseNote + "from 40/s to 80/s at 25 s and to 0 at 75 s",
		before: 20 * time.Second, during: 10 * time.Second, after: 45 * time.Second, later: []time.Duration{50 * time.Second},
		server: collapsing(), load: Load{Rate: 80, Surges: ramp()},
		attempts: 3, published: []float64{.91, .02, 0, 0},
	}}
	for _, m := range []model{
		// In the source 95 of 200 seeds do not recover; 600 ms are harmless, and 700 ms are too much. The
		// delays of its network decide, which this model has not.
		{during: 650 * time.Millisecond, published: []float64{1, unknown, unknown}},
		{during: 2 * time.Second, published: []float64{1, unknown, 0}},
		{during: 5 * time.Second}, // not published
	} {
		m.name, m.source, m.attempts = fmt.Sprintf("m3-%v", m.during), moonpool, 4
		m.note = fmt.Sprintf("4 workers of 25 ms, for %v of 100 ms, reserved on arrival; 50/s; timeout 200 ms", m.during)
		m.before, m.after = 10*time.Second, 30*time.Second-m.during
		m.load = Load{Rate: 50, Even: true}
		m.server = Server{
			Workers: 4, Service: 25 * time.Millisecond, Queue: unlimited, AttemptTimeout: 200 * time.Millisecond,
			Paces: []Pace{{m.before, m.before + m.during, 100 * time.Millisecond}},
		}
		all = append(all, m)
	}
	return append(all, unfeeling()...)
}

const (
	unknown      = -1 // a figure that was not published
	unlimited    = math.MaxInt
	collapseNote = "1 s and 10 ms for each request in the server; network 100 ms each way; timeout 3 s; "
)

// collapsing is the server of simple_collapse_sim. It never learns that a client has left.
func collapsing() Server {
	return Server{
		Workers: -1, Service: time.Second, PerRequest: 10 * time.Millisecond,
		Network: 100 * time.Millisecond, AttemptTimeout: 3 * time.Second,
	}
}

// ramp is the rate 80 - 1.6·|t - 25| in steps of a second.
func ramp() (steps []Surge) {
	for second := range 75 {
		rate := 80 - 1.6*math.Abs(float64(second)+0.5-25)
		from := time.Duration(second) * time.Second
		steps = append(steps, Surge{from, from + time.Second, rate / 80})
	}
	return steps
}

// unfeeling are the servers of retry_sim: a ratio of all requests fails, whatever the load is.
// A client cannot tell them from overloaded servers.
func unfeeling() (all []model) {
	for _, m := range []struct {
		share, published, most float64
		today                  []float64 // of 1, 5, 20 and 100 clients
	}{
		{share: 0.1, published: .9998, today: []float64{1, 1, 1, 1}},
		{share: 0.2, published: .998, today: []float64{.998, .998, .998, .998}},
		{share: 0.3, published: .992, today: []float64{.991, .991, .991, .988}},
		{share: 0.4, published: .975, today: []float64{.973, .973, .970, .950}},
		{share: 0.5, published: .938, today: []float64{.932, .932, .905, .855}},
		{share: 0.75, published: .685, most: 1.5},
	} {
		all = append(all, model{
			name: fmt.Sprintf("m4-%g", m.share), source: retrySim, during: 10 * time.Second, attempts: 4,
			note:      fmt.Sprintf("%g of all requests fail, whatever the load is; 1000/s; network 10 ms each way", m.share),
			reason:    "the retry budget limits the attempts, because the server may be overloaded",
			published: []float64{m.published}, today: m.today, most: m.most,
			server: Server{
				Workers: -1, Service: time.Nanosecond, Network: 10 * time.Millisecond, AttemptTimeout: -1,
				Faults: []Fault{{Share: m.share, Response: Response{Status: 500}}},
			},
		})
	}
	return all
}

// scenario returns the model with the clients. One client is a Transport for all callers.
func (m model) scenario(clients int) Scenario {
	s := Scenario{
		Row: 60, Name: fmt.Sprintf("%s-%d", m.name, clients), Topologies: []Topology{Own},
		Note: fmt.Sprintf("%s; clients: %d; [source](%s)", m.note, clients, m.source), Reason: m.reason,
		Before: m.before, During: m.during, After: m.after,
		Server: m.server, Load: m.load,
		Configure: func(t *resilienthttp.Transport) {
			t.Policy.MaxAttempts, t.Policy.AttemptTimeout = m.attempts, max(m.server.AttemptTimeout, 0)
		},
	}
	if s.Load.Clients = clients; clients == 1 {
		s.Topologies = []Topology{Shared}
	}
	if m.most > 0 {
		s.Targets = append(s.Targets, atMost("attempts per call", Result.AttemptsPerCall, m.most, "%.3f"))
	}
	for _, p := range m.phases() {
		measure := func(r Result) float64 { return r.successBetween(p.from, p.to) }
		s.Targets = append(s.Targets, atLeast(p.what(), measure, -publishedMargin, "%.3f").plusBare(measure))
	}
	return s
}

// The success of a phase may be publishedMargin less than a bare client's. Success that must
// remain may be publishedNoise less, by chance.
const (
	publishedMargin = 0.02
	publishedNoise  = 0.01
)

type phase struct{ from, to time.Duration }

func (p phase) what() string { return fmt.Sprintf("%s%v to %v", phasePrefix, p.from, p.to) }

const phasePrefix = "success from "

func (m model) phases() (all []phase) {
	end := m.before + m.during + m.after
	starts := append([]time.Duration{0, m.before, m.before + m.during}, m.later...)
	for i, from := range starts {
		to := end
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		if from < to {
			all = append(all, phase{from, to})
		}
	}
	return all
}

// phasesOf is the success of a row in each phase.
func phasesOf(row Row) (all []float64) {
	for _, g := range row[0].Scenario.Targets {
		if strings.HasPrefix(g.What, phasePrefix) {
			all = append(all, g.over(row))
		}
	}
	return all
}

// PhaseText lists the success of each library that ran in each phase of the published models, then
// the published success, then the mean of a library over the phases and clients of each source. It
// is empty if no model ran.
func (r *Rows) PhaseText() string {
	var text strings.Builder
	means := map[string][]float64{} // by source and library
	for _, row := range r.all {
		name, peer := row[0].Scenario.Name, row[0].Peer.Name
		if phases := phasesOf(row); len(phases) > 0 {
			from, _, _ := strings.Cut(name, "-")
			means[from+" "+peer] = append(means[from+" "+peer], phases...)
			fmt.Fprintf(&text, "%-26s %-24s %.3f\n", name, peer, phases)
		}
	}
	if len(means) == 0 {
		return ""
	}
	for _, m := range models() {
		if m.published != nil {
			fmt.Fprintf(&text, "%-26s %-24s %.3f\n", m.name, "published, -1: unknown", m.published)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(means)) {
		sum := 0.0
		for _, success := range means[name] {
			sum += success
		}
		fmt.Fprintf(&text, "%-51s %.3f\n", "mean, "+name, sum/float64(len(means[name])))
	}
	return text.String()
}
