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

// The gates that can stand before a server's workers. All are real code in virtual
// time.
const (
	gateShedder  = "shedder"           // admission.Shedder, its zero value but for the priorities
	gateFailsafe = "failsafe"          // failsafe-go's adaptive limiter at its defaults
	gatePriority = "failsafe-priority" // the same with priorities and the queue that it then has
)

// gate is a handler before the workers.
type gate struct {
	http.Handler
	stop   func()         // ends its goroutines
	inside sync.WaitGroup // the requests
}

// close waits for the requests whose clients have left.
func (g *gate) close() {
	g.inside.Wait()
	g.stop()
}

// newGate returns the gate of that name before next.
func newGate(name string, next http.Handler) *gate {
	switch name {
	case gateShedder:
		shedder := &admission.Shedder{Priority: admission.PriorityFromHeader}
		return &gate{Handler: resilienthttp.Deadline{}.Handler(shedder.Handler(next)), stop: func() {}}
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

// calibration is how often failsafe-go's prioritizer looks at its queue.
const calibration = 500 * time.Millisecond

// failsafePriority is failsafehttp's handler, told what the header says: by the
// executor's context, since the policies do not see that of the request.
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

// work is the handler behind a gate: a turn of the workers, which goes on when the
// client has left. It meets no faults and no limit.
func (s *server) work(w http.ResponseWriter, _ *http.Request) {
	j := s.pool.enter()
	if j == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	<-j.done
	_, _ = io.WriteString(w, "done")
}

// throughGate is one attempt at a server with a gate. As over a network, of its
// context only the end comes over, when the client gives up.
func (s *server) throughGate(req *http.Request) (*http.Response, error) {
	ctx, cancel := received(req.Context())
	defer cancel()
	answered := make(chan *httptest.ResponseRecorder, 1)
	s.gate.inside.Go(func() {
		recorder := httptest.NewRecorder()
		s.gate.ServeHTTP(recorder, req.Clone(ctx))
		answered <- recorder
	})
	patience := time.NewTimer(s.scenario.Server.giveUp())
	defer patience.Stop()
	select {
	case a := <-answered:
		return respond(req, a.Code, a.Header()), nil
	case <-patience.C:
		return nil, timeoutError{}
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}
