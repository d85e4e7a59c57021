//go:build !race

package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// pauseLength is the length of a pause.
const pauseLength = 200 * ms

// running returns the time until work that takes d is done, pauses included.
func (s *simulation) running(d time.Duration) time.Duration {
	if s.pause == 0 {
		return d
	}
	end := s.now
	for {
		if since := end % s.pause; end >= s.pause && since < pauseLength {
			end += pauseLength - since
		}
		next := end - end%s.pause + s.pause
		if end+d < next {
			return end + d - s.now
		}
		d -= next - end
		end = next
	}
}

// resume calls do, at the end of a pause if the gate is stopped now.
func (s *simulation) resume(do func()) {
	if s.frozen && s.now >= s.pause && s.now%s.pause < pauseLength {
		s.after(pauseLength-s.now%s.pause, do)
		return
	}
	do()
}

// sharing is workers that are divided among all admitted requests, at most one for each.
type sharing struct {
	jobs    []*simRequest
	updated time.Duration
	order   int // of the latest plan; older plans are void
}

// share begins to work on a request.
func (s *simulation) share(q *simRequest) {
	s.progress()
	q.need = s.service(s.now, s.random).Seconds()
	s.sharing.jobs = append(s.sharing.jobs, q)
	s.plan()
}

// pace is the speed of each request's work, as a ratio of one worker.
func (s *simulation) pace() float64 {
	return min(1, float64(s.workers)/float64(len(s.sharing.jobs)))
}

// progress does the work until now.
func (s *simulation) progress() {
	did := (s.now - s.sharing.updated).Seconds() * s.pace()
	for _, q := range s.sharing.jobs {
		q.need -= did
	}
	s.sharing.updated = s.now
}

// plan schedules the end of the next request.
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

// lognormally has a long tail: one request in a hundred takes six times the mean.
func lognormally(mean time.Duration) func(time.Duration, *rand.Rand) time.Duration {
	return func(_ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(mean) * math.Exp(r.NormFloat64()-0.5))
	}
}

// server is a server of the grid of A14.
type server struct {
	name     string
	workers  int
	mean     time.Duration
	service  func(mean time.Duration) func(time.Duration, *rand.Rand) time.Duration
	extra    func(time.Duration, *rand.Rand) time.Duration
	deadline time.Duration
	shared   bool
}

// varying takes half the mean, and 5.5 times the mean for a tenth of the requests.
func varying(mean time.Duration) func(time.Duration, *rand.Rand) time.Duration {
	return bimodal(mean/2, mean*11/2, 0.1)
}

func servers() []server {
	return []server{
		{"4 workers of 10 ms", 4, 10 * ms, constant, nil, 0, false},
		{"12 workers of 30 ms, exponential", 12, 30 * ms, exponentially, nil, 0, false},
		{"12 workers of 30 ms, bimodal", 12, 30 * ms, varying, nil, time.Second, false},
		{"12 workers of 100 ms, exponential", 12, 100 * ms, exponentially, nil, 2 * time.Second, false},
		{"40 workers of 100 ms, lognormal", 40, 100 * ms, lognormally, nil, 2 * time.Second, false},
		{"4 workers of 100 ms, exponential", 4, 100 * ms, exponentially, nil, 2 * time.Second, false},
		{"2 shared workers of 5 ms, exponential", 2, 5 * ms, exponentially, nil, 500 * ms, true},
		{"12 shared workers of 30 ms, bimodal", 12, 30 * ms, varying, nil, time.Second, true},
		{"4 workers of 10 ms and a dependency", 4, 10 * ms, exponentially, exponentially(100 * ms), time.Second, false},
		{"12 workers of 30 ms and a dependency", 12, 30 * ms, constant, constant(100 * ms), 0, false},
	}
}

// at returns a simulation of the server at a load, as a ratio of its capacity.
func (s server) at(load float64, length time.Duration, seed int) *simulation {
	sim := loaded(s.workers, s.mean, load, s.service(s.mean), length)
	sim.extra, sim.deadline, sim.shared, sim.seed = s.extra, s.deadline, s.shared, uint64(seed)
	return sim
}

