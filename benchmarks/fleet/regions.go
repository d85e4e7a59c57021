package fleet

import "time"

// regions are two servers that do the same: package endpoints, with the zero Transport, beside a loop
// that tries the next server after a failure.
func regions() []Scenario {
	type failure struct {
		name, note  string
		both        bool
		response    Response
		shared, own float64
	}
	return each(func(f failure) Scenario {
		first := Fault{Backends: []int{0}, Response: f.response}
		if f.both {
			first.Backends = nil
		}
		return Scenario{
			Row: 57, Name: "regions-" + f.name, Note: "two servers; " + f.note + "; deadline 10 s",
			Before: 20 * time.Second, During: 60 * time.Second, After: 20 * time.Second,
			Server: Server{
				Workers: -1, AttemptTimeout: -1, Hosts: []string{"http://server.model", "http://second.model"}, Faults: []Fault{first},
			},
			Load: Load{Rate: 100, Clients: 10, Deadline: 10 * time.Second},
			Targets: []Target{
				atLeast("success", Result.Success, f.shared, "%.4f").shared(),
				atLeast("success", Result.Success, f.own, "%.4f").perClient(),
			},
		}
	},
		failure{"refuse", "the first refuses connections", false, Response{Err: ErrRefused}, 0.999, 0.999},
		failure{"500", "the first returns 500", false, Response{Status: 500}, 0.999, 0.999},
		failure{"hang", "the first hangs", false, Response{Hang: true}, 0.999, 0.999},
		failure{"slow", "the first takes 2 s", false, Response{Status: 200, After: 2 * time.Second}, 0.999, 0.999},
		failure{"both", "both return 500, as one server", true, Response{Status: 500}, 0.40, 0.40},
	)
}
