package route

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
)

// Server is a target of a call, with what all calls know of it.
type Server struct {
	*Target

	Index   int
	Circuit *circuit.Circuit
	Rest    *Rest

	tried bool // the call has sent an attempt to it; guarded by Call.mu
}

// Call is what a call knows of its servers. It is safe for concurrent use.
type Call struct {
	*Route

	Safe bool // the method is safe
	Free bool // two servers may get the request, whatever the first one did

	mu      sync.Mutex
	servers []Server
	bound   bool // a server may have done the work; guarded by mu
}

// NewCall returns the servers of a call that has sent nothing. circuits and rests are those of the
// targets, in their order.
func NewCall(r *Route, server func(t *Target, i int) (*circuit.Circuit, *Rest)) *Call {
	c := &Call{Route: r, servers: make([]Server, len(r.Targets))}
	for i := range r.Targets {
		s := Server{Target: &r.Targets[i], Index: i}
		s.Circuit, s.Rest = server(s.Target, i)
		c.servers[i] = s
	}
	return c
}

// Visit is where one attempt goes. Its methods accept nil: the call has no list.
type Visit struct {
	*Server

	Again  bool // the call has sent an attempt to the server before
	AtOnce bool // the attempt must not wait for a permit, because another server may have one
	Probes bool // the attempt probes the server, and other calls do not: see Rest
	Lost   bool // an attempt at another server had its response first

	moves bool // after a failure elsewhere; only servers that the call has not tried
	alone bool // no other server may get the attempt
}

// Header returns the header of a request to the server.
func (v *Visit) Header(h http.Header) http.Header {
	if v == nil {
		return h
	}
	return v.Apply(h)
}

// First returns the Visit of the first attempt.
func (c *Call) First() *Visit { return &Visit{Server: &c.servers[c.Route.First]} }

// Next returns the Visit of an attempt after another one. moves means that it goes at once to a
// server that the call has not tried. Otherwise it goes to the next server that would admit it. stay
// means that the last server must get it. A copy of an attempt in flight goes elsewhere only if the
// call is Free.
func (c *Call) Next(last *Visit, stay, concurrent bool, now time.Time) (next *Visit, moves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next = &Visit{Server: last.Server, alone: stay || !c.Free && (c.bound || concurrent)}
	if next.alone {
		return next, false
	}
	for i := range c.servers[1:] {
		switch s := c.at(last.Index + 1 + i); {
		case s.Circuit.Rejects(now) != nil || s.Rest.resting(now):
		case !s.tried:
			next.Server, next.moves = s, !concurrent
			return next, true
		case next.Server == last.Server:
			next.Server = s
		}
	}
	return next, false
}

func (c *Call) at(i int) *Server { return &c.servers[i%len(c.servers)] }

// Rejection is the result of the gates of a server.
type Rejection struct {
	Waits bool      // an attempt that waits may get a permit
	Until time.Time // when; zero: unknown
}

// Bind keeps a call at the server of its first attempt, unless it is Free: the server redirected a call that is in
// doubt.
func (c *Call) Bind(v *Visit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound, v.alone = true, !c.Free
}

// Pass calls try for one server after the other, until it returns nil. The servers that work come
// first, and no attempt waits while another server may admit it. If none does, the attempt waits for
// the first permit, unless it is a copy.
func (c *Call) Pass(v *Visit, concurrent bool, now time.Time, try func() *Rejection) {
	if start := v.Index; !v.alone {
		var best *Server
		var soonest *Rejection
		v.AtOnce = true
		for _, careful := range [...]bool{true, false} {
			for i := range c.servers {
				s := c.at(start + i)
				if v.moves && c.wasTried(s) || careful && !c.prefers(v, s, now) {
					continue
				}
				c.enter(v, s)
				r := try()
				if r == nil {
					return
				}
				if c.Safe && r.Waits {
					s.Rest.safe.Store(0) // its quota is used up, so it cannot probe for the others
				}
				if c.leave(v); soonest == nil || r.Waits && (!soonest.Waits || r.Until.Before(soonest.Until)) {
					best, soonest = s, r
				}
			}
		}
		if concurrent {
			return
		}
		if v.moves { // none that is new admits it: one that was tried may
			v.moves = false
			c.Pass(v, concurrent, now, try)
			return
		}
		v.AtOnce, v.Server = false, best
	}
	c.enter(v, v.Server)
	if try() != nil {
		c.leave(v)
	}
}

