package fleet

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// The fleet, where a scenario says nothing else.
const (
	Rate         = 1000 // offered, calls per second
	Clients      = 1000
	callDeadline = 30 * time.Second // of the caller, for each call
)

// Load is what callers ask for, and when. One of Rate, Every, Workers and Burst
// says when; the zero value is a Poisson process at the fleet's rate.
type Load struct {
	Rate   float64 // of a Poisson process, calls per second; 0: the fleet's
	Even   bool    // evenly spaced instead
	Surges []Surge // stretches in which the rate is another

	Every  time.Duration // each client makes a call each so often,
	Spread time.Duration // the first at a random moment of this stretch; 0: of Every. A Burst's calls are spread evenly over it

	Workers int           // each makes one call after another,
	Think   time.Duration // with this pause between them

	Burst int // so many calls at once, every Every, each time from clients that were never used

	Clients  int           // where each caller has its own; 0: the fleet's
	Deadline time.Duration // of a call; 0: 30 s; negative: none
	Method   string        // "": GET
	Paths    []Part        // those of the calls that do not go to /; what is left does
	Bare     float64       // share of the calls that comes from bare clients, and is not measured
}

// Surge is a stretch of a Poisson process with another rate.
type Surge struct {
	From, To time.Duration
	Factor   float64
}

// Part is a share of the calls that goes to a path.
type Part struct {
	Path  string
	Share float64
}

// perSecond is how many calls are offered, on average; 0 if nobody knows before.
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

// scaled returns the load with the times of its stretches changed.
func (l Load) scaled(scale func(time.Duration) time.Duration) Load {
	l.Surges = slices.Clone(l.Surges)
	for i := range l.Surges {
		l.Surges[i].From, l.Surges[i].To = scale(l.Surges[i].From), scale(l.Surges[i].To)
	}
	return l
}

// schedule are the calls of a run, in the order of their times. There are none
// where workers make one after another.
func (s Scenario) schedule(seed uint64, clients int) []*call {
	var calls []*call
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

// dress gives a call its number and what the dice say of it.
func (s Scenario) assign(c *call, id int, seed uint64) {
	c.id, c.path = id, "/"
	d := random{seed}
	chance := d.fraction(id, 0, drawPath)
	for _, part := range s.Load.Paths {
		if chance -= part.Share; chance < 0 {
			c.path = part.Path
			break
		}
	}
	if s.Load.Bare > 0 && d.fraction(id, 0, drawBare) < s.Load.Bare {
		c.client = -1
	}
}

func (l Load) poisson(length time.Duration, seed uint64, clients int) (calls []*call) {
	random := rand.New(rand.NewPCG(seed, 1))
	gap := func(at time.Duration) time.Duration {
		if l.Even {
			return time.Duration(float64(time.Second) / l.rateAt(at))
		}
		return time.Duration(random.ExpFloat64() / l.rateAt(at) * float64(time.Second))
	}
	for at := gap(0); at < length; at += gap(at) {
		calls = append(calls, &call{at: at, client: random.IntN(l.clients()) % clients})
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

func (l Load) rounds(length time.Duration, seed uint64, clients int) (calls []*call) {
	random := rand.New(rand.NewPCG(seed, 1))
	spread := l.Spread
	if spread == 0 {
		spread = l.Every
	}
	for i := range l.clients() {
		for at := time.Duration(random.Int64N(int64(spread))); at < length; at += l.Every {
			calls = append(calls, &call{at: at, client: i % clients})
		}
	}
	slices.SortStableFunc(calls, func(a, b *call) int { return int(a.at - b.at) })
	return calls
}

// bursts come from a new client each, or from one for each call.
func (l Load) bursts(length time.Duration, clients int) (calls []*call) {
	total := l.Burst * l.burstsIn(length)
	for i := range total {
		at := time.Duration(i/l.Burst)*l.Every + l.Spread*time.Duration(i%l.Burst)/time.Duration(l.Burst)
		calls = append(calls, &call{at: at, client: i * clients / total})
	}
	return calls
}

func (l Load) burstsIn(length time.Duration) int { return int((length + l.Every - 1) / l.Every) }

// clientsIn is how many clients there are in the topology.
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
