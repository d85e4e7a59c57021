package admission

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/priority"
	"github.com/resilienthttp/resilienthttp/internal/validate"
)

// Shedder refuses what the machine cannot bear, so that what it accepts is served in
// time. It limits how many requests are in flight, and finds the limit itself, by how
// long they take: as long as more in flight make nobody wait, there may be more.
//
// Who finds no place waits for one, the most important first and of those the newest;
// when the queue is full, the least important and oldest is answered at once. What has
// no chance to be served before its deadline (that of the request's context, see
// resilienthttp.Deadline.Handler) is refused at once as well. Refusals are 503, with a
// Retry-After and the problem type temporary-reduced-capacity.
//
// A place is held until the handler returns, panics, or hijacks the connection. So set
// http.Server.ReadTimeout: clients that announce a body and never send it would hold all
// places, where handlers read it. Requests that take very different times for reasons of their own should have
// Shedders of their own, by route: uploads and long polls above all.
//
// Who has a place yields the processor once before its handler begins, so that those who
// stand behind it come in: also where handlers only compute, the queue stands in the
// Shedder, and not in Go's scheduler, which interrupts nobody for 10 ms and knows no
// priorities. Requests that take less than 10 µs do not yield.
//
// The zero value is ready for use. Fields are frozen at first use. A Shedder is safe
// for concurrent use and must not be copied; its Handlers share one limit. It has no
// goroutine.
type Shedder struct {
	// Initial is how many requests may be in flight at first, Min and Max how many at
	// least and at most, ever. 0 means 20, 4 and 1000; an Initial or Min that is not
	// set is at most Max, and an Initial or Max at least Min. Where the fewest are
	// still too many for their deadlines, because a request takes long and hardly two
	// can be worked on at a time, set Min to 1.
	Initial, Min, Max int

	// Tolerance is how many times as long as unhurried ones requests may take until
	// there are too many. 0 means 2; it must be more than 1. Negative: the limit stays
	// at Initial.
	Tolerance float64

	// Queue is how many may wait for a place. 0 means as many as get one within MaxWait, by
	// how long requests took, and twice the limit at least; negative: none.
	Queue int

	// MaxWait is the longest that a request waits for a place, if its deadline leaves
	// so much. 0 means 100 ms, or twice as long as requests take if that is longer;
	// what is critical and has a deadline then waits as long as it leaves time to be
	// served. Negative: nobody waits.
	MaxWait time.Duration

	// Priority is how much a request matters. nil means PriorityDefault for all;
	// PriorityFromHeader trusts what the client says, which is for behind your own edge
	// only. Values that are not one of the three count as PriorityDefault. What was
	// decided is the priority of the context that the handler gets, over that of the
	// header (resilienthttp.PriorityFromContext).
	Priority func(*http.Request) resilienthttp.Priority

	// Trace is told what happens; nil: nothing is.
	Trace *Trace

	once    sync.Once
	err     error // of the configuration
	epoch   time.Time
	waiters sync.Pool // of *waiter

	mu       sync.Mutex
	gate     gate
	visits   *inFlightRequests
	admitted uint64
	refused  uint64
}

// ShedderState is what a Shedder knows at a moment.
type ShedderState struct {
	// Limit is how many requests may be in flight.
	Limit int

	// InFlight is how many are, and Queued how many wait.
	InFlight, Queued int

	// BaselineLatency is how long a request takes when there are few, on average; 0 until
	// enough have been seen.
	BaselineLatency time.Duration

	// Admitted and Rejected count since the beginning.
	Admitted, Rejected uint64
}

// PriorityFromHeader is the priority that the request's X-Request-Priority names: batch or
// critical, and PriorityDefault for anything else. The client chooses it, so it is for
// a Shedder whose clients are all your own.
func PriorityFromHeader(r *http.Request) resilienthttp.Priority {
	if values := r.Header[priority.Header]; len(values) > 0 {
		return resilienthttp.Priority(priority.Parse(values[0]))
	}
	return resilienthttp.PriorityDefault
}

