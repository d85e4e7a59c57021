package fleet

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// hangingServer is a server that answers nothing for a time, and its callers.
type hangingServer struct {
	rate    float64       // calls per second
	even    bool          // evenly spaced
	method  string        // "": GET
	timeout time.Duration // the deadline of a call, or AttemptTimeout of a call without a deadline
	attempt bool          // timeout is AttemptTimeout
	healthy time.Duration // time before the server hangs
}

// The targets of a server that only hangs.
const (
	hangOpens    = 20 * time.Second // the time until calls fail at once, plus hangTimeouts timeouts: until then calls wait
	hangTimeouts = 6
	hangHeld     = 0.2 // the mean time of a call after that, of the timeout
	hangHeldFew  = 1   // the same times the calls per second, of a client with few calls: a probe a second
	hangCalls    = 400 // calls that are measured, at least
)

const hangUsual = 20 * time.Millisecond // latency of a response before it

// hanging are servers that only hang.
func hanging() []Scenario {
	const healthy = 30 * time.Second
	return each(hangingServer.scenario,
		hangingServer{rate: 2, even: true, timeout: 30 * time.Second, healthy: healthy},
		hangingServer{rate: 2, timeout: 3 * time.Second, attempt: true, healthy: healthy},
		hangingServer{rate: 20, timeout: 10 * time.Second, healthy: healthy},
		hangingServer{rate: 20, timeout: 5 * time.Second, attempt: true, method: http.MethodPost, healthy: healthy},
		hangingServer{rate: 200, timeout: 3 * time.Second, healthy: healthy},
		hangingServer{rate: 200, timeout: 10 * time.Second, attempt: true, healthy: healthy},
	)
}

// limit is the time after which calls must fail at once.
func (h hangingServer) limit() time.Duration { return hangOpens + hangTimeouts*h.timeout }

func (h hangingServer) scenario() Scenario {
	s := Scenario{
		Row: 50, Topologies: []Topology{Shared},
		Before: h.healthy, During: h.limit() + max(4*h.timeout, 30*time.Second, time.Duration(hangCalls/h.rate*float64(time.Second))), After: 30 * time.Second,
		Server: Server{Workers: -1, Service: hangUsual, AttemptTimeout: -1, Faults: []Fault{{Response: Response{Hang: true}}}},
		Load:   Load{Rate: h.rate, Even: h.even, Deadline: h.timeout, Method: h.method, Clients: 1},
		Targets: []Target{
			atMost("time until a call fails at once, s", failsAtOnce, h.limit().Seconds(), "%.1f").inSeconds().worstSeed(),
			atMost("time of a call after that, of its timeout", func(r Result) float64 {
				return r.meanBetween(h.healthy+h.limit(), h.healthy+r.Scenario.During).Seconds() / h.timeout.Seconds()
			}, max(hangHeld, hangHeldFew/h.rate), "%.3f"),
			recoversWithin(5 * time.Second),
		},
	}
	kind := "deadline"
	if h.attempt {
		kind = "AttemptTimeout"
		s.Load.Deadline, s.Server.AttemptTimeout = -1, h.timeout+time.Millisecond // so that it ends no attempt of this library
		s.Configure = func(t *resilienthttp.Transport) { t.Policy.AttemptTimeout = h.timeout }
	}
	s.Name = fmt.Sprintf("hanging-%g-%s-%v", h.rate, strings.ToLower(kind), h.timeout)
	s.Note = fmt.Sprintf("%g calls/s, %s, %s %v; all requests hang for %v after %v of responses of %v",
		h.rate, s.Load.method(), kind, h.timeout, s.During, h.healthy, hangUsual)
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
func (r Result) meanBetween(from, to time.Duration) (sum time.Duration) {
	calls := r.callsIn(from, to)
	for _, c := range calls {
		sum += c.latency
	}
	return sum / time.Duration(max(len(calls), 1))
}
