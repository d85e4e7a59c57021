package fleet

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// The default load.
const (
	Rate         = 1000 // offered, calls per second
	Clients      = 1000
	callDeadline = 30 * time.Second // the deadline of a call
)

// Load describes the calls. Set one of Rate, Every, Workers and Burst. The zero value is a
// Poisson process of 1000 calls per second.
type Load struct {
	Rate   float64 // calls per second of a Poisson process; 0: 1000
	Even   bool    // evenly spaced calls, not a Poisson process
	Surges []Surge // periods with another rate

	Every  time.Duration // the interval of the calls of a client
	Spread time.Duration // the first call is at a random time of it; 0: Every. The calls of a Burst are evenly spaced over it

	Workers int             // each makes one call after another
	Think   time.Duration   // the pause between them
	Starts  []time.Duration // of the workers; nil: at once
	Least   time.Duration   // for which a call takes its worker at least

	Burst int // calls at once, every Every, each time from new clients

	Clients  int           // number, with one Transport per client; 0: 1000
	Deadline time.Duration // of a call; 0: 30 s; negative: none
	Method   string        // "": GET
	Paths    []Part        // paths of the calls; the rest goes to /
	Bare     float64       // ratio of the calls from bare clients; not measured
}

// Surge is a period with another rate.
type Surge struct {
	From, To time.Duration
	Factor   float64
}

// Part is the ratio of the calls that go to a path.
type Part struct {
	Path  string
	Share float64
}

// perSecond is the mean rate; 0 if it depends on the latency.
func (l Load) perSecond() float64 {
	switch {
	case l.Workers > 0:
		return 0
	case l.Burst > 0:
		return float64(l.Burst) / l.Every.Seconds()
	case l.Every > 0:
		return float64(l.clients()) / l.Every.Seconds()
	case l.Rate > 0:
		return l.Rate
	}
	return Rate
}

func (l Load) clients() int {
	if l.Clients > 0 {
		return l.Clients
	}
	return Clients
}

func (l Load) method() string {
	if l.Method == "" {
		return http.MethodGet
	}
	return l.Method
}

func (l Load) deadline() time.Duration {
	if l.Deadline == 0 {
		return callDeadline
	}
	return l.Deadline
}

// schedule returns the calls of a run, by time. It returns none for Workers.
func (s Scenario) schedule(seed uint64, clients int) []*Call {
	var calls []*Call
	if s.Model != nil {
		return s.Model.Calls()
	}
	switch l := s.Load; {
	case l.Workers > 0:
	case l.Burst > 0:
		calls = l.bursts(s.Length(), clients)
	case l.Every > 0:
		calls = l.rounds(s.Length(), seed, clients)
	default:
		calls = l.poisson(s.Length(), seed, clients)
	}
	for id, c := range calls {
		s.assign(c, id, seed)
	}
	return calls
}

// assign sets the id of a call, and its path and client by chance.
func (s Scenario) assign(c *Call, id int, seed uint64) {
	c.id, c.path = id, "/"
	d := Chance{seed}
	chance := d.Fraction(id, 0, drawPath)
	for _, part := range s.Load.Paths {
		if chance -= part.Share; chance < 0 {
			c.path = part.Path
			break
		}
	}
	if s.Load.Bare > 0 && d.Fraction(id, 0, drawBare) < s.Load.Bare {
		c.client = -1
	}
}

func (l Load) poisson(length time.Duration, seed uint64, clients int) (calls []*Call) {
	random := rand.New(rand.NewPCG(seed, 1))
	gap := func(at time.Duration) time.Duration {
		if l.Even {
			return time.Duration(float64(time.Second) / l.rateAt(at))
		}
		return time.Duration(random.ExpFloat64() / l.rateAt(at) * float64(time.Second))
	}
	for at := gap(0); at < length; at += gap(at) {
		calls = append(calls, &Call{at: at, client: random.IntN(l.clients()) % clients})
	}
	return calls
}

func (l Load) rateAt(at time.Duration) float64 {
	for _, s := range l.Surges {
		if at >= s.From && at < s.To {
			return l.perSecond() * s.Factor
		}
	}
	return l.perSecond()
}

func (l Load) rounds(length time.Duration, seed uint64, clients int) (calls []*Call) {
	random := rand.New(rand.NewPCG(seed, 1))
	spread := l.Spread
	if spread == 0 {
		spread = l.Every
	}
	for i := range l.clients() {
		for at := time.Duration(random.Int64N(int64(spread))); at < length; at += l.Every {
			calls = append(calls, &Call{at: at, client: i % clients})
		}
	}
	slices.SortStableFunc(calls, func(a, b *Call) int { return int(a.at - b.at) })
	return calls
}

// bursts come from one new client each, or from one client per call.
func (l Load) bursts(length time.Duration, clients int) (calls []*Call) {
	total := l.Burst * l.burstsIn(length)
	for i := range total {
		at := time.Duration(i/l.Burst)*l.Every + l.Spread*time.Duration(i%l.Burst)/time.Duration(l.Burst)
		calls = append(calls, &Call{at: at, client: i * clients / total})
	}
	return calls
}

func (l Load) burstsIn(length time.Duration) int { return int((length + l.Every - 1) / l.Every) }

// clientsIn is the number of clients in the topology.
func (s Scenario) clientsIn(t Topology) int {
	switch l := s.Load; {
	case l.Burst > 0 && t == Shared:
		return l.burstsIn(s.Length())
	case l.Burst > 0:
		return l.burstsIn(s.Length()) * l.Burst
	case t == Shared:
		return 1
	case l.Workers > 0 && l.Clients == 0:
		return l.Workers
	}
	return s.Load.clients()
}