// rejected returns the ratio of rejected requests of a period.
func (s *simulation) rejected(from, to time.Duration) float64 {
	came, rejected := 0.0, 0.0
	for _, o := range s.outcomes {
		if o.came >= from && o.came < to {
			came++
			if o.rejected {
				rejected++
			}
		}
	}
	return rejected / max(came, 1)
}

// A14: at up to .6 of the capacity no seed has a rejection in the minute after warm-up; at
// .7 one seed of 200 may have one. It takes 10 s, for 400 simulated minutes.
func TestShedder_rejectsNothingBelowCapacity(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		load float64
		most int // seeds with rejections, of 100
	}{{load: 0.6}, {load: 0.7, most: 1}} {
		t.Run(fmt.Sprintf("load %v", row.load), func(t *testing.T) {
			t.Parallel()
			bad := 0
			for seed := range 100 {
				bad += servers()[seed%len(servers())].rejects(t, row.load, seed)
			}
			assert.LessOrEqual(t, bad, row.most)
		})
	}
}

// rejects is 1 if the server rejects anything in the minute after its warm-up.
func (s server) rejects(t *testing.T, load float64, seed int) int {
	t.Helper()
	sim := s.at(load, 70*time.Second, seed).run()
	ratio := sim.rejected(10*time.Second, sim.length)
	if ratio == 0 {
		return 0
	}
	t.Logf("%s, seed %d: %.5f rejected, limits %v", s.name, seed, ratio, sim.limits)
	return 1
}

// A14: a cold start beside a dependency of 100 ms at half load: at most 5 % are rejected in
// any second after the second one. A probe that errs by chance may cost one seed.
func TestShedder_startsColdBesideADependency(t *testing.T) {
	for _, row := range []struct {
		name     string
		workers  int
		mean     time.Duration
		extra    func(time.Duration, *rand.Rand) time.Duration
		deadline time.Duration
	}{
		{"4 workers", 4, 10 * ms, exponentially(100 * ms), 0},
		{"12 workers", 12, 10 * ms, constant(100 * ms), time.Second},
		{"12 workers, exponential", 12, 10 * ms, exponentially(100 * ms), 0},
		{"12 workers of 50 ms", 12, 50 * ms, exponentially(100 * ms), time.Second},
		{"2 workers of 5 ms", 2, 5 * ms, exponentially(100 * ms), 0},
		{"40 workers", 40, 10 * ms, constant(100 * ms), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			bad := 0
			for seed := range 10 {
				s := loaded(row.workers, row.mean, 0.5, exponentially(row.mean), 10*time.Second)
				s.extra, s.deadline, s.seed = row.extra, row.deadline, uint64(seed)
				s.run()
				worst := 0.0
				for second := 2 * time.Second; second < s.length; second += time.Second {
					worst = max(worst, s.rejected(second, second+time.Second))
				}
				if worst > 0.05 {
					bad++
					t.Logf("seed %d: %.3f, limits %v", seed, worst, s.limits)
				}
			}
			assert.LessOrEqual(t, bad, 1)
		})
	}
}

// A14: with pauses of 200 ms at .8 of the capacity and a deadline of 1 s, .99 are served,
// whether the workers pause or the whole process.
func TestShedder_servesAfterPauses(t *testing.T) {
	for _, row := range []struct {
		name    string
		workers int
		mean    time.Duration
		every   time.Duration
		service func(time.Duration) func(time.Duration, *rand.Rand) time.Duration
		frozen  bool
	}{
		{"12 workers pause", 12, 10 * ms, 2 * time.Second, exponentially, false},
		{"a process of 12 workers pauses", 12, 10 * ms, 2 * time.Second, exponentially, true},
		{"4 workers pause", 4, 10 * ms, 3 * time.Second, constant, false},
		{"a process of 2 workers pauses", 2, 5 * ms, 3 * time.Second, exponentially, true},
		{"40 workers pause", 40, 10 * ms, 5 * time.Second, constant, false},
		{"a process of 12 workers of 50 ms pauses", 12, 50 * ms, 5 * time.Second, constant, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			came, ok := 0.0, 0.0
			for seed := range 2 {
				s := loaded(row.workers, row.mean, 0.8, row.service(row.mean), 42*time.Second)
				s.deadline, s.pause, s.frozen, s.seed = time.Second, row.every, row.frozen, uint64(seed)
				for _, o := range s.run().outcomes {
					if o.came >= 2*time.Second {
						came++
						if o.ok {
							ok++
						}
					}
				}
			}
			t.Logf("%.4f", ok/came)
			assert.GreaterOrEqual(t, ok/came, 0.99)
		})
	}
}

