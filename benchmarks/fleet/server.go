package fleet

import (
	"cmp"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
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

func (s Server) workers() int                  { return cmp.Or(s.Workers, defaultWorkers) }
func (s Server) service() time.Duration        { return cmp.Or(s.Service, defaultService) }
func (s Server) attemptTimeout() time.Duration { return cmp.Or(s.AttemptTimeout, defaultTimeout) }
func (s Server) queue() int                    { return max(cmp.Or(s.Queue, defaultQueue), 0) }

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
		ready = time.After(r.After)
	}
	if ready == nil && timeout > 0 {
		timedOut = time.After(timeout)
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

// The default server.
const (
	defaultQueue   = 1000
	defaultWorkers = 12
	defaultService = 10 * time.Millisecond
	defaultTimeout = 500 * time.Millisecond // timeout of an attempt
)

// pool is a FIFO queue in front of workers.
type pool struct {
	workers  func() int // current number
	queueMax int

	mu    sync.Mutex
	busy  int
	queue []*job
}

// job is a request in the queue. done has a buffer, because its client may have left.
type job struct {
	service time.Duration
	done    chan struct{}
}

// enter queues a request with its service time. It returns nil if the queue is full.
func (p *pool) enter(service time.Duration) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= p.queueMax && (p.queueMax > 0 || p.busy >= p.workers()) {
		return nil
	}
	j := &job{service: service, done: make(chan struct{}, 1)}
	p.queue = append(p.queue, j)
	p.work()
	return j
}

// work starts the first jobs of the queue on all free workers. The pool is locked.
func (p *pool) work() {
	for len(p.queue) > 0 && p.busy < p.workers() {
		j := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.busy++
		time.AfterFunc(j.service, func() { p.end(j) })
	}
}

// end ends a job.
func (p *pool) end(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.done <- struct{}{}
	p.busy--
	p.work()
}

// overNetwork sends an attempt to the server and waits for its response. The server does not
// learn that the client has left, so it receives and does all requests.
func (s *server) overNetwork(req *http.Request, v attempt) (*http.Response, error) {
	var result Response
	var header http.Header
	received := &job{done: make(chan struct{}, 1)}
	mean := s.scenario.Server.Network
	there := s.random.exponential(mean, v.call, v.attempt, drawThere)
	back := s.random.exponential(mean, v.call, v.attempt, drawBack)
	time.AfterFunc(there, func() {
		v.at += there
		var j *job
		result, header, j = s.arrive(v)
		if j != nil {
			<-j.done
		}
		time.AfterFunc(result.After+back, func() { received.done <- struct{}{} })
	})
	if err := s.wait(req.Context(), Response{}, received); err != nil {
		return nil, err
	}
	if result.Err != nil {
		return nil, result.Err
	}
	return respond(req, result.Status, header), nil
}

// serviceOf is the service time of a request, which is known when it arrives.
func (s *server) serviceOf(v attempt) time.Duration {
	service := s.scenario.Server.service()
	for _, p := range s.scenario.Server.Paces {
		if v.at >= p.From && v.at < p.To {
			service = p.Service
			break
		}
	}
	if s.scenario.Server.Exponential {
		return s.random.exponential(service, v.call, v.attempt, drawService)
	}
	return service
}

// crowded is the service time in a server with unlimited workers, which PerRequest makes
// longer for each request that is in it. The server is locked.
func (s *server) crowded(v attempt) time.Duration {
	s.inside++
	service := s.serviceOf(v) + time.Duration(s.inside)*s.scenario.Server.PerRequest
	time.AfterFunc(service, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside--
	})
	return service
}

// Fault is one failure of a server: the requests that match, and their response. The first
// fault that matches a request decides.
type Fault struct {
	From, To time.Duration // since the start; both 0: the scenario's During, without an end if After is 0
	Path     string        // of the requests; "": any
	Backends []int         // of the request; nil: any
	Share    float64       // ratio of the matching requests; 0: all
	Times    int           // maximum number; 0: unlimited

	Response Response
	Worked   bool // the response comes after the limit and the queue
}

// Response is the response of the server to a request.
type Response struct {
	Status     int // 0: none
	RetryAfter int // seconds; 0: no header

	Err  error // instead of a status
	Hang bool  // no response

	After, Until time.Duration // delay: uniformly between After and Until; Until 0: After
}

// The errors of a transport if a connection is refused or reset, for a Response.
var (
	ErrRefused error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	ErrReset   error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
)

// attempt is one HTTP request.
type attempt struct {
	at            time.Duration // since the start
	call, attempt int
	path          string
	backend       int
}

// matches reports whether the fault, the i-th of the scenario, applies to the attempt. It has
// happened the given number of times.
func (f *Fault) matches(v attempt, s *Scenario, d Chance, i, happened int) bool {
	from, to := stretch(f.From, f.To, s)
	return v.at >= from && v.at < to &&
		(f.Path == "" || f.Path == v.path) &&
		(f.Backends == nil || slices.Contains(f.Backends, v.backend)) &&
		(f.Times == 0 || happened < f.Times) &&
		(f.Share == 0 || d.Fraction(v.call, v.attempt, drawFault+2*i) < f.Share)
}

// stretch is the time from..to, or the scenario's During. During has no end if there is no
// After: late attempts must not find a healthy server.
func stretch(from, to time.Duration, s *Scenario) (time.Duration, time.Duration) {
	switch {
	case from != 0 || to != 0:
		return from, to
	case s.After == 0:
		return s.Before, math.MaxInt64
	}
	return s.Before, s.Before + s.During
}

func (r Response) header() http.Header {
	if r.RetryAfter == 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(r.RetryAfter)}}
}

// tier is a service that sends a request to the next tier for each request. It is a
// RoundTripper, because the model has no network.
type tier struct {
	handler http.Handler
}

func newTier(next peers.Client) tier {
	return tier{resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := next.Do(request(r.Context(), r.Method, r.URL.Path))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
	})}}
}

// RoundTrip implements http.RoundTripper.
func (t tier) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	ctx, cancel := received(req.Context())
	defer cancel()
	recorder := httptest.NewRecorder()
	t.handler.ServeHTTP(recorder, req.Clone(ctx))
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	return respond(req, recorder.Code, nil), nil
}

// received is the context of a request at its receiver. It keeps the sender's cancellation
// and the call, and no deadline or other value.
func received(sent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(withCall(context.Background(), callOf(sent)))
	stop := context.AfterFunc(sent, cancel)
	return ctx, func() { stop(); cancel() }
}