// Validate is what is wrong with the configuration, all of it, nil if nothing is: call it
// at start. A Shedder that is misconfigured answers 500 to all. Wrong is also a MaxWait
// that nobody can mean: 100 is a hundred nanoseconds.
func (s *Shedder) Validate() error {
	wrong := validate.Errors{Of: errAdmission}
	initial, least, most := s.bounds()
	switch {
	case s.Initial < 0 || s.Min < 0 || s.Max < 0:
		wrong.Check(true, fmt.Sprintf("Initial %d, Min %d and Max %d must not be negative", s.Initial, s.Min, s.Max))
	case least > most:
		wrong.Check(true, fmt.Sprintf("Min is %d, and must be at most %d (Max)", least, most))
	default:
		wrong.Check(initial < least || initial > most, fmt.Sprintf("Initial is %d, and must be from %d (Min) to %d (Max)", initial, least, most))
	}
	sound := s.Tolerance == 0 || s.Tolerance < 0 || s.Tolerance > 1
	wrong.Check(!sound, fmt.Sprintf("Tolerance is %v, and must be more than 1", s.Tolerance)) // NaN too
	wrong.Duration("MaxWait", s.MaxWait)
	return wrong.Err()
}

// bounds are the limit at first, at least and at most.
func (s *Shedder) bounds() (initial, least, most int) {
	initial, least, most = s.Initial, s.Min, s.Max
	if most == 0 {
		most = max(defaultMax, initial, least)
	}
	if least == 0 {
		least = min(defaultMin, most)
		if initial > 0 {
			least = min(least, initial)
		}
	}
	if initial == 0 {
		initial = min(max(defaultInitial, least), most)
	}
	return initial, least, most
}

func (s *Shedder) init() {
	s.once.Do(func() {
		s.err = s.Validate()
		s.epoch = time.Now()
		tolerance := s.Tolerance
		if tolerance == 0 {
			tolerance = defaultTolerance
		}
		initial, least, most := s.bounds()
		s.gate = gate{limiter: newLimiter(initial, least, most, tolerance), most: s.Queue, maxWait: s.MaxWait}
	})
}

// State is what the Shedder knows now.
func (s *Shedder) State() ShedderState {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	return ShedderState{
		Limit: s.gate.slots(), InFlight: s.gate.inflight, Queued: s.gate.queue.len,
		BaselineLatency: time.Duration(s.gate.base * float64(time.Second)),
		Admitted:        s.admitted, Rejected: s.refused,
	}
}

// Handler lets through to next what the Shedder has a place for.
func (s *Shedder) Handler(next http.Handler) http.Handler {
	shed := newProblem(http.StatusServiceUnavailable, reducedCapacity, "The server is short of capacity")
	wrong := misconfigured()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.init()
		if s.err != nil {
			s.Trace.refused(&Event{Request: r, Reason: ReasonMisconfigured, Status: wrong.status, Err: s.err})
			reject(w, r, &wrong, 0)
			return
		}
		p := s.priorityOf(r)
		pass := s.enter(r.Context(), class(p))
		if s.Trace != nil {
			s.trace(r, p, &pass, shed.status)
		}
		if pass.why != ReasonNone {
			reject(w, r, &shed, pass.retry)
			return
		}
		s.serve(next, w, r, p, pass)
	})
}

func (s *Shedder) trace(r *http.Request, p resilienthttp.Priority, pass *pass, status int) {
	e := Event{Request: r, Priority: p, Reason: pass.why, Queued: pass.queued, RetryAfter: pass.retry}
	if pass.why == ReasonNone {
		s.abandonOnPanic(pass, func() { s.Trace.admitted(&e) })
		return
	}
	e.Status = status
	s.Trace.refused(&e)
}

// abandonOnPanic gives a place back if do does not return.
func (s *Shedder) abandonOnPanic(pass *pass, do func()) {
	returned := false
	defer func() {
		if !returned {
			s.leave(s.now(), sample{took: -1, flight: pass.flight})
		}
	}()
	do()
	returned = true
}

func (s *Shedder) priorityOf(r *http.Request) resilienthttp.Priority {
	if s.Priority == nil {
		return resilienthttp.PriorityDefault
	}
	switch p := s.Priority(r); p {
	case resilienthttp.PriorityBatch, resilienthttp.PriorityCritical:
		return p
	default:
		return resilienthttp.PriorityDefault
	}
}