// A14: while the load leaves slots free, the limit is never below the number in flight on
// average.
func TestShedder_limitIsNotBelowTheAverageInFlight(t *testing.T) {
	for i, server := range servers() {
		s := server.at(0.6, 40*time.Second, i).run()
		capacity := capacity(server.workers, server.mean)
		average := 0.6 * capacity * server.mean.Seconds() // by Little's law, at least
		for second, limit := range s.limits[5:] {
			assert.GreaterOrEqual(t, float64(limit), average, "%s, second %d", server.name, second+5)
		}
	}
}

// heavyTail is lognormal with σ 2: one request in a thousand takes 65 times the mean.
func heavyTail(mean time.Duration) func(time.Duration, *rand.Rand) time.Duration {
	return func(_ time.Duration, r *rand.Rand) time.Duration {
		return time.Duration(float64(mean) * math.Exp(2*r.NormFloat64()-2))
	}
}

// A18: at half load, a latency with a heavy tail makes the Shedder reject requests for at
// most 10 s.
func TestShedder_heavyTailIsRejectedBriefly(t *testing.T) {
	tail := server{"200 workers of 100 ms, heavy tail", 200, 100 * ms, heavyTail, nil, 5 * time.Second, false}
	for _, seed := range []int{88, 94, 99} { // with a probe every 200 windows, up to 63 s
		s := tail.at(0.5, 120*time.Second, seed).run()
		var down, longest time.Duration
		for from := time.Duration(0); from < s.length; from += time.Second {
			down += time.Second
			if s.rejected(from, from+time.Second) == 0 {
				down = 0
			}
			longest = max(longest, down)
		}
		assert.LessOrEqual(t, longest, 10*time.Second, "seed %d, limits %v", seed, s.limits)
	}
}

// tenants draws one of n keys, each as often, and one that sends hog times as much as each.
func tenants(n int, hog float64, hogClass, othersClass int) func(r *rand.Rand) (string, int) {
	return func(r *rand.Rand) (string, int) {
		x := r.Float64() * (float64(n) + hog)
		if x >= float64(n) {
			return "hog", hogClass
		}
		class := othersClass
		if class < 0 {
			for y := r.Float64(); class < 0 || class < classes-1 && y >= usual()[class]; {
				if class >= 0 {
					y -= usual()[class]
				}
				class++
			}
		}
		return fmt.Sprint(int(x)), class
	}
}

// A15: one key that sends 20 times its share, all critical, leaves each other key at least
// .95 of what it gets alone, whatever the others' priority.
func TestShedder_isFairToKeys(t *testing.T) {
	const critical, normal, batch, mixed = 0, 1, 2, -1
	for _, row := range []struct {
		name     string
		workers  int
		mean     time.Duration
		service  func(time.Duration) func(time.Duration, *rand.Rand) time.Duration
		keys     int
		each     float64 // load of each key, as a ratio of the capacity
		hog      float64 // times as much as each
		class    int
		deadline time.Duration
	}{
		{"all are critical: served", 12, 10 * ms, exponentially, 9, 0.08, 20, critical, 500 * ms},
		{"the others are default: served", 12, 10 * ms, exponentially, 9, 0.08, 20, normal, 500 * ms},
		{"the others are batch: served", 12, 10 * ms, exponentially, 9, 0.08, 20, batch, 500 * ms},
		{"the others are mixed: served", 12, 10 * ms, constant, 9, 0.08, 20, mixed, 500 * ms},
		{"no deadline: served", 12, 10 * ms, exponentially, 9, 0.08, 20, critical, 0},
		{"two keys: served", 12, 10 * ms, exponentially, 1, 0.4, 20, normal, 500 * ms},
		{"three keys, slow requests: served", 4, 100 * ms, constant, 2, 0.2, 20, normal, 2 * time.Second},
		{"100 keys: served", 40, 10 * ms, exponentially, 100, 0.008, 500, normal, 500 * ms},
		{"ten times the capacity: served", 12, 10 * ms, constant, 9, 0.05, 190, critical, 500 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			load := row.each * (float64(row.keys) + row.hog)
			s := loaded(row.workers, row.mean, load, row.service(row.mean), 20*time.Second)
			s.request, s.deadline = tenants(row.keys, row.hog, critical, row.class), row.deadline
			s.run()
			came, ok := map[string]float64{}, map[string]float64{}
			for _, o := range s.outcomes {
				if o.came >= 2*time.Second {
					came[o.key]++
					if o.ok {
						ok[o.key]++
					}
				}
			}
			worst, served := 1.0, 0.0
			for key := range came {
				if key != "hog" {
					worst = min(worst, ok[key]/came[key])
				}
				served += ok[key]
			}
			goodput := served / (18 * capacity(row.workers, row.mean))
			t.Logf("worst %.3f, hog %.3f, goodput %.3f", worst, ok["hog"]/came["hog"], goodput)
			assert.GreaterOrEqual(t, worst, 0.95)
			assert.GreaterOrEqual(t, goodput, 0.9)
			assert.Empty(t, s.gate.keys, "idle keys")
		})
	}
}

