package route

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/hold"
)

// Server is a target of a list, with what all calls know of it. Record is what the caller keeps for it.
type Server[R any] struct {
	*Target

	Record  R
	Circuit *circuit.Circuit
	Rest    *Rest

	index int
	tried atomic.Bool // the call has sent an attempt to it
}

// Call is what a call knows of its servers. A nil Call has one, which its request names. It is safe for concurrent use.
type Call[R any] struct {
	*Route

	Records []R // of the targets, in their order

	Safe bool // the method is safe
	Free bool // two servers may get the request, whatever the first one did

	servers []Server[R]
	bound   atomic.Bool // a server may have done the work
}

// NewCall returns the servers of a call that has sent nothing.
func NewCall[R any](r *Route, server func(*Target) (R, *circuit.Circuit, *Rest)) *Call[R] {
	c := &Call[R]{Route: r, servers: make([]Server[R], len(r.Targets))}
	for i := range r.Targets {
		s := &c.servers[i]
		s.Target, s.index = &r.Targets[i], i
		s.Record, s.Circuit, s.Rest = server(s.Target)
		c.Records = append(c.Records, s.Record)
	}
	return c
}

// Visit is where one attempt goes.
type Visit[R any] struct {
	*Server[R] // nil: the server that the request names

	Record    R
	Again     bool // the call has sent an attempt to the server before
	AtOnce    bool // the attempt must not wait for a permit, because another server may have one
	Probes    bool // the attempt probes the server, and other calls do not: see Rest
	Overtaken bool // an attempt at another server had its response first
	reach     reach
}

// reach is which servers may get an attempt.
type reach uint8

const (
	all     reach = iota
	untried       // after a failure elsewhere: those that the call has not tried
	one           // that of the Visit
)

// Moves reports whether the attempt goes at once to a server that the call has not tried.
func (v *Visit[R]) Moves() bool { return v.reach == untried }

// Apply sets the Header fields of the server in a copy of a header. The server that the request names has none.
func (v *Visit[R]) Apply(h http.Header) http.Header {
	if v.Server == nil {
		return h
	}
	return v.Target.Apply(h)
}

// Kind is why an attempt follows another one.
type Kind uint8

// The kinds of Next.
const (
	Retry     Kind = iota
	RetryHere      // the last server must get it
	Copy           // the other one is in flight
)

// First returns the Visit of the first attempt.
func (c *Call[R]) First() Visit[R] { return visit(&c.servers[c.Route.First]) }

func visit[R any](s *Server[R]) Visit[R] { return Visit[R]{Server: s, Record: s.Record} }

// Next returns the Visit of an attempt after another one. A retry moves to a server that the call has not tried.
// If there is none, it goes to the next server that would admit it. A copy goes elsewhere only if the call is Free.
func (c *Call[R]) Next(last *Visit[R], kind Kind, now time.Time) Visit[R] {
	next := visit(last.Server)
	bound := c.bound.Load() || kind == Copy
	if kind == RetryHere || bound && !c.Free {
		next.reach = one
		return next
	}
	for i := range c.servers[1:] {
		switch s := c.at(last.index + 1 + i); {
		case s.Circuit.Rejects(now) != nil || s.Rest.resting(now):
		case !s.tried.Load():
			next = visit(s)
			if kind == Retry {
				next.reach = untried
			}
			return next
		case next.Server == last.Server:
			next = visit(s)
		}
	}
	return next
}

func (c *Call[R]) at(i int) *Server[R] { return &c.servers[i%len(c.servers)] }

// Rejection is the result of the gates of a server.
type Rejection struct {
	Waits bool      // an attempt that waits may get a permit
	Until time.Time // when; zero: unknown
}

// Alone reports whether the call has one server, so that waiting for it loses no other one.
func (c *Call[R]) Alone() bool { return c == nil || len(c.servers) == 1 }

// MaxHold returns how long an attempt waits for the circuit of one server: then another one may be back.
func (c *Call[R]) MaxHold() time.Duration {
	if c.Alone() {
		return math.MaxInt64
	}
	return hold.Hanging
}

// Bind keeps a call at the server of its first attempt, unless it is Free: the server redirected a call that is in
// doubt.
func (c *Call[R]) Bind(v *Visit[R]) {
	if c == nil {
		return
	}
	if c.bound.Store(true); !c.Free {
		v.reach = one
	}
}

