package fleet

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// Composition is a random scenario: several partial faults, and random clients.
type Composition struct {
	Number   int // index for the seed
	Topology Topology
	Scenario Scenario
	Seed     uint64 // of its runs
}

// Compose returns the composition with the number, always the same for a seed. Every fifth
// composition has many clients with few calls each, and an outage or a brownout. Every tenth has
// few callers and a small quota. Of ten, those that end in 2, 5 and 8 are services: see service.
func Compose(seed uint64, number int) Composition {
	c := &composer{Dice: Dice{rand.New(rand.NewPCG(seed, uint64(number)+1000))}}
	c.scenario = Scenario{Name: fmt.Sprintf("random-%d", number)}
	switch {
	case number%5 == 4:
		c.smallFleet()
		OneOf(c.Dice, c.outages, c.brownout)()
		c.faults(c.IntN(3))
	case number%10 == 7:
		c.faults(c.fewCallers())
	case number%10 == 2 || number%10 == 5 || number%10 == 8:
		c.service()
		c.some(1+c.IntN(3), c.bucket, c.besideOthers, c.coldStart, OneOf(c.Dice, c.errors, c.hanging),
			OneOf(c.Dice, c.rejections, c.outages), OneOf(c.Dice, c.brokenBackends, c.restarts, c.slowResponses))
	default:
		c.clients()
		c.faults(1 + c.IntN(3))
	}
	c.scenario.Note = strings.Join(c.notes, "; ")
	return Composition{Number: number, Topology: c.topology, Scenario: c.scenario, Seed: Mix(seed) + uint64(number)}
}

// composer draws one composition.
type composer struct {
	Dice
	scenario Scenario
	topology Topology
	rate     float64
	notes    []string
}

func (c *composer) describef(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// between draws from a logarithmic scale, with two digits.
func (c *composer) between(low, high float64) float64 {
	v := c.Log(low, high)
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/unit) * unit
}

func (c *composer) span(low, high time.Duration) time.Duration {
	return time.Duration(c.between(low.Seconds(), high.Seconds()) * float64(time.Second)).Round(time.Millisecond)
}

// The ranges of random values.
const (
	slowest  = 1.0 / 60 // calls per second
	fastest  = 1000.0
	minCalls = 300 // minimum of measured calls
	shortRun = 40 * time.Second

	leastQuota = 0.2 // of few callers, requests per second
	mostQuota  = 5.0
)

// clients draws the clients, their rate and their calls.
func (c *composer) clients() {
	l := &c.scenario.Load
	c.topology = OneOf(c.Dice, Shared, Own)
	l.Clients = 1
	if c.rate = c.between(slowest, fastest); c.topology == Own {
		l.Clients = int(c.between(10, 500))
		c.rate = min(c.between(slowest, 3)*float64(l.Clients), fastest)
	}
	c.calls()
}

// fewCallers draws a few clients and a small quota near their rate. It returns the number of
// other faults.
func (c *composer) fewCallers() int {
	l := &c.scenario.Load
	c.topology = OneOf(c.Dice, Shared, Own)
	l.Clients = 1 + c.IntN(8)
	quota := c.between(leastQuota, mostQuota)
	c.rate = quota * c.between(0.7, 3)
	c.calls()
	c.limitTo(quota)
	return c.IntN(2)
}

// calls draws the calls of clients with a rate, and the duration.
func (c *composer) calls() {
	l := &c.scenario.Load
	l.Rate = c.rate
	l.Deadline = OneOf(c.Dice, -1, time.Second, 5*time.Second, 10*time.Second, 30*time.Second, 30*time.Second, time.Minute)
	l.Method = OneOf(c.Dice, http.MethodGet, http.MethodGet, http.MethodPost)
	calls := c.between(1.3*minCalls, 6000)
	c.describef("%s, %d clients, %.3g/s, %s, deadline %v", c.topology, l.Clients, c.rate, l.Method, l.Deadline)
	if c.Likely(0.3) {
		l.Bare = 0.1
		calls /= 0.9
		c.describef("10 %% of the load from bare clients")
	}
	length := max(time.Duration(calls/c.rate*float64(time.Second)), shortRun)
	c.scenario.During = length.Round(time.Second)
	c.scenario.Server = Server{Workers: -1, Service: c.span(5*time.Millisecond, 200*time.Millisecond), AttemptTimeout: OneOf(c.Dice, -1, 2*time.Second, 10*time.Second)}
	if l.Deadline < 0 {
		c.scenario.Server.AttemptTimeout = 30 * time.Second // hanging attempts must end
	}
	c.describef("responses take %v, attempts time out after %v", c.scenario.Server.Service, c.scenario.Server.AttemptTimeout)
}