// A15: with keys, critical requests within their key's share still come first.
func TestShedder_keepsPrioritiesWithinShares(t *testing.T) {
	for _, keys := range []int{1, 2, 10, 50} {
		t.Run(fmt.Sprintf("%d keys", keys), func(t *testing.T) {
			s := loaded(12, 10*ms, 3, exponentially(10*ms), 20*time.Second)
			s.request = tenants(keys, 0, 0, -1)
			got := s.run().between(2*time.Second, s.length)
			t.Logf("%+v", got)
			assert.GreaterOrEqual(t, got.success[0], 0.99)
			assert.GreaterOrEqual(t, got.goodput, 0.95)
		})
	}
}

// A17: beside a pool of invented keys that come in turn, a key that sends at most a fifth of the
// capacity is served at least as without Key.
func TestShedder_poolOfInventedKeys(t *testing.T) {
	for _, row := range []struct{ load, good float64 }{{1.2, 0.2}, {2, 0.02}, {2, 0.2}, {5, 0.1}} {
		// served returns the ratio of the good key's requests that is served.
		served := func(keys int) float64 {
			s := loaded(12, 10*ms, row.load, exponentially(10*ms), 20*time.Second)
			s.keyless = keys == 0
			next := 0
			s.request = func(r *rand.Rand) (string, int) {
				if r.Float64() < row.good/row.load {
					return "good", 1
				}
				next++
				return fmt.Sprint(next % max(keys, 1)), 1
			}
			came, ok := 0.0, 0.0
			for _, o := range s.run().outcomes {
				if o.key == "good" && o.came >= 5*time.Second { // when the key is known
					came++
					if o.ok {
						ok++
					}
				}
			}
			return ok / came
		}
		without := served(0)
		for _, keys := range []int{5, 20, 200, 2000, 100_000} {
			t.Run(fmt.Sprintf("%v of the capacity, of which good %v, %d keys", row.load, row.good, keys), func(t *testing.T) {
				with := served(keys)
				t.Logf("%.3f, without Key %.3f", with, without)
				assert.GreaterOrEqual(t, with, without-0.01)
			})
		}
	}
}

// A17: a key is known after it was admitted in several different seconds, however often.
func TestKnownKeys(t *testing.T) {
	var k knownKeys
	k.init()
	mark := k.mark("good")
	for range knownSeconds {
		assert.False(t, k.has(mark))
		k.second++
		for range 100 {
			k.add(mark)
		}
	}
	assert.True(t, k.has(mark))
	for range 30 {
		k.second++
		k.add(mark)
	}
	k.second++
	for n := range 2 * knownBuckets { // two other keys for each bucket
		k.add(k.mark(fmt.Sprint(n)))
	}
	assert.True(t, k.has(mark), "keys that were admitted once do not push it out")
	assert.False(t, k.has(k.mark("1")))
}
