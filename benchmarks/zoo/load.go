package zoo

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
)

// LoadKind is a kind of load.
type LoadKind string

// The kinds of load.
const (
	Open    LoadKind = "open"    // a Poisson process
	Workers LoadKind = "workers" // each makes one call after another
	Bursts  LoadKind = "bursts"  // many calls at once
)

func loads() []LoadKind { return []LoadKind{Open, Workers, Bursts} }

// Load is the calls of a draw.
type Load struct {
	Kind   LoadKind
	Factor float64 // offered rate ÷ permitted rate

	Rate    float64       // Open
	Workers int           // Workers
	Think   time.Duration // their pause
	Burst   int           // Bursts: calls in each Period
	Period  time.Duration
	First   int // Open, Workers: calls at once at the start, of which the server serves some at a time

	Processes, Paths, Models int
	Tokens                   int           // mean cost of a call; at most maxCost times this
	Service                  time.Duration // mean time of a response
	Deadline                 time.Duration // of a call; 0: none
}

// The size of a draw.
const (
	maxCalls   = 20_000
	minWindows = 2.5
	maxWindows = 120
	maxCost    = 3 // of a call, times the mean
)

// load draws the calls. Rate and length are drawn together: they make at most maxCalls.
func (d *drawer) load() {
	l := &d.Load
	l.Kind = fleet.OneOf(d.Dice, loads()...)
	l.Service = d.span(5*time.Millisecond, time.Second)
	l.Factor = d.Log(0.3, 3)
	if l.Processes = 1; d.Likely(0.5) {
		l.Processes = d.count(2, 50)
	}
	first := d.drawnLimit()
	if first.Kind == limiter.Concurrency {
		l.Service = d.span(50*time.Millisecond, 5*time.Second)
	}
	calls := d.Log(3000, 18_000)
	if first.Kind != limiter.Concurrency { // small quotas make few calls
		perWindow := d.perSecond() * first.Refill().Seconds() * l.Factor
		windows := min(max(calls/perWindow, minWindows), maxWindows)
		if first.Refill() < first.Window { // of a bucket that is small beside its window
			windows = max(windows, minWindows*first.Window.Seconds()/first.Refill().Seconds())
		}
		calls = min(perWindow*windows, maxCalls)
	}
	switch l.Kind {
	case Open:
	case Workers:
		l.Workers = d.count(1, 200)
		l.Processes = min(l.Processes, l.Workers)
		l.Factor = d.Log(0.3, 10)
		cycle := time.Duration(float64(l.Workers) / (d.perSecond() * l.Factor) * float64(time.Second))
		if first.Kind != limiter.Concurrency {
			l.Service = max(min(l.Service, cycle), time.Millisecond)
		}
		l.Think = max(cycle-l.Service, 0)
		l.Factor = l.offered() / d.perSecond()
	case Bursts:
		l.Burst = min(d.count(2, 500), max(int(calls/3), 2))
	}
	rate := d.perSecond() * l.Factor
	l.Rate = rate
	if l.Kind == Bursts {
		l.Period = time.Duration(float64(l.Burst) / rate * float64(time.Second))
	}
	d.Length = time.Duration(calls / rate * float64(time.Second))
	if l.Deadline = fleet.OneOf(d.Dice, 0, 0, time.Second, 5*time.Second, 30*time.Second, time.Minute); l.Deadline > 0 {
		l.Deadline = max(l.Deadline, 5*l.Service)
	}
	d.Phase = time.Duration(d.Float64() * float64(d.Limits[len(d.Limits)-1].Window))
}

// begin draws a burst at the start of every fourth draw that is open or has workers. Its random values
// are its own, so that the rest of a draw is what it was without it.
func (d *drawer) begin() {
	d.Rand = rand.New(rand.NewPCG(^d.Seed, uint64(d.Number)+1))
	if limit := d.drawnLimit(); limit.Kind != limiter.Concurrency && d.Load.Kind != Bursts && d.Likely(0.25) {
		units := float64(limit.Capacity()) / d.unitsOf(limit)
		d.Load.First = min(max(int(units*d.Log(0.2, 2)), 2), 500)
	}
}

// unitsOf is the mean number of units that a call takes.
func (d Draw) unitsOf(l limiter.Limit) float64 {
	if l.Unit == limiter.Tokens {
		return float64(d.Load.Tokens)
	}
	return 1
}

// queued is how long a call of the burst at the start waits in the server. Without that, responses come
// so close together that calls meanwhile are few.
func (l Load) queued(c call) time.Duration {
	const atOnce = 8
	return time.Duration(max(-c.id, 0)/atOnce) * l.Service
}

// A response takes between shortest and shortest + spread of Load.Service.
const (
	shortest = 0.8
	spread   = 0.4
)

// took is the time of a response at fraction, 0 to 1, between the shortest and the longest.
func (l Load) took(fraction float64) time.Duration {
	return time.Duration(float64(l.Service) * (shortest + spread*fraction))
}

// offered is the rate of workers with calls that never wait.
func (l Load) offered() float64 { return float64(l.Workers) / (l.Service + l.Think).Seconds() }

