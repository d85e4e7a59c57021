package fleet

import (
	"fmt"
	"time"
)

// A failing endpoint and a healthy one.
const (
	export = "/export"
	charge = "/charge"
)

// paths are servers with a failing and a healthy endpoint.
func paths() []Scenario {
	const ofCharge, ofOthers = "success of /charge", "success of the others"
	type share struct{ share, own float64 }
	split := func(share float64) Load { return Load{Paths: []Part{{export, share}, {charge, 1}}} }
	all := each(func(v share) Scenario {
		return Scenario{
			Row: 9, Name: fmt.Sprintf("path-fails-%.0f", 100*v.share), During: 60 * time.Second, Load: split(v.share), Shows: ofCharge,
			Note: fmt.Sprintf("/export (%.0f %% of the calls) fails; 1 %% of /charge fails", 100*v.share),
			Server: Server{Faults: []Fault{
				{Path: export, Response: Response{Status: 500}}, {Path: charge, Share: 0.01, Response: Response{Status: 500}},
			}},
			Targets: []Target{
				atLeast(ofCharge, successOfCharge, 0.98, "%.4f").shared(),
				atLeast(ofCharge, successOfCharge, v.own, "%.4f").perClient(),
			},
		}
	}, share{0.40, 0.98}, share{0.55, 0.98}, share{0.70, 0.965})
	return append(all, Scenario{
		Row: 10, Name: "path-slow", Note: "/export (60 % of the calls) returns 504 after 1 s", During: 60 * time.Second, Load: split(0.60), Shows: ofCharge,
		Server: Server{AttemptTimeout: -1, Faults: []Fault{{Path: export, Response: Response{Status: 504, After: time.Second}}}},
		Targets: []Target{
			atLeast(ofCharge, successOfCharge, 0.97, "%.4f").shared(),
			atLeast(ofCharge, successOfCharge, 0.75, "%.4f").perClient(),
			atLeast(ofCharge, successOfCharge, 0.97, "%.4f").perClient().goal(),
		},
	}, Scenario{
		Row: 29, Name: "path-times-out", Note: "one path (a quarter of 5 calls/s) takes 1 s; attempts time out after 500 ms", During: 300 * time.Second, Shows: ofOthers,
		Server:  Server{Faults: []Fault{{Path: export, Response: Response{Status: 200, After: time.Second}}}},
		Load:    Load{Rate: 5, Clients: 5, Paths: []Part{{export, 0.25}, {charge, 1}}},
		Targets: []Target{atLeast(ofOthers, successOfCharge, 0.98, "%.4f")},
	})
}