// smallFleet draws clients with few calls before the fault, or none. The server has a queue
// and a capacity above the load.
func (c *composer) smallFleet() {
	l, s := &c.scenario.Load, &c.scenario.Server
	c.topology = Own
	l.Every = c.span(5*time.Second, time.Minute)
	l.Clients = int(min(c.between(minCalls, 6000), fastest*l.Every.Seconds()))
	l.Deadline = OneOf(c.Dice, 5*time.Second, 10*time.Second, 30*time.Second, 30*time.Second, time.Minute)
	l.Method = OneOf(c.Dice, http.MethodGet, http.MethodGet, http.MethodPost)
	c.rate = l.perSecond()
	length := time.Duration(c.between(2, 4) * float64(l.Every))
	c.scenario.During = max(length, shortRun).Round(time.Second)
	c.describef("%d clients with a call every %v, %s, deadline %v", l.Clients, l.Every, l.Method, l.Deadline)

	s.Workers = OneOf(c.Dice, 4, 6, 12)
	s.Service = time.Duration(float64(s.Workers) / (c.rate * c.between(1.3, 3)) * float64(time.Second)).Round(time.Microsecond)
	s.Queue = max(int(c.span(200*time.Millisecond, 5*time.Second).Seconds()*s.capacity()), 1)
	s.AttemptTimeout = max(OneOf(c.Dice, 500*time.Millisecond, 2*time.Second, 10*time.Second), 2*s.Service)
	c.describef("%d workers of %v, that is %.3g/s, a queue of %d, attempts time out after %v", s.Workers, s.Service, s.capacity(), s.Queue, s.AttemptTimeout)
}

// service draws a service of one process or of several pods, in an open or a closed loop, for up to ten
// minutes.
func (c *composer) service() {
	const mostCalls, longest = 12000, 10 * time.Minute
	l := &c.scenario.Load
	c.topology, l.Clients = Shared, 1
	if c.Likely(0.4) {
		c.topology, l.Clients = Own, 2+c.IntN(29)
	}
	c.rate = c.between(0.7, 250)
	c.calls()
	l.Bare = 0
	length := min(c.span(time.Minute, longest), time.Duration(mostCalls/c.rate*float64(time.Second)))
	c.scenario.During = max(length, shortRun, time.Duration(1.3*minCalls/c.rate*float64(time.Second))).Round(time.Second)
	if c.Likely(0.3) {
		workers := 2 + c.IntN(59)
		l.Rate, l.Workers = 0, workers
		response := c.scenario.Server.Service
		l.Think = max(time.Duration(float64(workers)/c.rate*float64(time.Second))-response, response)
		c.rate = float64(workers) / (l.Think + response).Seconds()
		c.describef("by %d workers, %v between their calls", workers, l.Think.Round(time.Millisecond))
	}
	c.describef("%v", c.scenario.During)
}

// sometimes draws the whole run, or a part in its middle.
func (c *composer) sometimes(f Fault) Fault {
	if run := float64(c.scenario.During); c.Likely(0.5) {
		f.From, f.To = time.Duration(run*(0.1+0.25*c.Float64())), time.Duration(run*(0.4+0.3*c.Float64()))
		c.describef("from %v to %v:", f.From.Round(time.Second), f.To.Round(time.Second))
	}
	return f
}

// bucket draws a token bucket that tells its state, mostly only on its rejections.
func (c *composer) bucket() {
	window := float64(OneOf(c.Dice, 1, 1, 10, 60))
	quota := max(math.Floor(c.rate*(0.4+c.Float64())*window), 1)
	c.scenario.Server.Limit = Limit{
		API: OneOf(c.Dice, apiRejections, apiRejections, apiRejections, apiAnthropic), Rate: quota / window,
		Burst: int(max(quota*OneOf(c.Dice, 1, 0.2), 1)),
	}
	c.describef("a token bucket of %.3g/s, burst %d, tells as %s", quota/window, c.scenario.Server.Limit.Burst, c.scenario.Server.Limit.API)
}