func (c *Call) wasTried(s *Server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.tried
}

func (c *Call) enter(v *Visit, s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.Server, v.Again, s.tried = s, s.tried, true
}

func (c *Call) leave(v *Visit) {
	v.EndProbe(time.Time{})
	c.mu.Lock()
	defer c.mu.Unlock()
	v.tried = v.Again
}

// prefers reports whether the attempt may use the server before the others: the server works, or the
// attempt probes it now. An unsafe attempt leaves probes to safe ones, if any meet the server.
func (c *Call) prefers(v *Visit, s *Server, now time.Time) bool {
	if c.Safe {
		s.Rest.noteSafe(now)
	}
	lease := ProbePause
	switch {
	case !s.Circuit.NotClosed():
		return !s.Rest.resting(now)
	case !c.Safe && s.Rest.safeWithin(now, safePeriod):
		return false // the request may be lost there
	case !c.Safe: // a second request might do the work of a hanging one
		lease = maxRest
	}
	v.Probes = s.Rest.claim(now, lease)
	return v.Probes
}

// EndProbe ends the probe of an attempt. Another one may follow at the given time.
func (v *Visit) EndProbe(next time.Time) {
	if v != nil && v.Probes {
		v.Probes = false
		v.Rest.until.Store(stamp(next))
	}
}

// Done notes the result of an attempt. A result that is neither a success nor a failure says nothing
// about the server. noWork means that the server did not begin the work of the attempt, and
// retryAfter is the wait that it asks for.
func (c *Call) Done(v *Visit, sent, now time.Time, success, failure, noWork bool, retryAfter time.Duration) {
	if success {
		v.EndProbe(time.Time{})
	} else {
		v.EndProbe(sent.Add(ProbePause))
	}
	if failure && retryAfter > 0 {
		v.Rest.until.Store(stamp(now.Add(min(retryAfter, maxRest))))
	}
	if !noWork { // also after a failure that is no reason for a retry: a copy may have one
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bound = true
	}
}

// Slow returns the age at which the attempt gets a second one elsewhere: slow, or less for a probe. usual is
// the latency of the server's quick responses. Zero means never for slow, and unknown for usual.
func (v *Visit) Slow(slow, usual time.Duration) time.Duration {
	probe := max(2*usual, minSlowProbe)
	switch {
	case !v.Probes:
		return slow
	case usual == 0:
		probe = maxSlowProbe
	}
	if slow == 0 {
		return probe
	}
	return min(slow, probe)
}

const (
	// ProbePause is the pause between the probes of a server that fails while another one works. A
	// caller with 40 calls a second pays for less than one call in a hundred, and the server is in use
	// again within 5 s.
	ProbePause = 3 * time.Second
	// A probe of a safe method gets a second attempt elsewhere at twice the usual latency, but not before
	// minSlowProbe. If the server has never responded, at maxSlowProbe.
	minSlowProbe, maxSlowProbe = 100 * time.Millisecond, time.Second
	// maxRest is the longest time for which calls prefer other servers.
	maxRest = time.Hour
	// safePeriod is the time after a call with a safe method in which others do not probe.
	safePeriod = time.Minute
)

// Rest is the time until which calls prefer other servers: a response has asked for a wait, or an
// attempt probes the server. It is safe for concurrent use. internal/hold does not fit: it needs a lock in each call.
type Rest struct {
	until atomic.Int64 // Unix time in nanoseconds
	safe  atomic.Int64 // when a call with a safe method last met the server; 0: never
}

// noteSafe notes a call that could have probed the server: not each one, because processors share the time.
func (r *Rest) noteSafe(now time.Time) {
	if !r.safeWithin(now, time.Second) {
		r.safe.Store(stamp(now))
	}
}

// safeWithin is false if the clock was set back.
func (r *Rest) safeWithin(now time.Time, d time.Duration) bool {
	last := r.safe.Load()
	age := stamp(now) - last
	return last != 0 && age >= 0 && age <= int64(d)
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (r *Rest) resting(now time.Time) bool {
	left := r.until.Load() - stamp(now)
	return left > 0 && left <= int64(maxRest) // more: the clock was set back
}

// claim makes the caller the only one that probes.
func (r *Rest) claim(now time.Time, lease time.Duration) bool {
	until := r.until.Load()
	return !r.resting(now) && r.until.CompareAndSwap(until, stamp(now.Add(lease)))
}
