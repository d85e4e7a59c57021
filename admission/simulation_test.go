//go:build !race

package admission

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// simulation is a server behind a gate, in virtual time: workers that serve one
// request after the other, in the order in which they were let in.
type simulation struct {
	workers  int
	service  func(now time.Duration, r *rand.Rand) time.Duration // what a worker needs
	extra    func(now time.Duration, r *rand.Rand) time.Duration // what passes besides, without a worker: a dependency
	crowding float64                                             // by which share each one above workers slows the others
	rate     func(now time.Duration) float64                     // of arrivals, a second
	deadline time.Duration
	keyOf    func(*rand.Rand) string
	mix      [classes]float64 // critical, default, batch
	pause    time.Duration    // every so often all workers stop for pauseLength
	frozen   bool             // the gate stops as well
	shared   bool             // all are worked on at once, as by a processor, and not one after the other
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
	limits   []int // one a second
}

type outcome struct {
	came     time.Duration
	class    int
	ok       bool
	took     time.Duration
	rejected bool
}

type simRequest struct {
	key   string
	class int
	came  time.Duration
	began time.Duration // let in
	need  float64       // seconds of a worker, where they are shared
	w     waiter
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (s *simulation) after(d time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, event{s.now + d, s.order, do})
}

const pauseLength = 200 * ms

// running returns how long it takes until something that needs d has had that time, without pauses.
func (s *simulation) running(d time.Duration) time.Duration {
	if s.pause == 0 {
		return d
	}
	end := s.now
	for {
		start := (end/s.pause + 1) * s.pause
		if since := end % s.pause; since < pauseLength && end >= s.pause {
			end += pauseLength - since
		}
		if end+d < start {
			return end + d - s.now
		}
		d -= start - end
		end = start
	}
}

// thawed returns how long it takes until the gate is not stopped.
func (s *simulation) thawed() time.Duration {
	if since := choose2(s.pause > 0, s.now, s.pause); s.frozen && s.now >= s.pause && since < pauseLength {
		return pauseLength - since
	}
	return 0
}

func choose2(b bool, now, pause time.Duration) time.Duration {
	if b {
		return now % pause
	}
	return pauseLength
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
				if wait := s.thawed(); wait > 0 {
					came := s.now
					s.after(wait, func() { s.arrival(came) })
				} else {
					s.arrival(s.now)
				}
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
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	return s
}

func (s *simulation) arrival(came time.Duration) {
	q := &simRequest{came: came}
	for x := s.random.Float64(); q.class < classes-1 && x >= s.mix[q.class]; q.class++ {
		x -= s.mix[q.class]
	}
	q.w.class = q.class
	q.w.key = &s.gate.shared
	if s.keyOf != nil {
		q.key = s.keyOf(s.random)
		q.w.key = s.gate.of(q.key)
	}
	left := noDeadline
	if s.deadline > 0 {
		left = s.deadline
	}
	flight, hopeless := s.gate.enter(s.now, left, q.w.key, q.class)
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
	wait := q.w.until - s.now
	if s.frozen {
		// A timer that expires in a pause runs at its end.
		now := s.now
		s.now += wait
		wait += s.thawed()
		s.now = now
	}
	s.after(wait, func() {
		if q.w.queued {
			s.gate.drop(&q.w)
			s.reject(s.requestOf(&q.w))
		}
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

// depart is when the workers are done with it.
func (s *simulation) depart(q *simRequest) {
	extra := time.Duration(0)
	if s.extra != nil {
		extra = s.extra(s.now, s.random)
	}
	s.after(extra, func() {
		if wait := s.thawed(); wait > 0 {
			s.after(wait, func() { s.leave(q) })
		} else {
			s.leave(q)
		}
	})
}

// sharing is workers that are divided among all requests that have a place, at most
// one for each.
type sharing struct {
	jobs    []*simRequest
	updated time.Duration
	order   int // of the latest plan: only that counts
}

// share begins to work on a request.
func (s *simulation) share(q *simRequest) {
	s.progress()
	q.need = s.service(s.now, s.random).Seconds()
	s.sharing.jobs = append(s.sharing.jobs, q)
	s.plan()
}

// pace is how fast each is worked on, of what one worker does.
func (s *simulation) pace() float64 {
	return min(1, float64(s.workers)/float64(len(s.sharing.jobs)))
}

// progress works until now.
func (s *simulation) progress() {
	did := (s.now - s.sharing.updated).Seconds() * s.pace()
	for _, q := range s.sharing.jobs {
		q.need -= did
	}
	s.sharing.updated = s.now
}

// plan is when the next one will be done.
func (s *simulation) plan() {
	s.sharing.order++
	if len(s.sharing.jobs) == 0 {
		return
	}
	order, need := s.sharing.order, math.Inf(1)
	for _, q := range s.sharing.jobs {
		need = min(need, q.need)
	}
	s.after(time.Duration(max(need, 0)/s.pace()*float64(time.Second))+1, func() {
		if order != s.sharing.order {
			return
		}
		s.progress()
		var done []*simRequest
		s.sharing.jobs = slices.DeleteFunc(s.sharing.jobs, func(q *simRequest) bool {
			if q.need < 1e-9 {
				done = append(done, q)
			}
			return q.need < 1e-9
		})
		s.plan()
		for _, q := range done {
			s.depart(q)
		}
	})
}

func (s *simulation) leave(q *simRequest) {
	late := s.deadline > 0 && s.now-q.came > s.deadline
	s.gate.done(s.now, sample{took: s.now - q.began, flight: q.w.flight, late: late}, q.w.key, q.class)
	s.end(q, !late)
	for w := s.gate.next(); w != nil; w = s.gate.next() {
		s.enter(s.requestOf(w))
	}
}

func (s *simulation) reject(q *simRequest) {
	s.outcomes = append(s.outcomes, outcome{q.came, q.class, false, s.now - q.came, true})
}

func (s *simulation) end(q *simRequest, ok bool) {
	s.outcomes = append(s.outcomes, outcome{q.came, q.class, ok, s.now - q.came, false})
}

// result is what came of the requests of a time.
type result struct {
	goodput float64          // served in time, of what the workers can do or of what came if that is less
	success [classes]float64 // of what came
	p99     time.Duration    // of those that were served
}

// between is the result of those that came in that time.
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

// capacity is what the workers can serve in a second.
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

// bimodal is long for that share of the requests, and short for the others.
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