// besideOthers draws a path that hangs or fails beside up to four others.
func (c *composer) besideOthers() {
	f := Fault{Path: export}
	what := "nothing"
	if f.Response.Hang = c.Likely(0.4); !f.Response.Hang {
		f.Response, what = c.failure()
	}
	share, others := c.between(0.05, 0.9), 1+c.IntN(4)
	c.scenario.Load.Paths = []Part{{export, share}}
	for i := range others {
		c.scenario.Load.Paths = append(c.scenario.Load.Paths, Part{fmt.Sprintf("/path-%d", i), (1 - share) / float64(others)})
	}
	c.add(c.sometimes(f))
	c.describef("/export, %.3g of calls, returns %s beside %d others", share, what, others)
}

// coldStart draws 503s, after which one worker starts after another.
func (c *composer) coldStart() {
	if c.scenario.Server.Workers < 0 {
		c.capacity()
	}
	workers, run := c.scenario.Server.Workers, c.scenario.During
	from, down, step := run/4, c.span(time.Second, run/10), c.span(run/20, run/4)/time.Duration(workers)
	c.add(Fault{From: from, To: from + down, Response: Response{Status: http.StatusServiceUnavailable}})
	for i := range workers {
		at := from + down + time.Duration(i)*step
		c.scenario.Server.Staff = append(c.scenario.Server.Staff, Staff{From: at, To: at + step, Workers: i + 1})
	}
	c.describef("503 for %v, then one worker more every %v", down, step.Round(time.Millisecond))
}

// faults draws n faults of different kinds.
func (c *composer) faults(n int) {
	c.some(n, c.errors, c.errors, c.path, c.brokenBackends, c.hanging, c.rejections, c.rejections,
		c.limit, c.limit, c.capacity, c.outages, c.outages, c.restarts, c.brownout, c.slowResponses)
}

// some draws n of the kinds.
func (c *composer) some(n int, kinds ...func()) {
	c.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, kind := range kinds[:n] {
		kind()
	}
}

func (c *composer) add(f Fault) { c.scenario.Server.Faults = append(c.scenario.Server.Faults, f) }

// failure draws a response or an error.
func (c *composer) failure() (Response, string) {
	type failure struct {
		response Response
		name     string
	}
	f := OneOf(c.Dice,
		failure{Response{Status: http.StatusInternalServerError}, "500"},
		failure{Response{Status: http.StatusBadGateway}, "502"},
		failure{Response{Status: http.StatusServiceUnavailable}, "503 without Retry-After"},
		failure{Response{Err: ErrReset}, "a reset"},
		failure{Response{Err: ErrRefused}, "a refused connection"})
	return f.response, f.name
}

func (c *composer) errors() {
	resp, name := c.failure()
	f := Fault{Share: c.between(0.01, 0.6), Response: resp}
	c.add(f)
	c.describef("%.3g of responses are %s", f.Share, name)
}

func (c *composer) path() {
	resp, name := c.failure()
	share := c.between(0.05, 0.6)
	if c.Likely(0.4) {
		resp = Response{Status: http.StatusGatewayTimeout, After: c.span(100*time.Millisecond, 3*time.Second)}
		name = fmt.Sprintf("504 after %v", resp.After)
	}
	c.scenario.Load.Paths = []Part{{export, share}, {charge, 1}}
	c.add(Fault{Path: export, Response: resp})
	c.describef("/export, %.3g of calls, returns %s", share, name)
}

const backendsDrawn = 10

func (c *composer) brokenBackends() {
	resp, name := c.failure()
	if c.Likely(0.3) {
		resp, name = Response{Hang: true}, "nothing"
	}
	n := 1 + c.IntN(5)
	c.scenario.Server.Backends = backendsDrawn
	c.add(Fault{Backends: upTo(n), Response: resp})
	c.describef("%d of 10 backends return %s", n, name)
}

func (c *composer) hanging() {
	f := Fault{Share: c.between(0.01, 0.3), Response: Response{Hang: true}}
	c.add(f)
	c.describef("%.3g of requests hang", f.Share)
}

func (c *composer) rejections() {
	resp := Response{Status: OneOf(c.Dice, http.StatusServiceUnavailable, http.StatusTooManyRequests), RetryAfter: OneOf(c.Dice, 1, 1, 1, 2, 5, 30)}
	f := Fault{Share: c.between(0.003, 0.2), Response: resp}
	c.add(f)
	c.describef("%.3g of responses are %d with Retry-After: %d", f.Share, resp.Status, resp.RetryAfter)
}