// BoundTo returns the name of the server that may have done the work of the call, so that no other one may get it. Otherwise it is "".
func (c *Call[R]) BoundTo(last *Visit[R]) string {
	if c == nil || c.Free || !c.bound.Load() {
		return ""
	}
	return last.Scope
}

// Return makes a call that repeats another one begin at the server to which that was bound.
func (c *Call[R]) Return(v *Visit[R], server string) {
	for i := range c.servers {
		if s := &c.servers[i]; s.Scope == server {
			*v = visit(s)
			c.Bind(v)
		}
	}
}

// Pass calls try for one server after the other, until it returns nil. The servers that work come
// first, and no attempt waits while another server may admit it. If none does, the attempt waits for
// the first permit, unless it is a copy.
func (c *Call[R]) Pass(v *Visit[R], concurrent bool, now time.Time, try func() *Rejection) {
	if start := v.index; v.reach != one {
		var best *Server[R]
		var soonest *Rejection
		v.AtOnce = true
		for _, careful := range [...]bool{true, false} {
			for i := range c.servers {
				s := c.at(start + i)
				known := v.Moves() && s.tried.Load()
				if known || careful && !c.prefers(v, s, now) {
					continue
				}
				v.enter(s)
				r := try()
				if r == nil {
					return
				}
				if c.Safe && r.Waits {
					s.Rest.safe.Store(0) // its quota is used up, so it cannot probe for the others
				}
				v.leave()
				waitsLess := soonest == nil || !soonest.Waits || r.Until.Before(soonest.Until)
				if soonest == nil || r.Waits && waitsLess {
					best, soonest = s, r
				}
			}
		}
		if concurrent {
			return
		}
		if v.Moves() { // none that is new admits it: one that was tried may
			v.reach = all
			c.Pass(v, concurrent, now, try)
			return
		}
		v.AtOnce, v.Server = false, best
	}
	v.enter(v.Server)
	if try() != nil {
		v.leave()
	}
}

func (v *Visit[R]) enter(s *Server[R]) {
	v.Server, v.Record = s, s.Record
	v.Again = s.tried.Swap(true)
}

func (v *Visit[R]) leave() {
	v.EndProbe(time.Time{})
	v.tried.Store(v.Again)
}

// prefers reports whether the attempt may use the server before the others: the server works, or the
// attempt probes it now. An unsafe attempt leaves probes to safe ones, if any meet the server.
func (c *Call[R]) prefers(v *Visit[R], s *Server[R], now time.Time) bool {
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
func (v *Visit[R]) EndProbe(next time.Time) {
	if v.Probes {
		v.Probes = false
		v.Rest.until.Store(stamp(next))
	}
}

// Result is how an attempt ended. Neither a success nor a failure says nothing about the server.
type Result struct {
	Sent, Now  time.Time
	Success    bool
	Failure    bool          // a reason for a retry
	NoWork     bool          // the server did not begin the work of the attempt
	RetryAfter time.Duration // the wait that the server asks for
}

// Done notes the result of an attempt.
func (c *Call[R]) Done(v *Visit[R], r Result) {
	if c == nil {
		return
	}
	if r.Success {
		v.EndProbe(time.Time{})
	} else {
		v.EndProbe(r.Sent.Add(ProbePause))
	}
	if r.Failure && r.RetryAfter > 0 {
		v.Rest.until.Store(stamp(r.Now.Add(min(r.RetryAfter, maxRest))))
	}
	if !r.NoWork { // also after a failure that is no reason for a retry: a copy may have one
		c.bound.Store(true)
	}
}

// Slow returns the age at which a probe gets a second attempt elsewhere: slow, or less. usual is
// the usual latency of the server's responses. Zero means never for slow, and unknown for usual.
func Slow(slow, usual time.Duration) time.Duration {
	probe := circuit.MinSlow(usual)
	if usual == 0 {
		probe = hold.Hanging
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

// safeWithin is false if the clock was set back by more. A caller that read the clock first may come last.
func (r *Rest) safeWithin(now time.Time, d time.Duration) bool {
	return time.Duration(stamp(now)-r.safe.Load()).Abs() <= d
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (r *Rest) resting(now time.Time) bool {
	remaining := r.until.Load() - stamp(now)
	return remaining > 0 && remaining <= int64(maxRest) // more: the clock was set back
}

// claim makes the caller the only one that probes.
func (r *Rest) claim(now time.Time, lease time.Duration) bool {
	until := r.until.Load()
	return !r.resting(now) && r.until.CompareAndSwap(until, stamp(now.Add(lease)))
}
