package admission

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/field"
)

// Shedder limits how many requests are in flight, and finds the limit from their latency:
// while more in flight do not make requests slower, it lets in more. A request without a
// free slot waits for one by priority, and if it cannot be served in time, it is rejected at
// once with 503 and a Retry-After.
//
// The request's context has the deadline, see resilienthttp.DeadlineHandler. A slot is held
// until the handler returns, panics or hijacks the connection. Set http.Server.ReadTimeout,
// or a client that never sends its body holds a slot. Give routes with very different
// latencies (uploads, long polls) Shedders of their own.
//
// The zero value is ready for use. A Shedder is safe for concurrent use, and must not be
// copied or changed after first use. Its Handlers share one limit. See docs/admission.md.
type Shedder struct {
	// Initial is the first limit of requests in flight. Min and Max are the bounds of the
	// limit. Zero means 20, 4 and 1000; an Initial or Min of zero is lowered to Max, and an
	// Initial or Max of zero is raised to Min. If even 4 in flight are too slow for their
	// deadlines, set Min to 1.
	Initial, Min, Max int

	// Tolerance is the highest latency that is not too slow, as a multiple of the latency
	// of requests that do not wait for each other. Zero means 2; other values must be more
	// than 1. A negative Tolerance keeps the limit at Initial.
	Tolerance float64

	// Queue is the number of requests that may wait for a slot. Zero means twice the limit,
	// or as many as get a slot before they would have to leave the queue, if that is more.
	// A negative Queue means that no request waits.
	Queue int

	// MaxWait is the longest time that a request waits for a slot. Zero means 100 ms, or
	// twice the latency if that is longer. With zero, a request with a deadline waits as
	// long as the deadline allows; after a queue has stood for that long, only critical
	// requests do. A negative MaxWait means that no request waits.
	MaxWait time.Duration

	// Priority returns the priority of a request. Nil means PriorityDefault for all.
	// PriorityFromHeader trusts the client: use it behind your own edge only. An unknown
	// value means PriorityDefault. The handler's context has the result, and the request's
	// header does not change it (resilienthttp.PriorityFromContext).
	Priority func(*http.Request) resilienthttp.Priority

	// Key returns the client, tenant or account that a request belongs to. While others wait,
	// a key that uses more than a fifth of the capacity gets no more than an equal share. Keys
	// that were not yet admitted in three different seconds count as three keys at most, so use a
	// key that costs the client something. Nil means no shares. If Key returns an error, the
	// request gets 403. See docs/admission.md.
	Key func(*http.Request) (string, error)

	// NoRetryHint omits X-Should-Retry: false from rejections. Without it, rejections of
	// requests that are not critical have that header while the queue has not been empty
	// for 2 s. Clients that read it, this library's and others, do not retry the call.
	NoRetryHint bool

	// Trace has hooks for each request. Nil means none.
	Trace *Trace

	once    sync.Once
	err     error // of the configuration
	epoch   time.Time
	waiters sync.Pool // of *waiter

	mu       sync.Mutex
	gate     concurrencyGate
	unused   *inFlightRequests
	admitted uint64
	rejected uint64
}

// ShedderState is a snapshot of a Shedder.
type ShedderState struct {
	// Limit is the number of requests that may be in flight.
	Limit int

	// InFlight is the number of requests in flight. Queued is the number that wait.
	InFlight, Queued int

	// BaselineLatency is the average latency of requests that do not wait for each other.
	// Zero means that it is not known yet.
	BaselineLatency time.Duration

	// Admitted and Rejected count requests since the start.
	Admitted, Rejected uint64
}

// PriorityFromHeader returns the priority of the request's X-Request-Priority: batch,
// critical, or PriorityDefault for all other values. Any client can send the field, so use
// it behind your own edge only.
func PriorityFromHeader(r *http.Request) resilienthttp.Priority {
	return resilienthttp.Priority(field.ParsePriority(field.Value(r.Header, field.PriorityHeader)))
}