// limit draws a limit near the offered rate.
func (c *composer) limit() { c.limitTo(c.rate * (0.5 + 0.8*c.Float64())) }

// limitTo draws a limit of the rate.
func (c *composer) limitTo(granted float64) {
	says := OneOf(c.Dice, AllHeaders, HeadersOnRejections, RetryAfterOnly, NoHeaders)
	l := Limit{Headers: says}
	if c.Likely(0.5) {
		l.Window = time.Second
		for _, wider := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
			if granted*l.Window.Seconds() < 5 {
				l.Window = wider
			}
		}
		l.Quota = max(int(granted*l.Window.Seconds()), 1)
		c.describef("a quota of %d in %v, headers: %s", l.Quota, l.Window, cmp.Or(says, "all"))
	} else {
		l.Rate, l.Burst = granted, int(c.between(1, 30))
		l.Status = OneOf(c.Dice, http.StatusTooManyRequests, http.StatusServiceUnavailable)
		c.describef("a token bucket of %.3g/s, burst %d, status %d, headers: %s", l.Rate, l.Burst, l.Status, cmp.Or(says, "all"))
	}
	c.scenario.Server.Limit = l
}

// capacity draws workers with about the offered rate, and a queue with a maximum wait.
func (c *composer) capacity() {
	s := &c.scenario.Server
	factor := 0.7 + 0.6*c.Float64()
	if s.Workers = int(math.Round(c.rate * factor * s.Service.Seconds())); s.Workers < 1 {
		s.Workers = 1
		s.Service = min(time.Duration(float64(time.Second)/(c.rate*factor)), time.Second/2).Round(time.Millisecond)
	}
	wait := c.span(50*time.Millisecond, 5*time.Second)
	s.Queue = max(int(wait.Seconds()*s.capacity()), 1)
	s.RetryAfter = OneOf(c.Dice, 0, 1, 1)
	c.describef("%d workers of %v, that is %.3g/s; a queue of %d; 503 with Retry-After: %d", s.Workers, s.Service, s.capacity(), s.Queue, s.RetryAfter)
}

const maxOutages = 20

// outages spreads outages over the run.
func (c *composer) outages() {
	resp, name := c.failure()
	if c.Likely(0.3) {
		resp = Response{Status: http.StatusServiceUnavailable, RetryAfter: OneOf(c.Dice, 1, 5, 10)}
		name = fmt.Sprintf("503 with Retry-After: %d", resp.RetryAfter)
	}
	run := c.scenario.During
	length := c.span(200*time.Millisecond, max(20*time.Second, run/10))
	length = min(length, run/4)
	n := int(c.between(0.03, 0.3) * float64(run) / float64(length))
	n = max(min(n, maxOutages), 1)
	for i := range n {
		from := run * time.Duration(2*i+1) / time.Duration(2*n+1)
		c.add(Fault{From: from, To: from + length, Response: resp})
	}
	c.describef("%d outages of %v: %s", n, length, name)
}

func (c *composer) restarts() {
	run := c.scenario.During
	length := c.span(run/500, run/20)
	c.scenario.Server.Backends = backendsDrawn
	for i := range backendsDrawn {
		from := run * time.Duration(i+1) / (backendsDrawn + 2)
		c.add(Fault{From: from, To: from + length, Backends: []int{i}, Response: Response{Err: ErrRefused}})
	}
	c.describef("ten backends restart one after another, %v each", length)
}

// brownout removes workers for 10 % to 33 % of the run.
func (c *composer) brownout() {
	if c.scenario.Server.Workers < 0 {
		c.capacity()
	}
	run := c.scenario.During
	from := run / 4
	to := from + time.Duration(c.between(0.1, 0.33)*float64(run))
	left := max(int(float64(c.scenario.Server.Workers)*(0.2+0.6*c.Float64())), 1)
	c.scenario.Server.Staff = []Staff{{From: from, To: to, Workers: left}}
	c.describef("%d workers from %v to %v", left, from.Round(time.Second), to.Round(time.Second))
}

func (c *composer) slowResponses() {
	f := Fault{Share: c.between(0.01, 0.3), Response: Response{Status: http.StatusOK, After: c.span(100*time.Millisecond, 5*time.Second)}}
	f.Response.Until = f.Response.After * 2
	c.add(f)
	c.describef("%.3g of responses take %v to %v", f.Share, f.Response.After, f.Response.Until)
}