// inFlight is the number of calls that start while one response is under way: a client cannot know
// more when it sends them. The first flight has all workers, or a burst.
func (l Load) inFlight() int {
	mean := l.Rate * l.Service.Seconds()
	return int(mean + 3*math.Sqrt(max(mean, 1))) // of a Poisson process
}

func (l Load) firstFlight() int { return max(l.inFlight(), l.Workers, l.Burst) }

func (l Load) String() string {
	var text string
	switch l.Kind {
	case Open:
		text = fmt.Sprintf("%.3g/s", l.Rate)
	case Workers:
		text = fmt.Sprintf("%d workers, pause %v", l.Workers, short(l.Think))
	case Bursts:
		text = fmt.Sprintf("bursts of %d every %v", l.Burst, short(l.Period))
	}
	if l.First > 0 {
		text += fmt.Sprintf(" after %d at once", l.First)
	}
	text += fmt.Sprintf(" (%.2g × quota), %d processes, %d paths", l.Factor, l.Processes, l.Paths)
	if l.Models > 1 {
		text += fmt.Sprintf(", %d models", l.Models)
	}
	text += fmt.Sprintf(", responses take %v", short(l.Service))
	if l.Deadline > 0 {
		text += fmt.Sprintf(", deadline %v", short(l.Deadline))
	}
	return text
}

// short rounds a duration to about three digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// call is one call, as its id tells.
type call struct {
	id                           int
	process, path, model, tokens int
}

// newCall returns the call with the id.
func (d Draw) newCall(id int) call {
	l, r := d.Load, d.chance()
	c := call{
		id:      id,
		process: int(r.Fraction(id, 0, drawProcess) * float64(l.Processes)),
		path:    int(r.Fraction(id, 0, drawPath) * float64(l.Paths)),
		model:   int(r.Fraction(id, 0, drawModel) * float64(l.Models)),
		tokens:  d.cost(r.Fraction(id, 0, drawTokens)),
	}
	if l.Kind == Workers && id >= 0 {
		c.process = id / maxCalls % l.Processes
	}
	return c
}

func (d Draw) chance() fleet.Chance { return fleet.Chance{Seed: d.Seed ^ fleet.Mix(uint64(d.Number))} }

// The purposes of random values.
const (
	drawProcess = iota
	drawPath
	drawModel
	drawTokens
	drawService
	drawCached
	drawError
	drawSlow
)

// cost is 0.2 to 2.6 times the mean: the mean of the square of a fraction is a third.
func (d Draw) cost(fraction float64) int {
	return max(int(float64(d.Load.Tokens)*(0.2+2.4*fraction*fraction)), 1)
}

// apart is the time between calls that are made at once. Two events never have the same time, so
// their order, and with it a run, does not depend on chance.
const apart = time.Microsecond

// at is the call with the id in the simulator.
func (d Draw) at(id int, at time.Duration) *fleet.Call {
	c, model := d.newCall(id), ""
	if d.Load.Models > 1 {
		model = strconv.Itoa(c.model)
	}
	return fleet.NewCall(id, at, c.process, "/path-"+strconv.Itoa(c.path), model)
}

// Calls implements fleet.Model.
func (d Draw) Calls() (calls []*fleet.Call) {
	for i := range d.Load.First {
		calls = append(calls, d.at(-1-i, time.Duration(i)*apart))
	}
	began := time.Duration(d.Load.First) * apart
	switch d.Load.Kind {
	case Open:
		random := rand.New(rand.NewPCG(d.Seed, uint64(d.Number)))
		gap := func() time.Duration {
			return max(time.Duration(random.ExpFloat64()/d.Load.Rate*float64(time.Second)), 1)
		}
		for at := began + gap(); at < d.Length && len(calls) < maxCalls; at += gap() {
			calls = append(calls, d.at(len(calls)-d.Load.First, at))
		}
	case Bursts:
		for begin := time.Duration(0); begin < d.Length; begin += d.Load.Period {
			for i := range d.Load.Burst {
				calls = append(calls, d.at(len(calls), begin+time.Duration(i)*apart))
			}
		}
	case Workers:
	}
	return calls
}

// Work implements fleet.Model.
func (d Draw) Work(worker, n int, at time.Duration) *fleet.Call { return d.at(worker*maxCalls+n, at) }

// scenario is the draw in the simulator. Workers start at different times. A call that fails at once takes its
// worker as long as the shortest response: otherwise workers without a pause make all calls within a hold.
func (d Draw) scenario(s *server) fleet.Scenario {
	l := d.Load
	load := fleet.Load{Clients: l.Processes, Deadline: cmp.Or(l.Deadline, -1), Workers: l.Workers, Think: l.Think, Least: l.took(0)}
	for i := range l.Workers {
		cycle := (l.Think + l.Service) * time.Duration(i) / time.Duration(l.Workers)
		load.Starts = append(load.Starts, cycle+time.Duration(l.First+i)*apart)
	}
	return fleet.Scenario{
		Name: fmt.Sprintf("zoo-%d-%d", d.Seed, d.Number), Phase: d.Phase, During: d.Length,
		Model: s, Server: fleet.Server{AttemptTimeout: -1}, Load: load,
	}
}
