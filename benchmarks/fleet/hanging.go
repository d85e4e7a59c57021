package fleet

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// hangingServer is a server that answers nothing for a time, and its callers.
type hangingServer struct {
	name    string
	rate    float64       // calls per second
	even    bool          // evenly spaced
	method  string        // "": GET
	timeout time.Duration // the deadline of a call, or AttemptTimeout of a call without a deadline
	attempt bool          // timeout is AttemptTimeout
	usual   time.Duration // latency of a response
	healthy time.Duration // time before the server hangs
	hangs   time.Duration // 0: longer than the targets need
}

// The targets of a server that only hangs.
const (
	hangOpens    = 20 * time.Second // the time until calls fail at once, plus hangTimeouts timeouts: until then calls wait
	hangTimeouts = 6
	hangHeld     = 0.2 // the mean time of a call after that, of the timeout
	hangHeldFew  = 1   // the same times the calls per second, of a client with few calls: a probe a second
	hangCalls    = 400 // calls that are measured, at least
	hangNewRate  = 5   // a new client with fewer calls per second may not open its circuit
)

// hanging are servers that only hang. DrawnHangs has more of them.
func hanging() []Scenario {
	const usual, healthy = 20 * time.Millisecond, 30 * time.Second
	return each(hangingServer.scenario,
		hangingServer{rate: 2, even: true, timeout: 30 * time.Second, usual: usual, healthy: healthy},
		hangingServer{rate: 2, timeout: 3 * time.Second, attempt: true, usual: usual, healthy: healthy},
		hangingServer{rate: 20, timeout: 10 * time.Second, usual: usual, healthy: healthy},
		hangingServer{rate: 20, timeout: 5 * time.Second, attempt: true, method: http.MethodPost, usual: usual, healthy: healthy},
		hangingServer{rate: 200, timeout: 3 * time.Second, usual: usual, healthy: healthy},
		hangingServer{rate: 200, timeout: 10 * time.Second, attempt: true, usual: usual, healthy: healthy},
	)
}

// DrawnHangs returns n servers of the seed that hang, always the same ones. A name among those of
// Named repeats one of them.
func DrawnHangs(seed uint64, n int) (all []Scenario) {
	for number := range n {
		all = append(all, drawHang(seed, number).scenario())
	}
	return all
}

// drawnHang returns the drawn server with the name.
func drawnHang(name string) (s Scenario, ok bool) {
	var seed uint64
	var number int
	if _, err := fmt.Sscanf(name, "hang-%d-%d", &seed, &number); err != nil || number < 0 {
		return s, false
	}
	s = drawHang(seed, number).scenario()
	return s, s.Name == name
}

// drawHang draws a server. Every third one hangs so shortly that its circuit need not open.
func drawHang(seed uint64, number int) hangingServer {
	c := &composer{Dice: Dice{rand.New(rand.NewPCG(seed, uint64(number)+2000))}}
	h := hangingServer{
		name:    fmt.Sprintf("hang-%d-%d", seed, number),
		timeout: OneOf(c.Dice, time.Second, 2*time.Second, 3*time.Second, 5*time.Second, 10*time.Second, 30*time.Second, c.span(time.Second, time.Minute)),
		attempt: c.Likely(0.5),
		rate:    OneOf(c.Dice, 2, 20, 200, c.between(2, 200)),
		even:    c.Likely(0.3),
		method:  OneOf(c.Dice, http.MethodGet, http.MethodPost),
		usual:   c.span(5*time.Millisecond, 100*time.Millisecond),
		healthy: OneOf(c.Dice, 0, 10*time.Second, 30*time.Second, c.span(5*time.Second, time.Minute)),
	}
	if h.rate < hangNewRate || number%3 == 2 {
		h.healthy = max(h.healthy, 10*time.Second)
	}
	if number%3 == 2 {
		h.hangs = c.span(h.timeout/4, 4*h.timeout)
	}
	return h
}

// limit is the time after which calls must fail at once.
func (h hangingServer) limit() time.Duration { return hangOpens + hangTimeouts*h.timeout }

// held is the maximum mean time of a call after that, of the timeout.
func (h hangingServer) held() float64 { return max(hangHeld, hangHeldFew/h.rate) }

func (h hangingServer) scenario() Scenario {
	s := Scenario{
		Row: 50, Name: h.name, Topologies: []Topology{Shared},
		Before: h.healthy, During: h.hangs, After: 30 * time.Second,
		Server: Server{Workers: -1, Service: h.usual, AttemptTimeout: -1, Faults: []Fault{{Response: Response{Hang: true}}}},
		Load:   Load{Rate: h.rate, Even: h.even, Deadline: h.timeout, Method: h.method, Clients: 1},
	}
	kind := "deadline"
	if h.attempt {
		kind = "AttemptTimeout"
		s.Load.Deadline, s.Server.AttemptTimeout = -1, h.timeout+time.Millisecond // so that it ends no attempt of this library
		s.Configure = func(t *resilienthttp.Transport) { t.Policy.AttemptTimeout = h.timeout }
	}
	if s.Name == "" {
		s.Name = fmt.Sprintf("hanging-%g-%s-%v", h.rate, strings.ToLower(kind), h.timeout)
	}
	if h.hangs == 0 {
		s.During = h.limit() + max(4*h.timeout, 30*time.Second, time.Duration(hangCalls/h.rate*float64(time.Second)))
		s.Targets = []Target{
			atMost("time until a call fails at once, s", failsAtOnce, h.limit().Seconds(), "%.1f").inSeconds().worstSeed(),
			atMost("time of a call after that, of its timeout", func(r Result) float64 {
				return r.meanBetween(h.healthy+h.limit(), h.healthy+r.Scenario.During).Seconds() / h.timeout.Seconds()
			}, h.held(), "%.3f"),
			recoversWithin(5 * time.Second),
		}
	}
	s.Note = fmt.Sprintf("%g calls/s, %s, %s %v; all requests hang for %v after %v of responses of %v",
		h.rate, s.Load.method(), kind, h.timeout, s.During, h.healthy, h.usual)
	return s
}

// failsAtOnce is the time in seconds from the start of During until a call fails within 100 ms.
func failsAtOnce(r Result) float64 {
	first := never
	for _, c := range r.calls {
		if at := c.at - r.Scenario.Before; !c.success && c.latency <= fine && at >= 0 {
			first = min(first, at)
		}
	}
	return first.Seconds()
}

// meanBetween is the mean latency of the calls that were made in the period.
func (r Result) meanBetween(from, to time.Duration) time.Duration {
	var sum, calls time.Duration
	for _, c := range r.calls {
		if c.at >= from && c.at < to {
			sum, calls = sum+c.latency, calls+1
		}
	}
	return sum / max(calls, 1)
}