func (s *Shedder) init() {
	s.once.Do(func() {
		s.err = s.Validate()
		s.epoch = time.Now()
		initial, least, most := s.bounds()
		s.gate.limiter = newLimiter(initial, least, most, cmp.Or(s.Tolerance, defaultTolerance))
		s.gate.queueLimit, s.gate.maxWait = s.Queue, s.MaxWait
	})
}

// State returns a snapshot.
func (s *Shedder) State() ShedderState {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	return ShedderState{
		Limit: s.gate.slots(), InFlight: s.gate.limiter.inflight, Queued: s.gate.fairQueue.len,
		BaselineLatency: time.Duration(s.gate.base * float64(time.Second)),
		Admitted:        s.admitted, Rejected: s.rejected,
	}
}

// Handler returns a handler that calls next for the requests that get a slot.
func (s *Shedder) Handler(next http.Handler) http.Handler {
	shed := newProblem(http.StatusServiceUnavailable, reducedCapacity, "The server is short of capacity")
	lasting := shed
	lasting.permanent = true
	forbidden := newProblem(http.StatusForbidden, explained+"key", "The request belongs to no known key")
	wrong := misconfigured()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.init()
		if s.err != nil {
			s.Trace.rejected(&Event{Request: r, Reason: ReasonMisconfigured, Status: wrong.status, Err: s.err})
			reject(w, r, &wrong, 0)
			return
		}
		p := s.priorityOf(r)
		var key string
		if s.Key != nil {
			var err error
			if key, err = s.Key(r); err != nil {
				s.mu.Lock()
				s.rejected++
				s.mu.Unlock()
				s.Trace.rejected(&Event{Request: r, Priority: p, Reason: ReasonKeyError, Status: forbidden.status, Err: err})
				reject(w, r, &forbidden, 0)
				return
			}
		}
		pass := s.enter(r.Context(), key, class(p))
		if s.Trace != nil {
			s.trace(r, key, p, &pass, shed.status)
		}
		if pass.why != ReasonNone {
			rejection := &shed
			if pass.lasting {
				rejection = &lasting
			}
			reject(w, r, rejection, pass.retry)
			return
		}
		s.serve(next, w, r, p, pass)
	})
}

func (s *Shedder) trace(r *http.Request, key string, p resilienthttp.Priority, pass *pass, status int) {
	e := Event{Request: r, Key: key, Priority: p, Reason: pass.why, Queued: pass.queued, RetryAfter: pass.retry}
	if pass.why == ReasonNone {
		s.releaseOnPanic(pass, func() { s.Trace.admitted(&e) })
		return
	}
	e.Status = status
	s.Trace.rejected(&e)
}

