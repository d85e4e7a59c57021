package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// baseScenarios affect the whole server. All libraries run them.
//
// The brownout has two minutes after it, so that a client without recovery is visible. A
// perfect load shedder serves 0.874 of all calls: all except 400 per second of that minute.
//
// In the tail scenario, attempts have no timeout. A timeout of 500 ms would force 5 % of
// first and second attempts to be retried, which is 1.0526 attempts per call.
func baseScenarios() []Scenario {
	return []Scenario{
		{
			Name: "healthy", Note: "no fault", During: 120 * time.Second,
			Targets: []Target{
				atMost("attempts per call", Result.AttemptsPerCall, 1, "%.4f"),
				atLeast("success", Result.Success, 1, "%.5f"),
			},
		},
		{
			Name: "outage", Note: "all responses are 503 for 30 s",
			Before: 10 * time.Second, During: 30 * time.Second, After: 80 * time.Second,
			Server: Server{Faults: []Fault{{Response: Response{Status: 503}}}},
			Targets: []Target{
				atMost("load in the worst second", worstDuring, 1.25, "%.3f").shared().worstSeed(),
				atMost("load in the worst second", worstDuring, 2.1, "%.3f").perClient().worstSeed(),
				atMost("attempts per call", Result.AttemptsPerCall, 1.02, "%.3f").shared(),
				atMost("attempts per call", Result.AttemptsPerCall, 1.2, "%.3f").perClient(),
				atLeast("success", Result.Success, 0.750, "%.4f").orBare(),
				recoversWithin(2 * time.Second).shared(),
				recoversWithin(5 * time.Second).perClient(),
				atMost("peak load after recovery", peakAfter, 1.5, "%.3f").shared().worstSeed(),
				atMost("peak load after recovery", peakAfter, 3, "%.3f").perClient().worstSeed(),
			},
		},
		{
			Name: "brownout", Note: "half of the workers for 60 s",
			Before: 10 * time.Second, During: 60 * time.Second, After: 120 * time.Second,
			Server: Server{Staff: []Staff{{Workers: defaultWorkers / 2}}},
			Targets: []Target{
				atLeast("success", Result.Success, 0.85, "%.4f").shared(),
				atLeast("success", Result.Success, 0.86, "%.4f").shared().goal(),
				atLeast("success", Result.Success, 0.81, "%.4f").perClient(),
				atLeast("success", Result.Success, 0.84, "%.4f").perClient().goal().reason(whyBrownout),
				atMost("attempts per call", Result.AttemptsPerCall, 1, "%.3f"),
				atMost("longest outage (goodput below 10 %), s", longestOutage, 5, "%.0f").perClient().goal(),
				recoversWithin(3 * time.Second),
			},
		},
		{
			Name: "errors", Note: "1 % of responses are 500", During: 120 * time.Second,
			Server: Server{Faults: []Fault{{Share: 0.01, Response: Response{Status: 500}, Worked: true}}},
			Targets: []Target{
				atLeast("success", Result.Success, 0.99995, "%.5f"),
				atMost("attempts per call", Result.AttemptsPerCall, 1.011, "%.4f"),
				atMost("p99.9, ms", p999, 125, "%.1f"),
			},
		},
		{
			Name: "quota", Note: "200 calls/s, quota 100/s", During: 120 * time.Second,
			Server: Server{Limit: Limit{Quota: 100}}, Load: Load{Rate: 200},
			Targets: []Target{
				atMost("429s after the first window", tooManyLater, 0, "%.0f").shared(),
				atLeast("used part of the quota", quotaUsed, 0.98, "%.4f"),
				atLeast("failures within 100 ms", failedFast, 0.99, "%.4f").shared(),
				atMost("429s", tooMany, 1, "%.0f").perClient().timesBare(tooMany),
			},
		},
		{
			Name: "tail", Note: "5 % of responses take 1 s, the others 20 ms", During: 120 * time.Second,
			Ours: []string{peers.OursHedged, peers.OursHedgedAt},
			Server: Server{
				Workers: -1, Service: 20 * time.Millisecond, AttemptTimeout: -1,
				Faults: []Fault{{Share: 0.05, Response: Response{Status: 200, After: time.Second}}},
			},
			Targets: []Target{
				atMost("p99, ms", p99, 71, "%.1f").shared(),
				atMost("p99, ms", p99, 71, "%.1f").perClient().reason(whyMeasured),
				atMost("attempts per call", Result.AttemptsPerCall, 1.05, "%.4f").reason(whyChance),
				atMost("p99.9, ms", p999, 200, "%.1f").goal().reason(whyTwice),
			},
		},
	}
}

