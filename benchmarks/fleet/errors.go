package fleet

import (
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// errorShares are servers of which some answers are errors, at random.
func errorShares() []Scenario {
	type share struct{ share, success float64 }
	all := some(func(v share) Scenario {
		return Scenario{
			Row: 4, Name: fmt.Sprintf("errors-%g", 100*v.share), Note: fmt.Sprintf("%g %% of answers are 500", 100*v.share),
			During: 60 * time.Second, Server: always(v.share, Answer{Status: 500}),
			Goals: []Goal{atLeast("success", Result.Success, v.success, "%.4f").shared()},
		}
	}, share{0.1, 0.999}, share{0.2, 0.995}, share{0.3, 0.985}, share{0.4, 0.96}, share{0.6, 0.55})
	return append(all, some(func(v share) Scenario {
		return Scenario{
			Row: 26, Name: fmt.Sprintf("burst-reset-%g", 100*v.share), Note: fmt.Sprintf("60 calls at once, of which %g %% are reset", 100*v.share),
			During: 100 * time.Minute, Server: always(v.share, Answer{Err: errReset}), Load: Load{Burst: 60, Every: time.Minute},
			Goals: []Goal{atLeast("success", Result.Success, v.success, "%.4f")},
		}
	}, share{0.3, 0.98}, share{0.4, 0.95})...)
}

// tiers are services that call each other.
func tiers() []Scenario {
	return []Scenario{{
		Row: 18, Name: "tiers", Note: "three tiers, OwnsRetries on top, and 10 % of the bottom's answers are 500", During: 30 * time.Second,
		Server: always(0.1, Answer{Status: 500}), Load: Load{Rate: 500}, Tiers: 3,
		Configure: func(t *resilienthttp.Transport) { t.OwnsRetries = true },
		Goals:     []Goal{atLeast("success", Result.Success, 0.995, "%.4f")},
	}}
}
