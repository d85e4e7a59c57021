//go:build !race

package admission

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// simulation is a server behind a gate in virtual time. Its workers serve the admitted
// requests in FIFO order.
type simulation struct {
	workers  int
	service  func(now time.Duration, r *rand.Rand) time.Duration // the work of a request
	extra    func(now time.Duration, r *rand.Rand) time.Duration // time without a worker: a dependency
	crowding float64                                             // each request above workers slows the others by this ratio
	rate     func(now time.Duration) float64                     // arrivals per second
	deadline time.Duration
	request  func(r *rand.Rand) (key string, class int) // nil: no key, and the mix
	keyless  bool                                       // the gate does not see the key of request
	mix      [classes]float64                           // critical, default, batch
	shared   bool                                       // the workers are divided among all requests, like a processor
	pause    time.Duration                              // the workers stop for pauseLength once in this time
	frozen   bool                                       // the gate and its clients' connections stop as well
	length   time.Duration
	seed     uint64
	gate     *concurrencyGate

	now      time.Duration
	random   *rand.Rand
	events   eventHeap
	order    int
	busy     int
	line     []*simRequest
	sharing  sharing
	waiting  map[*waiter]*simRequest
	outcomes []outcome
	limits   []int // one per second
}

type outcome struct {
	came     time.Duration
	key      string
	class    int
	ok       bool // served before its deadline
	rejected bool
	took     time.Duration
}

type simRequest struct {
	key   string
	class int
	came  time.Duration
	began time.Duration // when it was admitted
	need  float64       // remaining seconds of work, if workers are shared
	w     waiter
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

func (e event) before(other event) bool {
	return e.at < other.at || e.at == other.at && e.order < other.order
}

// eventHeap has the next event at its root. With container/heap, half of the tests' time would be its boxes of events.
type eventHeap []event

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	i := len(*h) - 1
	for parent := (i - 1) / 2; i > 0 && e.before((*h)[parent]); parent = (i - 1) / 2 {
		(*h)[i] = (*h)[parent]
		i = parent
	}
	(*h)[i] = e
}

func (h *eventHeap) pop() event {
	all := *h
	first, last := all[0], all[len(all)-1]
	all = all[:len(all)-1]
	*h = all
	i := 0
	for child := 1; child < len(all); child = 2*i + 1 {
		if child+1 < len(all) && all[child+1].before(all[child]) {
			child++
		}
		if last.before(all[child]) {
			break
		}
		all[i] = all[child]
		i = child
	}
	if len(all) > 0 {
		all[i] = last
	}
	return first
}

func (s *simulation) after(d time.Duration, do func()) {
	s.order++
	s.events.push(event{s.now + d, s.order, do})
}

func (s *simulation) exponential(mean float64) time.Duration {
	return time.Duration(s.random.ExpFloat64() * mean * float64(time.Second))
}

func (s *simulation) run() *simulation {
	s.waiting = map[*waiter]*simRequest{}
	s.random = rand.New(rand.NewPCG(s.seed, 7))
	if s.gate == nil {
		s.gate = &concurrencyGate{limiter: newLimiter(defaultInitial, defaultMin, defaultMax, defaultTolerance)}
	}
	var arrive func()
	arrive = func() {
		if s.now < s.length {
			if rate := s.rate(s.now); rate > 0 {
				came := s.now
				s.resume(func() { s.arrival(came) })
				s.after(s.exponential(1/rate), arrive)
			} else {
				s.after(10*time.Millisecond, arrive)
			}
		}
	}
	s.after(0, arrive)
	var look func()
	look = func() {
		s.limits = append(s.limits, s.gate.slots())
		if s.now < s.length {
			s.after(time.Second, look)
		}
	}
	s.after(time.Second, look)
	for len(s.events) > 0 {
		e := s.events.pop()
		s.now = e.at
		e.do()
	}
	return s
}

func (s *simulation) arrival(came time.Duration) {
	q := &simRequest{came: came}
	q.w.key = &s.gate.shared
	if s.request != nil {
		q.key, q.class = s.request(s.random)
		if !s.keyless {
			q.w.key, q.w.mark = s.gate.of(q.key)
		}
	} else {
		for x := s.random.Float64(); q.class < classes-1 && x >= s.mix[q.class]; q.class++ {
			x -= s.mix[q.class]
		}
	}
	q.w.class = q.class
	left := noDeadline
	if s.deadline > 0 {
		left = s.deadline
	}
	flight, hopeless := s.gate.enter(s.now, left, q.w.key, q.w.mark, q.class)
	switch {
	case flight > 0:
		q.w.flight = flight
		s.enter(q)
		return
	case hopeless:
		s.reject(q)
		return
	}
	room, why := s.gate.join(s.now, left, &q.w)
	if room != nil {
		s.reject(s.requestOf(room))
	}
	if why != ReasonNone {
		s.reject(q)
		return
	}
	s.waiting[&q.w] = q
	s.after(q.w.until-s.now, func() {
		s.resume(func() {
			if q.w.queued {
				s.gate.drop(&q.w)
				s.reject(s.requestOf(&q.w))
			}
		})
	})
}

