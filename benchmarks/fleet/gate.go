package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/priority"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// The gates in front of a server's workers. All are real code in virtual time.
const (
	gateShedder  = "shedder"           // admission.Shedder with priorities
	gateNoHint   = "shedder-no-hint"   // the same without X-Should-Retry
	gateFailsafe = "failsafe"          // failsafe-go's adaptive limiter with its defaults
	gatePriority = "failsafe-priority" // the same with priorities and a queue
)

// gate is a handler in front of the workers.
type gate struct {
	http.Handler
	stop   func()         // stops its goroutines
	inside sync.WaitGroup // requests in the gate
}

// close waits for requests of clients that have left.
func (g *gate) close() {
	g.inside.Wait()
	g.stop()
}

// newGate returns the named gate in front of next.
func newGate(name string, next http.Handler) *gate {
	switch name {
	case gateShedder, gateNoHint:
		shedder := &admission.Shedder{Priority: admission.PriorityFromHeader, NoRetryHint: name == gateNoHint}
		return &gate{Handler: resilienthttp.DeadlineHandler{Next: shedder.Handler(next)}, stop: func() {}}
	case gateFailsafe:
		limiter := adaptivelimiter.NewWithDefaults[*http.Response]() //nolint:bodyclose // there is none
		return &gate{Handler: failsafehttp.NewHandler(next, limiter), stop: func() {}}
	case gatePriority:
		prioritizer := adaptivelimiter.NewPrioritizer()
		limiter := adaptivelimiter.NewBuilder[*http.Response]().BuildPrioritized(prioritizer) //nolint:bodyclose // there is none
		stop := prioritizer.ScheduleCalibrations(context.Background(), calibration)
		return &gate{Handler: failsafePriority(next, failsafe.With(limiter)), stop: stop} //nolint:bodyclose // there is none
	}
	panic("fleet: no gate " + strconv.Quote(name))
}

// calibration is the interval of failsafe-go's prioritizer.
const calibration = 500 * time.Millisecond

// failsafePriority is failsafehttp's handler with the priority of the request's header. The
// executor's context carries it, because policies do not get the request's context.
func failsafePriority(next http.Handler, executor failsafe.Executor[*http.Response]) http.Handler {
	level := map[resilienthttp.Priority]priority.Priority{
		resilienthttp.PriorityCritical: priority.High,
		resilienthttp.PriorityDefault:  priority.Medium,
		resilienthttp.PriorityBatch:    priority.Low,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := priority.ContextWithLevel(r.Context(), level[admission.PriorityFromHeader(r)].RandomLevel())
		failsafehttp.NewHandlerWithExecutor(next, executor.WithContext(ctx)).ServeHTTP(w, r) //nolint:bodyclose // there is none
	})
}

// work is the handler behind a gate. It uses a worker until the work is done, even if the
// client has left. Faults and limits do not apply.
func (s *server) work(w http.ResponseWriter, _ *http.Request) {
	j := s.pool.enter(s.scenario.Server.service())
	if j == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	<-j.done
	_, _ = io.WriteString(w, "done")
}

// throughGate sends one attempt to a server with a gate. As over a network, the handler's
// context ends when the client cancels.
func (s *server) throughGate(req *http.Request) (*http.Response, error) {
	ctx, cancel := received(req.Context())
	defer cancel()
	recorder, response := httptest.NewRecorder(), &job{done: make(chan struct{}, 1)}
	s.gate.inside.Go(func() {
		s.gate.ServeHTTP(recorder, req.Clone(ctx))
		response.done <- struct{}{}
	})
	if err := s.wait(req.Context(), Response{}, response); err != nil {
		return nil, err
	}
	return respond(req, recorder.Code, recorder.Header()), nil
}

// The paths of calls with a priority. Calls to / have the default priority.
const (
	critical = "/critical"
	batch    = "/batch"
)

// priorityOf is the priority of a call to the path.
func priorityOf(path string) resilienthttp.Priority {
	switch path {
	case critical:
		return resilienthttp.PriorityCritical
	case batch:
		return resilienthttp.PriorityBatch
	}
	return resilienthttp.PriorityDefault
}

// prioritized adds the priority of its path to a request. This library's Transport sends
// the header; for other libraries, prioritized sets it.
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

// gates are one server at three times its capacity: behind each gate and without one.
// The targets apply behind admission.Shedder.
func gates() []Scenario {
	const before, during, after = 10 * time.Second, 60 * time.Second, 20 * time.Second
	load := Load{
		Paths:  []Part{{critical, 0.1}, {batch, 0.3}},
		Surges: []Surge{{From: before, To: before + during, Factor: 3 * Server{}.capacity() / Rate}},
	}
	of := func(name, gate, note string, goals ...Target) Scenario {
		return Scenario{Name: name, Note: note, Before: before, During: during, After: after, Load: load, Gate: gate, Targets: goals}
	}
	return []Scenario{
		of("gate-shedder", gateShedder, "admission.Shedder",
			atLeast("goodput, of capacity", capacityUsed, 0.95, "%.4f").worstSeed(),
			atLeast("success of critical", successAt(critical), 0.99, "%.4f").worstSeed(),
			atMost("attempts per call", Result.AttemptsPerCall, 1.1, "%.4f").worstSeed().reason(whyFew),
			recoversWithin(2*time.Second),
			atLeast("success after it", Result.SuccessAfter, 0.995, "%.4f").worstSeed(),
		),
		of("gate-shedder-no-hint", gateNoHint, "admission.Shedder, NoRetryHint",
			atLeast("success after it", Result.SuccessAfter, 0.97, "%.4f").worstSeed().shared(),
			atLeast("success after it", Result.SuccessAfter, 0.96, "%.4f").worstSeed().perClient(),
		),
		of("gate-failsafe-priority", gatePriority, "failsafe-go's adaptive limiter, prioritized"),
		of("gate-failsafe", gateFailsafe, "failsafe-go's adaptive limiter"),
		of("gate-none", "", "no gate"),
	}
}

func capacityUsed(r Result) float64 { return r.CapacityUsed }

// successAt is the ratio of calls to the path that succeeded.
func successAt(path string) func(Result) float64 {
	return func(r Result) float64 { return r.Paths[path].share() }
}

// GateResults are the results in benchmarks/results/load-shedding.md.
func GateResults(rows *Rows) string {
	var text strings.Builder
	table := report.NewTextTable("gate", "Transport", "library", "goodput", "critical", "default", "batch", "after", "attempts per call", "mean", "p99", "recovery")
	targets := Rows{}
	for _, row := range rows.all {
		s := row[0].Scenario
		cells := []string{s.Note, row[0].Topology.label(), row[0].Peer.Name, fmt.Sprintf("%.3f", combined(row, capacityUsed, true, true))}
		for _, path := range []string{critical, "/", batch} {
			cells = append(cells, fmt.Sprintf("%.3f", row.average(successAt(path))))
		}
		cells = append(cells, fmt.Sprintf("%.3f", row.average(Result.SuccessAfter)))
		table.Row(append(cells, fmt.Sprintf("%.2f", row.average(Result.AttemptsPerCall)), brief(row.span(meanLatency)), brief(row.span(p99Latency)), row.recovery())...)
		if s.Gate == gateShedder || s.Gate == gateNoHint {
			for _, result := range row {
				targets.Add(result)
			}
		}
	}
	fmt.Fprintln(&text, table)
	return text.String() + "## Targets of the Shedder\n\n" + TargetResults(&targets)
}