// serve calls the handler of a request that has a place.
func (s *Shedder) serve(next http.Handler, w http.ResponseWriter, r *http.Request, p resilienthttp.Priority, pass pass) {
	v := pass.visit
	v.w, v.shedder, v.r, v.began, v.flight = w, s, r, pass.began, int32(pass.flight)
	defer v.end()
	if ctx := r.Context(); resilienthttp.PriorityFromContext(ctx) != p {
		original := r
		r = r.WithContext(resilienthttp.WithPriority(ctx, p))
		defer func() { original.MultipartForm = r.MultipartForm }() // the server removes its files, when all is over
	}
	if pass.yields {
		runtime.Gosched() // its time counts, as that of its handler
	}
	next.ServeHTTP(v.writer(), r)
	v.returned = true
}

// pass is what enter has decided.
type pass struct {
	why    Reason
	visit  *inFlightRequest // for who has a place
	flight int              // how many have a place, with this one
	began  time.Duration    // since when it has one
	yields bool             // it lets others in before it begins
	queued time.Duration
	retry  time.Duration // for a refusal
}

// retryAfter is what who is refused is told to wait, and up to half of it more.
const retryAfter = time.Second

func (s *Shedder) now() time.Duration { return time.Since(s.epoch) }

// enter takes a place, waiting for it if need be.
func (s *Shedder) enter(ctx context.Context, class int) pass {
	now, left := s.now(), forever
	if deadline, ok := ctx.Deadline(); ok {
		left = deadline.Sub(s.epoch) - now
	}
	s.mu.Lock()
	flight, hopeless := s.gate.enter(now, left)
	if flight > 0 {
		p := pass{visit: s.visit(), flight: flight, began: now, yields: s.gate.yields()}
		s.mu.Unlock()
		return p
	}
	p := pass{why: ReasonDeadline}
	if !hopeless {
		p = s.queue(ctx, now, left, class)
		s.mu.Lock()
	}
	if p.why == ReasonNone {
		p.visit, p.yields = s.visit(), s.gate.yields()
	} else {
		s.refused++
		p.retry = jittered(retryAfter)
	}
	s.mu.Unlock()
	return p
}

// visit is one for who is let in. The Shedder is locked.
func (s *Shedder) visit() *inFlightRequest {
	s.admitted++
	if s.visits.empty() {
		s.visits = new(inFlightRequests)
	}
	return s.visits.next()
}

// queue waits for a place. The Shedder is locked, and not any more afterwards.
func (s *Shedder) queue(ctx context.Context, now, left time.Duration, class int) pass {
	w := s.waiter()
	defer s.waiters.Put(w)
	w.class = class
	room, why := s.gate.join(now, left, w)
	if room != nil {
		room.verdict <- evicted
	}
	s.mu.Unlock()
	if why != ReasonNone {
		return pass{why: why}
	}
	why = s.wait(ctx, w, w.until-now)
	p := pass{why: why, flight: w.flight, began: s.now()}
	p.queued = p.began - now
	if why == ReasonNone && ctx.Err() != nil {
		// In this very moment.
		s.leave(s.now(), sample{took: -1, flight: w.flight})
		p.why = reasonOf(ctx)
	}
	return p
}

// wait is until somebody has decided, or the time is over.
func (s *Shedder) wait(ctx context.Context, w *waiter, most time.Duration) Reason {
	w.timer.Reset(most)
	defer w.timer.Stop()
	var why Reason
	select {
	case v := <-w.verdict:
		return v.reason()
	case <-w.timer.C:
		why = ReasonQueueTimeout
	case <-ctx.Done():
		why = reasonOf(ctx)
	}
	s.mu.Lock()
	queued := w.queued
	s.gate.remove(w)
	s.mu.Unlock()
	if !queued { // somebody has decided in this very moment
		why = (<-w.verdict).reason()
	}
	return why
}

// reasonOf is why the context has ended.
func reasonOf(ctx context.Context) Reason {
	if ctx.Err() == context.DeadlineExceeded {
		return ReasonDeadline
	}
	return ReasonCanceled
}

func (s *Shedder) waiter() *waiter {
	if w, ok := s.waiters.Get().(*waiter); ok {
		return w
	}
	w := &waiter{verdict: make(chan verdict, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// leave gives a place back, and those that have come to others.
func (s *Shedder) leave(now time.Duration, sample sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.done(now, sample)
	for w := s.gate.next(); w != nil; w = s.gate.next() {
		w.verdict <- admitted
	}
}
