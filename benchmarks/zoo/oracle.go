package zoo

import (
	"net/http"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
)

// patience is how long a call of the oracle waits for units at most: as long as a call of this
// library by default.
const patience = time.Minute

// oracle is a client of all processes that knows the server's counters: a call waits in the order
// of the calls of its path and model until its units are there, and is never rejected.
type oracle struct {
	server *server

	mu     sync.Mutex
	queues map[[2]int][]*waiter
}

// waiter is a waiting call. first receives a value when it becomes the first of its queue.
type waiter struct{ first chan struct{} }

func newOracle(s *server) *oracle {
	return &oracle{server: s, queues: map[[2]int][]*waiter{}}
}

// client is the oracle of a process.
type client struct {
	*oracle
	base http.RoundTripper
}

// Do implements peers.Client.
func (o client) Do(req *http.Request) (*http.Response, error) {
	c := o.server.newCall(fleet.CallID(req.Context()))
	most := o.patience(req, c)
	if most <= 0 {
		return nil, http.ErrHandlerTimeout
	}
	key := o.queue(c)
	w := &waiter{first: make(chan struct{}, 1)}
	o.mu.Lock()
	o.queues[key] = append(o.queues[key], w)
	if len(o.queues[key]) == 1 {
		w.first <- struct{}{}
	}
	o.mu.Unlock()
	defer o.leave(key, w)

	end := time.NewTimer(most)
	defer end.Stop()
	next := w.first
	retry := time.NewTimer(0)
	defer retry.Stop()
	<-retry.C
	for {
		select {
		case <-next:
		case <-retry.C:
		case <-end.C:
			return nil, http.ErrHandlerTimeout
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		wait := o.grant(c)
		if wait <= 0 {
			o.leave(key, w)
			return o.base.RoundTrip(req)
		}
		retry.Reset(wait + time.Duration(key[0]+key[1])*apart)
	}
}

// patience is the time after which a call would get its response too late.
func (o *oracle) patience(req *http.Request, c call) time.Duration {
	most := patience
	if deadline, ok := req.Context().Deadline(); ok {
		v := visit{call: c, attempt: 1, now: clock()}
		most = min(most, time.Until(deadline)-o.server.duration(v)-apart)
	}
	return most
}

// queue is the queue of a call. Calls that share all limits share it.
func (o *oracle) queue(c call) (key [2]int) {
	for _, l := range o.server.Limits {
		switch l.Split {
		case limiter.ByPath:
			key[0] = c.path
		case limiter.ByModel:
			key[1] = c.model
		case limiter.All:
		}
	}
	return key
}

// grant takes the units of the call, or returns how long the call must wait.
func (o *oracle) grant(c call) time.Duration {
	s, now := o.server, clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.earliest(c, now); at > now {
		return at - now
	}
	v := visit{call: c, attempt: 1, now: now}
	s.take(c, now, now+s.duration(v))
	s.granted[c.id] = true
	return 0
}

// leave removes the call from its queue.
func (o *oracle) leave(key [2]int, w *waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queues[key]
	for i := range queue {
		if queue[i] != w {
			continue
		}
		queue = append(queue[:i:i], queue[i+1:]...)
		if o.queues[key] = queue; i == 0 && len(queue) > 0 {
			queue[0].first <- struct{}{}
		}
		return
	}
}
