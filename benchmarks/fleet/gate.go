package fleet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/priority"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
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
	done := make(chan *httptest.ResponseRecorder, 1)
	s.gate.inside.Go(func() {
		recorder := httptest.NewRecorder()
		s.gate.ServeHTTP(recorder, req.Clone(ctx))
		done <- recorder
	})
	timeout := time.NewTimer(s.scenario.Server.attemptTimeout())
	defer timeout.Stop()
	select {
	case r := <-done:
		return respond(req, r.Code, r.Header()), nil
	case <-timeout.C:
		return nil, timeoutError{}
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}
