package fleet

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// server is the model, and the base RoundTripper of all clients: there is no
// network between them. It must be made and used in a synctest bubble.
type server struct {
	scenario Scenario
	start    time.Time

	mu      sync.Mutex
	random  *rand.Rand
	busy    int    // workers
	queue   []*job // FIFO
	window  int64  // of the quota
	used    int    // of the quota, in that window
	load    series // requests that arrived
	limited series // those answered 429
	taken   series // those let in under the quota
}

// job is a request in the queue. Its answer is a status, and there is room for
// it whether or not somebody waits.
type job struct{ answer chan int }

func newServer(s Scenario, start time.Time, seed uint64) *server {
	return &server{scenario: s, start: start, random: rand.New(rand.NewPCG(seed, 2))}
}

// gaveUpError is the error of a base that has waited for long enough.
type gaveUpError struct{}

func (gaveUpError) Error() string   { return "fleet: no answer within 500 ms" }
func (gaveUpError) Timeout() bool   { return true }
func (gaveUpError) Temporary() bool { return true }

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
	j, status, header := s.arrive(time.Now())
	if j == nil {
		return respond(req, status, header), nil
	}
	var enough <-chan time.Time
	if !s.scenario.tail {
		timer := time.NewTimer(giveUp)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case status = <-j.answer:
		return respond(req, status, header), nil
	case <-enough:
		return nil, gaveUpError{}
	case <-ctx.Done():
		return nil, ctx.Err()
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

// arrive takes a request in, or answers it at once: then the job is nil.
func (s *server) arrive(now time.Time) (j *job, status int, header http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := now.Sub(s.start)
	s.load.add(at)
	during := s.during(at)
	if s.scenario.outage && during {
		return nil, http.StatusServiceUnavailable, nil
	}
	if s.scenario.quota > 0 {
		if header = s.admit(now); header.Get("Retry-After") != "" {
			s.limited.add(at)
			return nil, http.StatusTooManyRequests, header
		}
		s.taken.add(at)
	}
	j = &job{answer: make(chan int, 1)}
	if s.scenario.tail {
		latency := 20 * time.Millisecond
		if s.random.Float64() < 0.05 {
			latency = time.Second
		}
		time.AfterFunc(latency, func() { j.answer <- http.StatusOK })
		return j, 0, header
	}
	if len(s.queue) == queueMax {
		return nil, http.StatusServiceUnavailable, nil
	}
	s.queue = append(s.queue, j)
	s.work(at)
	return j, 0, header
}

func (s *server) during(at time.Duration) bool {
	return at >= s.scenario.Before && at < s.scenario.Before+s.scenario.During
}

// capacity is how many workers there are.
func (s *server) capacity(at time.Duration) int {
	if s.scenario.workers > 0 && s.during(at) {
		return s.scenario.workers
	}
	return workers
}

// work gives the first jobs of the queue to the workers that are free: more than
// one where workers have come back. The server is locked.
func (s *server) work(at time.Duration) {
	for len(s.queue) > 0 && s.busy < s.capacity(at) {
		j := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.busy++
		time.AfterFunc(service, func() { s.done(j) })
	}
}

// done answers a job, whether or not its client still waits.
func (s *server) done(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := http.StatusOK
	if s.scenario.errorRate > 0 && s.random.Float64() < s.scenario.errorRate {
		status = http.StatusInternalServerError
	}
	j.answer <- status
	s.busy--
	s.work(time.Since(s.start))
}

// admit counts a request against the quota, whose windows are the seconds of the
// clock, and returns GitHub's headers. With Retry-After, it was one too many.
func (s *server) admit(now time.Time) http.Header {
	if window := now.Unix(); window != s.window {
		s.window, s.used = window, 0
	}
	h := http.Header{
		"Date":              {now.UTC().Format(http.TimeFormat)},
		"X-Ratelimit-Limit": {strconv.Itoa(s.scenario.quota)},
		"X-Ratelimit-Reset": {strconv.FormatInt(s.window+1, 10)},
	}
	if s.used == s.scenario.quota {
		h["Retry-After"] = []string{"1"}
	} else {
		s.used++
	}
	h["X-Ratelimit-Remaining"] = []string{strconv.Itoa(s.scenario.quota - s.used)}
	return h
}