func (s *simulation) requestOf(w *waiter) *simRequest {
	defer delete(s.waiting, w)
	return s.waiting[w]
}

func (s *simulation) enter(q *simRequest) {
	q.began = s.now
	if s.shared {
		s.share(q)
		return
	}
	if s.busy < s.workers {
		s.work(q)
	} else {
		s.line = append(s.line, q)
	}
}

func (s *simulation) work(q *simRequest) {
	s.busy++
	need := s.service(s.now, s.random)
	if over := s.gate.limiter.inflight - s.workers; over > 0 {
		need = time.Duration(float64(need) * (1 + s.crowding*float64(over)))
	}
	s.after(s.running(need), func() {
		s.busy--
		if len(s.line) > 0 {
			next := s.line[0]
			s.line = s.line[1:]
			s.work(next)
		}
		s.depart(q)
	})
}

// depart ends the work on a request. Its dependency follows.
func (s *simulation) depart(q *simRequest) {
	extra := time.Duration(0)
	if s.extra != nil {
		extra = s.extra(s.now, s.random)
	}
	s.after(extra, func() { s.resume(func() { s.leave(q) }) })
}

func (s *simulation) leave(q *simRequest) {
	late := s.deadline > 0 && s.now-q.came > s.deadline
	s.gate.done(s.now, sample{took: s.now - q.began, flight: q.w.flight, late: late}, q.w.key, q.class)
	s.end(q, !late)
	for w := s.gate.admitNext(); w != nil; w = s.gate.admitNext() {
		s.enter(s.requestOf(w))
	}
}

// reject ends a request that got no slot.
func (s *simulation) reject(q *simRequest) {
	s.outcomes = append(s.outcomes, outcome{came: q.came, key: q.key, class: q.class, rejected: true, took: s.now - q.came})
}

func (s *simulation) end(q *simRequest, ok bool) {
	s.outcomes = append(s.outcomes, outcome{came: q.came, key: q.key, class: q.class, ok: ok, took: s.now - q.came})
}

// result is the result of the requests of a period.
type result struct {
	goodput float64          // served in time, as a ratio of the capacity, or of the load if that is less
	success [classes]float64 // served in time, as a ratio of the load
	p99     time.Duration    // latency of the served requests
}

// between returns the result of the requests that came in a period.
func (s *simulation) between(from, to time.Duration) result {
	var came, ok [classes]float64
	var took []time.Duration
	for _, o := range s.outcomes {
		if o.came < from || o.came >= to {
			continue
		}
		came[o.class]++
		if o.ok {
			ok[o.class]++
			took = append(took, o.took)
		}
	}
	var r result
	all, served := 0.0, 0.0
	for i := range came {
		all, served = all+came[i], served+ok[i]
		r.success[i] = ok[i] / max(came[i], 1)
	}
	var mean float64
	random := rand.New(rand.NewPCG(s.seed, 8))
	const draws = 20_000
	for range draws {
		mean += s.service((from+to)/2, random).Seconds() / draws
	}
	capacity := float64(s.workers) / mean * (to - from).Seconds()
	r.goodput = served / min(capacity, all)
	if len(took) > 0 {
		slices.Sort(took)
		r.p99 = took[int(math.Ceil(0.99*float64(len(took))))-1]
	}
	return r
}

// capacity is the number of requests that the workers can serve in a second.
func capacity(workers int, service time.Duration) float64 {
	return float64(workers) / service.Seconds()
}

func steadily(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

func constant(d time.Duration) func(time.Duration, *rand.Rand) time.Duration {
	return func(time.Duration, *rand.Rand) time.Duration { return d }
}

func exponentially(mean time.Duration) func(time.Duration, *rand.Rand) time.Duration {
	return func(_ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(r.ExpFloat64() * float64(mean))
	}
}

// bimodal is long for a ratio of the requests, and short for the others.
func bimodal(short, long time.Duration, share float64) func(time.Duration, *rand.Rand) time.Duration {
	return func(_ time.Duration, r *rand.Rand) time.Duration {
		if r.Float64() < share {
			return long
		}
		return short
	}
}

// usual is the mix of the design: critical, default, batch.
func usual() [classes]float64 { return [classes]float64{0.1, 0.6, 0.3} }
