package fleet

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Server is what a server is, and what befalls it. The zero value is the fleet's:
// a queue of at most 1000 requests before 12 workers of 10 ms, that refuses with a
// silent 503 what finds it full.
type Server struct {
	Workers int           // 0: 12; negative: one for each request, and no queue
	Service time.Duration // for each request; 0: 10 ms
	Queue   int           // 0: 1000; negative: none
	Shed    int           // Retry-After of the 503 when the queue is full; 0: none

	GiveUp   time.Duration // of the base, for an attempt; 0: 500 ms; negative: never
	Backends int           // that requests are dealt to at random; 0: one

	Staff  []Staff // stretches with another number of workers: the first that matches
	Faults []Fault
	Limit  Limit
}

// Staff is a stretch with another number of workers.
type Staff struct {
	From, To time.Duration // since the start; both 0: the scenario's During
	Workers  int
}

// capacity is how many requests a second it can serve.
func (s Server) capacity() float64 { return float64(s.workers()) / s.service().Seconds() }

func (s Server) workers() int {
	if s.Workers == 0 {
		return workers
	}
	return s.Workers
}

func (s Server) service() time.Duration {
	if s.Service == 0 {
		return service
	}
	return s.Service
}

func (s Server) queue() int {
	if s.Queue == 0 {
		return queueMax
	}
	return max(s.Queue, 0)
}

func (s Server) giveUp() time.Duration {
	if s.GiveUp == 0 {
		return giveUp
	}
	return s.GiveUp
}

// scaled returns the server with the times of its troubles changed.
func (s Server) scaled(scale func(time.Duration) time.Duration) Server {
	faults, staff := make([]Fault, len(s.Faults)), make([]Staff, len(s.Staff))
	for i, f := range s.Faults {
		f.From, f.To = scale(f.From), scale(f.To)
		faults[i] = f
	}
	for i, p := range s.Staff {
		p.From, p.To = scale(p.From), scale(p.To)
		staff[i] = p
	}
	s.Faults, s.Staff = faults, staff
	return s
}

// server is the model, and the base RoundTripper of all clients: there is no
// network between them. It must be made and used in a synctest bubble.
type server struct {
	scenario Scenario
	start    time.Time
	random   random
	pool     *pool
	gate     *gate        // before the pool; nil: none
	stray    atomic.Int64 // attempts that belong to no call

	mu       sync.Mutex
	limiter  *limiter
	happened []int // how often each fault did
	load     series
	limited  series // those not let in under the limit
	taken    series // those let in
	tooMany  series // those answered 429, for whatever reason
	arrived  []time.Duration
}

func newServer(s Scenario, start time.Time, seed uint64) *server {
	sv := &server{
		scenario: s, start: start, random: random{seed},
		limiter: newLimiter(s.Server.Limit, start), happened: make([]int, len(s.Server.Faults)),
	}
	sv.pool = &pool{workers: sv.workers, service: s.Server.service(), room: s.Server.queue()}
	return sv
}

// open puts the gate before the workers, if there is one, when the calls are about to
// begin: what it does in between would go on through all the years before.
func (s *server) open() {
	if s.scenario.Gate != "" {
		s.gate = newGate(s.scenario.Gate, http.HandlerFunc(s.work))
	}
}

// workers is how many there are now.
func (s *server) workers() int {
	at := time.Since(s.start)
	for _, p := range s.scenario.Server.Staff {
		if from, to := stretch(p.From, p.To, &s.scenario); at >= from && at < to {
			return p.Workers
		}
	}
	return s.scenario.Server.workers()
}

// gaveUpError is the error of a base that has waited for long enough.
type timeoutError struct{}

func (timeoutError) Error() string   { return "fleet: no answer in time" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	ctx := req.Context()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	v := s.newAttempt(req)
	s.count(v)
	if s.gate != nil {
		return s.throughGate(req)
	}
	answer, header, j := s.arrive(v)
	if j != nil || answer.Hang || answer.After > 0 {
		if err := s.wait(ctx, answer, j); err != nil {
			return nil, err
		}
	}
	if answer.Err != nil {
		return nil, answer.Err
	}
	return respond(req, answer.Status, header), nil
}

// visit makes a visit of a request.
func (s *server) newAttempt(req *http.Request) attempt {
	v := attempt{at: time.Since(s.start), path: req.URL.Path}
	if c := callOf(req.Context()); c != nil {
		v.call, v.attempt = c.id, int(c.attempts.Add(1))
	} else {
		v.call, v.attempt = -int(s.stray.Add(1)), 1
	}
	if n := s.scenario.Server.Backends; n > 0 {
		v.backend = int(s.random.fraction(v.call, v.attempt, drawBackend) * float64(n))
	}
	return v
}

// wait waits for the answer, or until somebody gives up.
func (s *server) wait(ctx context.Context, a Response, j *job) error {
	var ready, enough <-chan time.Time
	var done <-chan struct{}
	patience := s.scenario.Server.giveUp()
	switch {
	case j != nil:
		done = j.done
	case !a.Hang && (patience < 0 || a.After <= patience):
		timer := time.NewTimer(a.After)
		defer timer.Stop()
		ready = timer.C
	}
	if ready == nil && patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-done:
		return nil
	case <-ready:
		return nil
	case <-enough:
		return timeoutError{}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func respond(req *http.Request, status int, header http.Header) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: http.NoBody, Request: req,
	}
}

// count counts an attempt, whatever becomes of it.
func (s *server) count(v attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load.add(v.at)
	s.arrived = append(s.arrived, v.at)
}

// arrive takes a visit in, and says what it gets: after the job is done, if there
// is one. First come faults, then the limit, then the work.
func (s *server) arrive(v attempt) (Response, http.Header, *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, worked := Response{Status: http.StatusOK}, true
	if f, i := s.fault(v); f != nil {
		answer, worked = f.Response, f.Worked
		answer.After = s.random.between(answer.After, answer.Until, v.call, v.attempt, drawFault+2*i+1)
	}
	header := answer.header()
	if !worked {
		return s.count429(v, answer), header, nil
	}
	if said, ok := s.limiter.admit(s.start.Add(v.at)); !ok {
		s.limited.add(v.at)
		return s.count429(v, Response{Status: s.scenario.Server.Limit.status()}), said, nil
	} else if said != nil {
		header = said
	}
	s.taken.add(v.at)
	if s.scenario.Server.workers() < 0 {
		answer.After = s.scenario.Server.service()
		return answer, header, nil
	}
	j := s.pool.enter()
	if j == nil {
		answer = Response{Status: http.StatusServiceUnavailable, RetryAfter: s.scenario.Server.Shed}
		header = answer.header()
	}
	return s.count429(v, answer), header, j
}

// seen counts the answers that are 429.
func (s *server) count429(v attempt, a Response) Response {
	if a.Status == http.StatusTooManyRequests {
		s.tooMany.add(v.at)
	}
	return a
}

// fault is the first that befalls the visit, or nil. The server is locked.
func (s *server) fault(v attempt) (*Fault, int) {
	for i := range s.scenario.Server.Faults {
		f := &s.scenario.Server.Faults[i]
		if f.matches(v, &s.scenario, s.random, i, s.happened[i]) {
			s.happened[i]++
			return f, i
		}
	}
	return nil, 0
}