// Reasons for missed targets.
const (
	whyNoCap = "the peers have no retry budget and send at least twice the load; the budget of this library limits the worst " +
		"second of an outage to 1.15 times the load"
	whyAllAttempts = "a client with few calls has five retry tokens; each retry that an exhausted quota rejects is one more 429"
	whyGrowing     = "the slow-start limit finds the capacity by exceeding it now and then; here the capacity grows every 2.5 s"
	whyFew         = "each client starts with five retry tokens, which permit more retries than a tenth of its first calls"
	whyExact       = "the budget has five tokens plus a tenth of the calls, which is too little for 24 failures at one instant"
	whySlow        = "a client with a success in the last 10 s makes one quick retry after a timeout, so the server's queue " +
		"drains later"
	whyTipped = "the server is not overloaded only because it rejects or loses some requests; retries overload it, and a client " +
		"with few calls cannot detect that. AttemptTimeout is shorter than the queue, so the work of the requests that it ends is lost. " +
		"The peers' retries overload it too. Without AttemptTimeout (the default of this library) see *-no-timeout*"

	whyBrownout = "a client with one call a second cannot distinguish half of the capacity from none before it has seen some " +
		"failures; each failure occupies the queue"
	whyMeasured = "a zero Hedge measures its delay from 20 responses, which take 20 s at one call a second, and sends at most " +
		"one hedge in ten calls, which is too few for two slow responses within 10 s. *hedged-50ms* sets Hedge{Delay: 50ms, MaxRatio: 0.2}"
	whyChance = "5 % of responses are slow by definition, plus or minus 0.06 % by chance"
	whyTwice  = "in one call of 400 the original and the hedge are both slow; only a third copy would help, and this library " +
		"does not send it"
)

// limits are servers with rate limits and different headers, and rate limits that the
// client sets.
func limits() []Scenario {
	unsaid := func(name, note string, load Load, burst int) Scenario {
		return Scenario{
			Row: 23, Name: name, Note: "100 calls/s, nginx limit_req 50/s: 503 without headers" + note, During: 60 * time.Second, Load: load,
			Server:  Server{Limit: Limit{Rate: 50, Burst: burst, Status: http.StatusServiceUnavailable, Headers: NoHeaders}},
			Targets: []Target{atLeast("success", Result.Success, 0.51, "%.4f").orBare()},
		}
	}
	return append([]Scenario{{
		Row: 13, Name: "429-no-headers", Note: "120 calls/s, quota 100/s; 429 without headers", Reason: whyAllAttempts, During: 60 * time.Second, Topologies: []Topology{Own},
		Server: Server{Limit: Limit{Quota: 100, Headers: NoHeaders}}, Load: Load{Rate: 120},
		Targets: []Target{
			atLeast("success", Result.Success, 0.82, "%.4f"),
			atMost("429s", tooMany, 6000, "%.0f"),
		},
	}, {
		Row: 14, Name: "quota-headers-on-429", Note: "200 calls/s, quota 100/s; quota headers only on 429", During: 60 * time.Second, Topologies: []Topology{Shared},
		Server: Server{Limit: Limit{Quota: 100, Headers: HeadersOnRejections}}, Load: Load{Rate: 200},
		Targets: []Target{
			atLeast("used part of the quota", quotaUsed, 0.95, "%.4f"),
			atMost("429s", tooMany, 1000, "%.0f"),
		},
	}, {
		Row: 20, Name: "quota-many-clients", Note: "1000 clients, 200 calls/s, one quota of 100/s", During: 120 * time.Second, Topologies: []Topology{Own},
		Server: Server{Limit: Limit{Quota: 100}}, Load: Load{Rate: 200},
		Targets: []Target{
			atMost("429s in the first minute", tooManyAtFirst, 1.25, "%.0f").timesBare(tooManyAtFirst),
			atMost("429s", tooMany, 1, "%.0f").timesBare(tooMany),
		},
	},
		unsaid("limit-req", ", burst 5", Load{Rate: 100, Clients: 100}, 5),
		unsaid("limit-req-even", ", no burst, evenly spaced calls", Load{Rate: 100, Clients: 100, Even: true}, 1),
	}, append(gateways(), own()...)...)
}

// gateways are token buckets with Retry-After: 1.
func gateways() (all []Scenario) {
	const served = "used part of the limit"
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		server := Server{Limit: Limit{Rate: 50, Burst: 10, Status: status}}
		all = append(all, each(func(offered float64) Scenario {
			return Scenario{
				Row: 21, Name: fmt.Sprintf("gateway-%d-%g", status, offered), During: 60 * time.Second,
				Note:   fmt.Sprintf("%g calls/s, token bucket of 50/s: %d with Retry-After: 1", offered, status),
				Server: server, Load: Load{Rate: offered}, Shows: served,
				Targets: []Target{atLeast(served, quotaUsed, 0.98, "%.4f").orBare()},
			}
		}, 52, 60, 100)...)
		all = append(all, Scenario{
			Row: 21, Name: fmt.Sprintf("gateway-%d-workers", status), During: 60 * time.Second,
			Note:   fmt.Sprintf("20 workers, token bucket of 50/s: %d with Retry-After: 1", status),
			Server: server, Load: Load{Workers: 20, Think: 10 * time.Millisecond}, Shows: served,
			Targets: []Target{
				atLeast(served, quotaUsed, 0.90, "%.4f"),
				atLeast(served, quotaUsed, 0.98, "%.4f").goal(),
			},
		})
	}
	return all
}

