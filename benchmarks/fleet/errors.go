package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// errorShares are servers with random errors.
func errorShares() []Scenario {
	type share struct{ share, success float64 }
	random := func(v share) Scenario {
		return Scenario{
			Row: 4, Reason: whyNoCap, Name: fmt.Sprintf("errors-%g", 100*v.share), Note: fmt.Sprintf("%g %% of responses are 500; 100 calls/s", 100*v.share),
			During: 120 * time.Second, Server: always(v.share, Response{Status: 500}), Load: fleetOf(100),
			Targets: []Target{atLeast("success", Result.Success, v.success, "%.4f").shared()},
		}
	}
	busy := func(v share) Scenario {
		s := random(v)
		s.Name, s.Note = s.Name+"-busy", fmt.Sprintf("%g %% of responses are 500; 1000 calls/s", 100*v.share)
		s.During, s.Load = 30*time.Second, fleetOf(1000)
		return s
	}
	burst := func(v share) Scenario {
		return Scenario{
			Row: 26, Name: fmt.Sprintf("burst-reset-%g", 100*v.share),
			Note:   fmt.Sprintf("60 calls within 1 s from a new client; %g %% of connections are reset", 100*v.share),
			During: 100 * time.Minute, Server: always(v.share, Response{Err: ErrReset}),
			Load:    Load{Burst: 60, Spread: time.Second, Every: time.Minute},
			Targets: []Target{atLeast("success", Result.Success, v.success, "%.4f")},
		}
	}
	atOnce := func(v share) Scenario {
		s := burst(v)
		s.Name, s.Note = s.Name+"-at-once", fmt.Sprintf("60 calls at one instant from a new client; %g %% of connections are reset", 100*v.share)
		s.Load.Spread, s.Server.Faults[0].Response.After = 0, time.Millisecond
		s.Reason = whyExact
		return s
	}
	shares := []share{{0.1, 0.999}, {0.2, 0.995}, {0.3, 0.985}, {0.4, 0.96}, {0.6, 0.55}}
	return slices.Concat(each(random, shares...), each(busy, shares...),
		each(burst, share{0.3, 0.98}, share{0.4, 0.92}), each(atOnce, share{0.3, 0.85}, share{0.4, 0.75}))
}

// tiers are services that call each other.
func tiers() []Scenario {
	return []Scenario{{
		Row: 18, Name: "tiers", Note: "three tiers, OwnsRetries in the top tier; 10 % of the server's responses are 500", During: 120 * time.Second,
		Server: always(0.1, Response{Status: 500}), Load: fleetOf(100), Tiers: 3,
		Configure: func(t *resilienthttp.Transport) { t.OwnsRetries = true },
		Targets:   []Target{atLeast("success", Result.Success, 0.995, "%.4f")},
	}}
}
