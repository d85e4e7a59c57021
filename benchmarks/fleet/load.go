package fleet

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
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
	}
	return cmp.Or(l.Rate, Rate)
}

func (l Load) clients() int            { return cmp.Or(l.Clients, Clients) }
func (l Load) method() string          { return cmp.Or(l.Method, http.MethodGet) }
func (l Load) deadline() time.Duration { return cmp.Or(l.Deadline, callDeadline) }

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
	spread := cmp.Or(l.Spread, l.Every)
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

// Call is one call and its result. The context of its attempts carries it to the server.
type Call struct {
	id     int
	at     time.Duration // since the start
	client int           // index; -1: a bare client that is not measured
	path   string
	model  string // of the field X-Model; "": none

	attempts atomic.Int32 // that reached the server

	latency time.Duration
	success bool
	status  int // of the response; 0: none
}

// NewCall returns a call of the client to the path, at a time since the start. The model is the value of
// the field X-Model; "": none.
func NewCall(id int, at time.Duration, client int, path, model string) *Call {
	return &Call{id: id, at: at, client: client, path: path, model: model}
}

type callKey struct{}

func withCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the call in the context, or nil.
func callOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// CallID returns the id of the call in the context of an attempt, as NewCall got it.
func CallID(ctx context.Context) int { return callOf(ctx).id }

// Model is a server and its calls that another package draws: see package zoo. A Scenario with a Model has
// no other server. Of its Load it has the clients, the deadline and the workers.
type Model interface {
	// Calls returns the calls by time, without those of workers.
	Calls() []*Call
	// Work returns the n-th call of a worker, which begins at a time since the start.
	Work(worker, n int, at time.Duration) *Call
	// Arrive returns the response to an attempt of the call with the id. It is safe for concurrent use.
	Arrive(id, attempt int, at time.Duration) (Response, http.Header)
}

// Chance draws the random values of a run. A value depends on the seed, the call, the
// attempt and its purpose, and not on the order of events. The same attempt of two clients
// gets the same value.
type Chance struct{ Seed uint64 }

// The purposes of random values. Those of faults follow drawFault, so that new ones are negative.
const (
	drawService = -1 - iota
	drawThere
	drawBack
)

const (
	drawBackend = iota
	drawLatency
	drawPath
	drawBare
	drawFault
)

// Fraction is a number in [0, 1).
func (r Chance) Fraction(call, attempt, purpose int) float64 {
	h := r.Seed
	for _, part := range [...]int{call, attempt, purpose} {
		h = Mix(h ^ Mix(uint64(part)))
	}
	return float64(h>>11) / (1 << 53)
}

// between is a uniformly distributed duration.
func (r Chance) between(from, to time.Duration, call, attempt, purpose int) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(r.Fraction(call, attempt, purpose)*float64(to-from))
}

// exponential is an exponentially distributed duration.
func (r Chance) exponential(mean time.Duration, call, attempt, purpose int) time.Duration {
	return time.Duration(-math.Log(1-r.Fraction(call, attempt, purpose)) * float64(mean))
}

// Mix is a step of splitmix64.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Dice draw the parameters of a scenario.
type Dice struct{ *rand.Rand }

// Likely returns true with the probability.
func (d Dice) Likely(share float64) bool { return d.Float64() < share }

// Log draws from a logarithmic scale.
func (d Dice) Log(low, high float64) float64 { return low * math.Pow(high/low, d.Float64()) }

// OneOf draws one of the values.
func OneOf[T any](d Dice, of ...T) T { return of[d.IntN(len(of))] }
