package fleet

import (
	"net/http"
	"time"
)

// found are the worst that random compositions have found, at one time or another,
// each with what it takes to see it. They have no goals but the rule for all rows.
func found() []Scenario {
	all := []Scenario{{
		Name: "found-quota", Note: "a quota of 228/s under 280/s that says nothing, and 0.5 % of answers are 429 with Retry-After: 30", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Limit: Limit{Quota: 228, Says: SaysNothing}, Faults: []Fault{
			{Share: 0.0054, Answer: Answer{Status: http.StatusTooManyRequests, RetryAfter: 30}},
		}},
		Load: Load{Rate: 280},
	}, {
		Name: "found-shedder", Note: "81 workers and no queue under 480/s, for 9 s 50 of them; 503s say Retry-After: 1", Topologies: []Topology{Shared},
		Server: Server{Workers: 81, Service: 160 * time.Millisecond, Queue: -1, Shed: 1, GiveUp: -1, Staff: []Staff{{From: 10 * time.Second, To: 19 * time.Second, Workers: 50}}},
		Load:   Load{Rate: 480},
	}, {
		Name: "found-gateway-hangs", Note: "a token bucket of 278/s under 400/s, 1.4 % of requests hang, and 2.6 % of answers are 429 with Retry-After: 5", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, GiveUp: 10 * time.Second, Limit: Limit{Rate: 278, Burst: 21}, Faults: []Fault{
			{Share: 0.014, Answer: Answer{Hang: true}}, {Share: 0.026, Answer: Answer{Status: http.StatusTooManyRequests, RetryAfter: 5}},
		}},
		Load: Load{Rate: 400},
	}, {
		Name: "found-gateway-resets", Why: whyNoCap, Note: "a token bucket of 346/s under 430/s, 17 % of answers are resets, and 2 % of requests hang", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 180 * time.Millisecond, GiveUp: 2 * time.Second, Limit: Limit{Rate: 346, Burst: 22}, Faults: []Fault{
			{Share: 0.17, Answer: Answer{Err: errReset}}, {Share: 0.019, Answer: Answer{Hang: true}},
		}},
		Load: Load{Rate: 430, Deadline: 10 * time.Second, Bare: 0.1},
	}, {
		Name: "found-gateway-errors", Why: whyNoCap, Note: "58 % of answers are 500, 0.4 % are 503 with Retry-After: 1, and the deadline is 1 s", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 130 * time.Millisecond, GiveUp: 2 * time.Second, Faults: []Fault{
			{Share: 0.0039, Answer: Answer{Status: http.StatusServiceUnavailable, RetryAfter: 1}}, {Share: 0.58, Answer: Answer{Status: http.StatusInternalServerError}},
		}, Limit: Limit{Rate: 492, Burst: 27, Status: http.StatusServiceUnavailable}},
		Load: Load{Rate: 480, Deadline: time.Second},
	}, {
		Name: "found-gateway-backends", Why: whyNoCap, Note: "a token bucket of 327/s under 590/s, and 2 of 10 backends fail", Topologies: []Topology{Shared},
		Server: Server{Workers: -1, Service: 140 * time.Millisecond, GiveUp: 2 * time.Second, Backends: 10,
			Limit:  Limit{Rate: 327, Burst: 1, Status: http.StatusServiceUnavailable},
			Faults: []Fault{{Backends: upTo(2), Answer: Answer{Status: http.StatusBadGateway}}}},
		Load: Load{Rate: 590},
	}, {
		Name: "found-small-queue", Why: whyTipped, Note: "14 clients with a call each 3 s, as many as the server can do, a queue of 10, and 15 % of answers are resets", Topologies: []Topology{Own},
		During: 5 * time.Minute,
		Server: Server{Workers: 4, Service: 930 * time.Millisecond, Queue: 10, Shed: 1, GiveUp: 2 * time.Second, Faults: []Fault{{Share: 0.15, Answer: Answer{Err: errReset}}}},
		Load:   Load{Rate: 4.48, Clients: 14, Deadline: 5 * time.Second},
	}, {
		Name: "found-busy-queue", Why: whyTipped, Note: "71 clients offer 15 % more than the server can do, in its queue of 100, and 17 % of answers are 503 with Retry-After: 2", Topologies: []Topology{Own},
		Server: Server{Workers: 4, Service: 174 * time.Millisecond, Queue: 100, Shed: 1, GiveUp: 2 * time.Second, Faults: []Fault{
			{Share: 0.17, Answer: Answer{Status: http.StatusServiceUnavailable, RetryAfter: 2}},
		}},
		Load: Load{Rate: 26.3, Clients: 71, Method: http.MethodPost, Deadline: time.Minute, Bare: 0.1},
	}, {
		Name: "found-brownout-hangs", Why: whyTipped, Note: "180 clients at 21.6/s, 17 % of requests hang for 10 s, and half of the workers are away for 19 s", Topologies: []Topology{Own},
		Server: Server{Workers: 4, Service: 211 * time.Millisecond, Queue: 1000, GiveUp: 10 * time.Second, Faults: []Fault{{Share: 0.17, Answer: Answer{Hang: true}}},
			Staff: []Staff{{From: 17 * time.Second, To: 36 * time.Second, Workers: 2}}},
		Load: Load{Rate: 21.6, Clients: 180, Method: http.MethodPost, Deadline: time.Minute},
	}, {
		Name: "found-slow-path", Note: "13 clients with a call each 3 s, of which 57 % are answered 504 after 0.9 s, with a deadline of 1 s", Topologies: []Topology{Own},
		During: 10 * time.Minute,
		Server: Server{Workers: 4, Service: 703 * time.Millisecond, Queue: 100, GiveUp: 2 * time.Second,
			Faults: []Fault{{Path: export, Answer: Answer{Status: http.StatusGatewayTimeout, After: 880 * time.Millisecond}}},
			Staff:  []Staff{{From: 150 * time.Second, To: 230 * time.Second, Workers: 1}}},
		Load: Load{Rate: 4.42, Clients: 13, Deadline: time.Second, Paths: []Part{{export, 0.57}, {charge, 1}}},
	}}
	for i := range all {
		all[i].Row = 31
		if all[i].During == 0 {
			all[i].During = time.Minute
		}
	}
	return all
}