// own are rate limits of the client.
func own() []Scenario {
	all := each(func(limit float64) Scenario {
		return Scenario{
			Row: 19, Name: fmt.Sprintf("limit-%g", limit), Note: fmt.Sprintf("RateLimit{Limit: %g, Burst: 1}, 200 callers", limit),
			During: 30 * time.Second, Topologies: []Topology{Shared},
			Load: Load{Workers: 200},
			Configure: func(t *resilienthttp.Transport) {
				t.RateLimit = &resilienthttp.RateLimit{Limit: rate.Limit(limit), Burst: 1}
			},
			Targets: []Target{atLeast("used part of the limit", func(r Result) float64 {
				return float64(r.attemptsIn(0, r.Scenario.Length())) / limit / r.Scenario.Length().Seconds()
			}, 0.95, "%.4f")},
		}
	}, 10, 100, 1000)
	const limit, burst = 48, 5
	return append(all, Scenario{
		Row: 22, Name: "limit-and-429", Note: "RateLimit{Limit: 48, Burst: 5}, 60 calls/s, one 429 with Retry-After: 2",
		Before: 20 * time.Second, During: time.Second, After: 19 * time.Second, Topologies: []Topology{Shared},
		Server:    Server{Faults: []Fault{{Times: 1, Response: Response{Status: http.StatusTooManyRequests, RetryAfter: 2}}}},
		Load:      Load{Rate: 60},
		Configure: func(t *resilienthttp.Transport) { t.RateLimit = &resilienthttp.RateLimit{Limit: limit, Burst: burst} },
		Targets: []Target{
			atMost("requests above Burst + Limit × time", func(r Result) float64 { return r.excess(limit, burst) }, 0.001, "%.3f").worstSeed(),
		},
	})
}

