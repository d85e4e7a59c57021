package fleet

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// The paths whose calls have a priority; those to / have the default one.
const (
	critical = "/critical"
	batch    = "/batch"
)

// priorityOf is what a call to the path matters.
func priorityOf(path string) resilienthttp.Priority {
	switch path {
	case critical:
		return resilienthttp.PriorityCritical
	case batch:
		return resilienthttp.PriorityBatch
	}
	return resilienthttp.PriorityDefault
}

// prioritized is the request of a call to its path with its priority. This library's
// Transport sends it as a header by itself; others are given the header.
func prioritized(req *http.Request, peer string) *http.Request {
	p := priorityOf(req.URL.Path)
	if p == resilienthttp.PriorityDefault {
		return req
	}
	if !strings.HasPrefix(peer, peers.Ours) {
		req.Header.Set("X-Request-Priority", p.String())
	}
	return req.WithContext(resilienthttp.WithPriority(req.Context(), p))
}

// gates are one server under three times what it can serve, behind each gate and
// behind none. Behind admission.Shedder this library is held against the targets.
func gates() []Scenario {
	const before, during, after = 10 * time.Second, 60 * time.Second, 20 * time.Second
	load := Load{
		Paths:  []Part{{critical, 0.1}, {batch, 0.3}},
		Surges: []Surge{{From: before, To: before + during, Factor: 3 * Server{}.capacity() / Rate}},
	}
	of := func(name, gate, note string, goals ...Goal) Scenario {
		return Scenario{Name: name, Note: note, Before: before, During: during, After: after, Load: load, Gate: gate, Goals: goals}
	}
	return []Scenario{
		of("gate-shedder", gateShedder, "admission.Shedder",
			atLeast("goodput, of capacity", capacityUsed, 0.95, "%.4f").ofWorst(),
			atLeast("success of critical", successAt(critical), 0.99, "%.4f").ofWorst(),
			atMost("attempts per call", Result.AttemptsPerCall, 1.1, "%.4f").ofWorst().because(whyFew),
			recoversWithin(2*time.Second),
		),
		of("gate-failsafe-priority", gatePriority, "failsafe-go's adaptive limiter, prioritized"),
		of("gate-failsafe", gateFailsafe, "failsafe-go's adaptive limiter"),
		of("gate-none", "", "no gate"),
	}
}

func capacityUsed(r Result) float64 { return r.CapacityUsed }

// successAt is the share of all calls to the path that succeeded.
func successAt(path string) func(Result) float64 {
	return func(r Result) float64 { return r.Paths[path].share() }
}

// Gates is the section of docs/performance.md on a server's gates.
func Gates(rows *Rows) string {
	var text strings.Builder
	fmt.Fprint(&text, `## A server's gates, at three times what it can serve

Measured by `+"`go run ./benchmarks/cmd/fleet -scenario gates -write`"+`, in virtual time. The fleet's server (12 workers of 10 ms, 1200
a second) is offered 1000 a second, for 60 s 3600, and 1000 again: 10 % critical, 60 % default, 30 % batch. Before its workers
stands one of these, all real code, none of them told how many workers there are: [admission.Shedder](admission.md) with
`+"`Priority: PriorityFromHeader`"+`; failsafe-go's adaptive limiter in failsafehttp's handler, at its defaults; the same prioritized
(high, medium, low, random levels, calibrated each 500 ms); or nothing but the server's own queue of 1000. failsafehttp refuses
with a 429 that does not say for how long, the Shedder with a 503 and `+"`Retry-After`"+`. An attempt is given up after 500 ms; what has
begun goes on. *Goodput* is what was served while there was too much, of what the workers can do; the other shares are of all
calls, and *after* is that of those made in the 20 s after it; *back* is how long after the load has fallen goodput is at 95 %
of what is offered again, calls of before counted. Goodput and *back* are of the worst of three seeds (one, where the gate is
not the Shedder), as is what was to be reached; the other figures are means.

`)
	table := report.NewTextTable("gate", "clients", "library", "goodput", "critical", "default", "batch", "after", "attempts per call", "mean", "p99", "back")
	targets := Rows{}
	for _, key := range rows.keys {
		row := rows.results[key]
		s := row[0].Scenario
		cells := []string{s.Note, string(row[0].Topology), row[0].Peer.Name, fmt.Sprintf("%.3f", combined(row, capacityUsed, true, true))}
		for _, path := range []string{critical, "/", batch} {
			cells = append(cells, fmt.Sprintf("%.3f", row.average(successAt(path))))
		}
		cells = append(cells, fmt.Sprintf("%.3f", row.average(Result.SuccessAfter)))
		table.Row(append(cells, fmt.Sprintf("%.2f", row.average(Result.AttemptsPerCall)), brief(row.span(meanLatency)), brief(row.span(p99Latency)), row.back())...)
		if s.Gate == gateShedder {
			for _, result := range row {
				targets.Add(result)
			}
		}
	}
	fmt.Fprintln(&text, table)
	fmt.Fprint(&text, "What was to be reached behind the Shedder:\n\n")
	writeTargets(&text, &targets)
	return text.String()
}