// releaseOnPanic returns the slot if do panics.
func (s *Shedder) releaseOnPanic(pass *pass, do func()) {
	returned := false
	defer func() {
		if !returned {
			s.leave(s.now(), sample{took: -1, flight: pass.flight}, pass.key, pass.class)
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

// serve calls the handler of a request that has a slot.
func (s *Shedder) serve(next http.Handler, w http.ResponseWriter, r *http.Request, p resilienthttp.Priority, pass pass) {
	f := pass.request
	f.w, f.shedder, f.r, f.began, f.flight = w, s, r, pass.began, int32(pass.flight)
	f.key, f.class = pass.key, int8(pass.class)
	defer f.end()
	if ctx := r.Context(); resilienthttp.PriorityFromContext(ctx) != p {
		original := r
		r = r.WithContext(resilienthttp.WithPriority(ctx, p))
		defer func() { original.MultipartForm = r.MultipartForm }() // the server removes its files
	}
	if pass.yields {
		runtime.Gosched() // the latency includes this time
	}
	next.ServeHTTP(f.writer(), r)
	f.returned = true
}

// pass is the result of enter.
type pass struct {
	why     Reason
	request *inFlightRequest // nil without a slot
	key     *keyQueue
	class   int
	flight  int           // the number in flight, this request included
	began   time.Duration // when it got the slot
	yields  bool          // it yields the processor before its handler begins
	queued  time.Duration
	retry   time.Duration // of a rejection
	lasting bool          // the overload lasts, so a retry is useless
}

// retryAfter is the Retry-After of a rejection, before jitter.
const retryAfter = time.Second

// lastingOverload is the time for which requests must have waited, without an empty queue,
// until a rejection tells the client not to retry.
const lastingOverload = 2 * time.Second

func (s *Shedder) now() time.Duration { return time.Since(s.epoch) }

// enter takes a slot, and waits for one if necessary.
func (s *Shedder) enter(ctx context.Context, key string, class int) pass {
	now, left := s.now(), noDeadline
	if deadline, ok := ctx.Deadline(); ok {
		left = deadline.Sub(s.epoch) - now
	}
	s.lock()
	k, mark := &s.gate.shared, uint64(0)
	if s.Key != nil {
		k, mark = s.gate.of(key)
	}
	flight, hopeless := s.gate.enter(now, left, k, mark, class)
	if flight > 0 {
		p := pass{request: s.request(), key: k, class: class, flight: flight, began: now, yields: s.gate.yields()}
		s.mu.Unlock()
		return p
	}
	p := pass{why: ReasonDeadline}
	if !hopeless {
		p = s.queue(ctx, now, left, k, mark, class)
		s.mu.Lock()
	}
	if p.why == ReasonNone {
		p.request, p.yields = s.request(), s.gate.yields()
	} else {
		s.rejected++
		p.retry = jittered(retryAfter)
		p.lasting = !s.NoRetryHint && class > 0 && s.gate.queuedFor(s.now()) >= lastingOverload
	}
	s.mu.Unlock()
	return p
}

// request returns a new inFlightRequest. The caller holds the lock.
func (s *Shedder) request() *inFlightRequest {
	s.admitted++
	if s.unused.empty() {
		s.unused = new(inFlightRequests)
	}
	return s.unused.next()
}

// queue waits for a slot. The caller holds the lock; queue returns without it.
func (s *Shedder) queue(ctx context.Context, now, left time.Duration, k *keyQueue, mark uint64, class int) pass {
	w := s.waiter()
	defer s.waiters.Put(w)
	w.key, w.mark, w.class = k, mark, class
	victim, why := s.gate.join(now, left, w)
	if victim != nil {
		victim.verdict <- ReasonEvicted
	}
	s.mu.Unlock()
	if why != ReasonNone {
		return pass{why: why}
	}
	why = s.wait(ctx, w, w.until-now)
	p := pass{why: why, key: k, class: class, flight: w.flight, began: s.now()}
	p.queued = p.began - now
	if why == ReasonNone && ctx.Err() != nil {
		// The context ended at the same moment.
		s.leave(s.now(), sample{took: -1, flight: w.flight}, k, class)
		p.why = reasonOf(ctx)
	}
	return p
}

// wait waits until the request gets a slot or leaves the queue.
func (s *Shedder) wait(ctx context.Context, w *waiter, longest time.Duration) Reason {
	w.timer.Reset(longest)
	defer w.timer.Stop()
	var why Reason
	select {
	case why = <-w.verdict:
		return why
	case <-w.timer.C:
		why = ReasonQueueTimeout
	case <-ctx.Done():
		why = reasonOf(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.queued { // another goroutine decided at the same moment
		return <-w.verdict
	}
	s.gate.drop(w)
	return why
}

// reasonOf returns why the context has ended.
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
	w := &waiter{verdict: make(chan Reason, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// leave returns a slot, and admits the requests that get one.
func (s *Shedder) leave(now time.Duration, sample sample, k *keyQueue, class int) {
	s.lock()
	s.gate.done(now, sample, k, class)
	for w := s.gate.admitNext(); w != nil; w = s.gate.admitNext() {
		w.verdict <- ReasonNone
	}
	s.mu.Unlock()
}

// lock waits for the time of a few critical sections before it lets the scheduler run
// another goroutine, which costs more.
func (s *Shedder) lock() {
	for range 50 {
		if s.mu.TryLock() {
			return
		}
	}
	s.mu.Lock()
}