// regressions are the worst random compositions of earlier versions, reduced to what shows
// the problem. Only the two rules for all rows apply to them.
func regressions() []Scenario {
	all := []Scenario{{
		Name: "regression-quota", Note: "280 calls/s, quota 228/s without headers; 0.5 % of responses are 429 with Retry-After: 30", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Limit: Limit{Quota: 228, Headers: NoHeaders}, Faults: []Fault{
			{Share: 0.0054, Response: Response{Status: http.StatusTooManyRequests, RetryAfter: 30}},
		}},
		Load: Load{Rate: 280},
	}, {
		Name: "regression-shedder", Note: "480 calls/s, 81 workers without a queue, 50 for 9 s; 503 with Retry-After: 1", Topologies: []Topology{Shared},
		Server: Server{Workers: 81, Service: 160 * time.Millisecond, Queue: -1, RetryAfter: 1, AttemptTimeout: -1, Staff: []Staff{{From: 10 * time.Second, To: 19 * time.Second, Workers: 50}}},
		Load:   Load{Rate: 480},
	}, {
		Name: "regression-gateway-hangs", Note: "400 calls/s, token bucket of 278/s; 1.4 % of requests hang, 2.6 % of responses are 429 with Retry-After: 5", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, AttemptTimeout: 10 * time.Second, Limit: Limit{Rate: 278, Burst: 21}, Faults: []Fault{
			{Share: 0.014, Response: Response{Hang: true}}, {Share: 0.026, Response: Response{Status: http.StatusTooManyRequests, RetryAfter: 5}},
		}},
		Load: Load{Rate: 400},
	}, {
		Name: "regression-gateway-resets", Reason: whyNoCap, Note: "430 calls/s, token bucket of 346/s; 17 % of connections are reset, 2 % of requests hang", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 180 * time.Millisecond, AttemptTimeout: 2 * time.Second, Limit: Limit{Rate: 346, Burst: 22}, Faults: []Fault{
			{Share: 0.17, Response: Response{Err: ErrReset}}, {Share: 0.019, Response: Response{Hang: true}},
		}},
		Load: Load{Rate: 430, Deadline: 10 * time.Second, Bare: 0.1},
	}, {
		Name: "regression-gateway-errors", Reason: whyNoCap, Note: "58 % of responses are 500, 0.4 % are 503 with Retry-After: 1; deadline 1 s", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 130 * time.Millisecond, AttemptTimeout: 2 * time.Second, Faults: []Fault{
			{Share: 0.0039, Response: Response{Status: http.StatusServiceUnavailable, RetryAfter: 1}}, {Share: 0.58, Response: Response{Status: http.StatusInternalServerError}},
		}, Limit: Limit{Rate: 492, Burst: 27, Status: http.StatusServiceUnavailable}},
		Load: Load{Rate: 480, Deadline: time.Second},
	}, {
		Name: "regression-gateway-backends", Reason: whyNoCap, Note: "590 calls/s, token bucket of 327/s; 2 of 10 backends return 502", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 140 * time.Millisecond, AttemptTimeout: 2 * time.Second, Backends: 10,
			Limit:  Limit{Rate: 327, Burst: 1, Status: http.StatusServiceUnavailable},
			Faults: []Fault{{Backends: upTo(2), Response: Response{Status: http.StatusBadGateway}}}},
		Load: Load{Rate: 590},
	}, {
		Name: "regression-small-queue", Reason: whyTipped, Note: "14 clients with a call every 3 s, full capacity, queue of 10; 15 % of connections are reset", Topologies: []Topology{Own},
		During: 5 * time.Minute,
		Server: Server{Workers: 4, Service: 930 * time.Millisecond, Queue: 10, RetryAfter: 1, AttemptTimeout: 2 * time.Second, Faults: []Fault{{Share: 0.15, Response: Response{Err: ErrReset}}}},
		Load:   Load{Rate: 4.48, Clients: 14, Deadline: 5 * time.Second},
	}, {
		Name: "regression-busy-queue", Reason: whyTipped, Note: "71 clients, 115 % of the capacity, queue of 100; 17 % of responses are 503 with Retry-After: 2", Topologies: []Topology{Own},
		Server: Server{Workers: 4, Service: 174 * time.Millisecond, Queue: 100, RetryAfter: 1, AttemptTimeout: 2 * time.Second, Faults: []Fault{
			{Share: 0.17, Response: Response{Status: http.StatusServiceUnavailable, RetryAfter: 2}},
		}},
		Load: Load{Rate: 26.3, Clients: 71, Method: http.MethodPost, Deadline: time.Minute, Bare: 0.1},
	}, {
		Name: "regression-brownout-hangs", Reason: whyTipped, Note: "180 clients, 21.6 calls/s; 17 % of requests hang for 10 s, half of the workers for 19 s", Topologies: []Topology{Own},
		Server: Server{Workers: 4, Service: 211 * time.Millisecond, Queue: 1000, AttemptTimeout: 10 * time.Second, Faults: []Fault{{Share: 0.17, Response: Response{Hang: true}}},
			Staff: []Staff{{From: 17 * time.Second, To: 36 * time.Second, Workers: 2}}},
		Load: Load{Rate: 21.6, Clients: 180, Method: http.MethodPost, Deadline: time.Minute},
	}, {
		Name: "regression-quick-answers", Note: "50 calls/s to a worker of 59/s hang for 2 s, beside 200 calls/s with answers after 1 ms", Topologies: []Topology{Shared},
		Server: Server{Workers: 1, Service: 17 * time.Millisecond, Queue: 100_000, AttemptTimeout: time.Second, Faults: []Fault{
			{Path: charge, From: 10 * time.Second, To: 12 * time.Second, Response: Response{Hang: true}},
			{Path: export, Response: Response{Status: http.StatusOK, After: time.Millisecond}}}},
		Load: Load{Rate: 250, Clients: 1, Deadline: 5 * time.Second, Paths: []Part{{export, 0.8}, {charge, 1}}},
	}, {
		Name: "regression-slow-path", Note: "13 clients with a call every 3 s; 57 % return 504 after 0.9 s; deadline 1 s", Topologies: []Topology{Own},
		During: 10 * time.Minute,
		Server: Server{Workers: 4, Service: 703 * time.Millisecond, Queue: 100, AttemptTimeout: 2 * time.Second,
			Faults: []Fault{{Path: export, Response: Response{Status: http.StatusGatewayTimeout, After: 880 * time.Millisecond}}},
			Staff:  []Staff{{From: 150 * time.Second, To: 230 * time.Second, Workers: 1}}},
		Load: Load{Rate: 4.42, Clients: 13, Deadline: time.Second, Paths: []Part{{export, 0.57}, {charge, 1}}},
	}}
	for _, s := range slices.Clone(all) {
		if s.Reason == whyTipped {
			s.Name, s.Reason, s.Note = s.Name+"-no-timeout", "", "as "+s.Name+", without AttemptTimeout"
			s.Server.AttemptTimeout = -1
			all = append(all, s)
		}
	}
	for i := range all {
		all[i].Row = 31
		if all[i].During == 0 {
			all[i].During = time.Minute
		}
	}
	return all
}
