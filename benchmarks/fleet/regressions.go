package fleet

import (
	"net/http"
	"time"
)

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
	for i := range all {
		all[i].Row = 31
		if all[i].During == 0 {
			all[i].During = time.Minute
		}
	}
	return all
}
