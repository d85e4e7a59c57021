package fleet

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a server with its faults and limits. The zero value has a queue of at most
// 1000 requests and 12 workers of 10 ms. It returns 503 if the queue is full.
type Server struct {
	Workers    int           // 0: 12; negative: unlimited, without a queue
	Service    time.Duration // for each request; 0: 10 ms
	Queue      int           // 0: 1000; negative: none
	RetryAfter int           // Retry-After of the 503 of a full queue; 0: none

	AttemptTimeout time.Duration // timeout of an attempt; 0: 500 ms; negative: none
	Backends       int           // chosen at random for each request; 0: one

	// Hosts are the base URLs of several servers, which are the Backends by their index. The first is
	// the one that all requests name.
	Hosts []string

	Exponential bool          // Service is the mean of an exponential distribution
	PerRequest  time.Duration // added to Service for each request in the server; only with unlimited Workers
	Network     time.Duration // mean of the exponential delay of each way; 0: none

	Staff  []Staff // periods with another number of workers; the first match applies
	Paces  []Pace  // periods with another service time; the first match applies
	Faults []Fault
	Limit  Limit
}

// Staff is a period with another number of workers.
type Staff struct {
	From, To time.Duration // since the start; both 0: the scenario's During
	Workers  int
}

// Pace is a period with another service time, for the requests that arrive in it.
type Pace struct {
	From, To time.Duration // since the start
	Service  time.Duration
}

// capacity is the maximum rate in requests per second.
func (s Server) capacity() float64 { return float64(s.workers()) / s.service().Seconds() }

func (s Server) workers() int {
	if s.Workers == 0 {
		return defaultWorkers
	}
	return s.Workers
}

func (s Server) service() time.Duration {
	if s.Service == 0 {
		return defaultService
	}
	return s.Service
}

func (s Server) queue() int {
	if s.Queue == 0 {
		return defaultQueue
	}
	return max(s.Queue, 0)
}

func (s Server) attemptTimeout() time.Duration {
	if s.AttemptTimeout == 0 {
		return defaultTimeout
	}
	return s.AttemptTimeout
}

// server is the model and the base RoundTripper of all clients, without a network. It must
// be created and used in a synctest bubble.
type server struct {
	scenario Scenario
	start    time.Time
	random   Chance
	pool     *pool
	gate     *gate        // in front of the pool; nil: none
	stray    atomic.Int64 // attempts without a call

	mu       sync.Mutex
	limiter  *limit
	happened []int // number of times that each fault has happened
	load     series
	limited  series // rejected by the limit
	taken    series // permitted by the limit
	tooMany  series // all 429s
	arrived  []time.Duration
	inside   int // requests in a server with unlimited workers
}

func newServer(s Scenario, start time.Time, seed uint64) *server {
	sv := &server{
		scenario: s, start: start, random: Chance{seed},
		limiter: newLimiter(s.Server.Limit), happened: make([]int, len(s.Server.Faults)),
	}
	sv.pool = &pool{workers: sv.workers, queueMax: s.Server.queue()}
	return sv
}

// open creates the gate just before the calls start. Created earlier, its timers would run
// through all the virtual years before the epoch.
func (s *server) open() {
	if s.scenario.Gate != "" {
		s.gate = newGate(s.scenario.Gate, http.HandlerFunc(s.work))
	}
}

// workers is the current number of workers.
func (s *server) workers() int {
	at := time.Since(s.start)
	for _, p := range s.scenario.Server.Staff {
		if from, to := stretch(p.From, p.To, &s.scenario); at >= from && at < to {
			return p.Workers
		}
	}
	return s.scenario.Server.workers()
}

// timeoutError is the error of an attempt that has timed out.
type timeoutError struct{}

func (timeoutError) Error() string   { return "fleet: attempt timed out" }
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
	if s.scenario.Model == nil {
		s.count(v)
	}
	if s.gate != nil {
		return s.throughGate(req)
	}
	if s.scenario.Server.Network > 0 {
		return s.overNetwork(req, v)
	}
	result, header, j := s.arrive(v)
	if j != nil || result.Hang || result.After > 0 {
		if err := s.wait(ctx, result, j); err != nil {
			return nil, err
		}
	}
	if result.Err != nil {
		return nil, result.Err
	}
	return respond(req, result.Status, header), nil
}

// newAttempt returns the attempt of a request.
func (s *server) newAttempt(req *http.Request) attempt {
	v := attempt{at: time.Since(s.start), path: req.URL.Path}
	if c := callOf(req.Context()); c != nil {
		v.call, v.attempt = c.id, int(c.attempts.Add(1))
	} else {
		v.call, v.attempt = -int(s.stray.Add(1)), 1
	}
	v.backend = max(slices.Index(s.scenario.Server.Hosts, "http://"+req.URL.Host), 0)
	if n := s.scenario.Server.Backends; n > 0 {
		v.backend = int(s.random.Fraction(v.call, v.attempt, drawBackend) * float64(n))
	}
	return v
}

// wait waits for the response, the attempt's timeout or the end of the context.
func (s *server) wait(ctx context.Context, r Response, j *job) error {
	var ready, timedOut <-chan time.Time
	var done <-chan struct{}
	timeout := s.scenario.Server.attemptTimeout()
	switch {
	case j != nil:
		done = j.done
	case !r.Hang && (timeout < 0 || r.After <= timeout):
		timer := time.NewTimer(r.After)
		defer timer.Stop()
		ready = timer.C
	}
	if ready == nil && timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		timedOut = timer.C
	}
	select {
	case <-done:
		return nil
	case <-ready:
		return nil
	case <-timedOut:
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

// count counts an attempt, before its result is known.
func (s *server) count(v attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load.add(v.at)
	s.arrived = append(s.arrived, v.at)
}

// arrive returns the response of an attempt, and the job to wait for, if there is one. Faults
// apply first, then the limit, then the queue.
func (s *server) arrive(v attempt) (Response, http.Header, *job) {
	if m := s.scenario.Model; m != nil {
		resp, header := m.Arrive(v.call, v.attempt, v.at)
		return resp, header, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp, worked := Response{Status: http.StatusOK}, true
	if f, i := s.fault(v); f != nil {
		resp, worked = f.Response, f.Worked
		resp.After = s.random.between(resp.After, resp.Until, v.call, v.attempt, drawFault+2*i+1)
	}
	header := resp.header()
	if !worked {
		return s.count429(v, resp), header, nil
	}
	if limitHeader, ok := s.limiter.admit(s.start.Add(v.at)); !ok {
		s.limited.add(v.at)
		return s.count429(v, Response{Status: s.scenario.Server.Limit.status()}), limitHeader, nil
	} else if limitHeader != nil {
		header = limitHeader
	}
	s.taken.add(v.at)
	if s.scenario.Server.workers() < 0 {
		resp.After = s.crowded(v)
		return resp, header, nil
	}
	j := s.pool.enter(s.serviceOf(v))
	if j == nil {
		resp = Response{Status: http.StatusServiceUnavailable, RetryAfter: s.scenario.Server.RetryAfter}
		header = resp.header()
	}
	return s.count429(v, resp), header, j
}

// count429 counts the response if it is a 429.
func (s *server) count429(v attempt, a Response) Response {
	if a.Status == http.StatusTooManyRequests {
		s.tooMany.add(v.at)
	}
	return a
}

// fault returns the first fault that matches the attempt, or nil. The server is locked.
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
