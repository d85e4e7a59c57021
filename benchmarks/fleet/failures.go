package fleet

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// hedges are scenarios in which a zero Hedge must not do harm.
func hedges() []Scenario {
	hedged := []string{peers.OursHedged}
	return []Scenario{{
		Row: 17, Name: "hedge-healthy", Note: "no fault; zero Hedge", During: 60 * time.Second, Ours: hedged,
		Targets: []Target{atMost("p99, ms", p99, 1.5, "%.1f").timesBare(p99)},
	}, {
		Row: 17, Name: "hedge-errors", Note: "1 % of responses are 500; zero Hedge", During: 60 * time.Second, Ours: hedged,
		Server:  Server{Faults: []Fault{{Share: 0.01, Response: Response{Status: 500}, Worked: true}}},
		Targets: []Target{atLeast("success", Result.Success, 0.9999, "%.5f")},
	}}
}

// rejections are responses with Retry-After.
func rejections() []Scenario {
	type scattered struct {
		share  float64
		status int
		mean   float64
		rate   int
	}
	all := each(func(v scattered) Scenario {
		return Scenario{
			Row: 1, Name: fmt.Sprintf("scattered-%d-%g", v.status, 100*v.share), During: 60 * time.Second,
			Note:   fmt.Sprintf("%g %% of responses are %d with Retry-After: 1", 100*v.share, v.status),
			Server: always(v.share, Response{Status: v.status, RetryAfter: 1}), Load: fleetOf(v.rate),
			Targets: []Target{
				atLeast("success", Result.Success, 0.999, "%.4f"),
				atMost("mean, ms", mean, v.mean, "%.0f"),
			},
		}
	}, scattered{0.05, 503, 100, 100}, scattered{0.05, 429, 100, 100}, scattered{0.01, 503, 35, 1000}, scattered{0.01, 429, 35, 1000})
	return append(all, Scenario{
		Row: 2, Name: "scattered-long-wait", Note: "1 % of responses are 503 with Retry-After: 30; deadline 30 s", During: 60 * time.Second,
		Server:  always(0.01, Response{Status: 503, RetryAfter: 30}),
		Targets: []Target{atLeast("success", Result.Success, 0.989, "%.4f")},
	}, Scenario{
		Row: 3, Name: "outage-retry-after", Note: "all responses are 503 with Retry-After: 5 for 30 s",
		Before: 10 * time.Second, During: 30 * time.Second, After: 60 * time.Second,
		Server: always(0, Response{Status: 503, RetryAfter: 5}),
		Targets: []Target{
			atLeast("success", Result.Success, 0.70, "%.4f").orBare(),
			atMost("load in the worst second", worstSecond, 1.25, "%.3f").shared().worstSeed(),
			atMost("load in the worst second", worstSecond, 2, "%.3f").perClient().worstSeed(),
			recoversWithin(2 * time.Second),
		},
	}, Scenario{
		Row: 30, Name: "stray", Note: "20 calls/s; one 503 with Retry-After: 30", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: time.Second, After: 60 * time.Second,
		Server:  Server{Faults: []Fault{{Times: 1, Response: Response{Status: 503, RetryAfter: 30}}}},
		Load:    Load{Every: time.Second, Clients: 20, Deadline: time.Minute},
		Targets: []Target{atMost("peak after the fault", peakAfter, 2, "%.2f").worstSeed()},
	})
}

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

// backends are servers behind one name; some of them fail.
func backends() []Scenario {
	type broken struct {
		n           int
		shared, own float64
	}
	fails := each(func(v broken) Scenario {
		return Scenario{
			Row: 5, Name: fmt.Sprintf("backends-fail-%d", v.n), Note: fmt.Sprintf("%d of 10 backends return 500", v.n), During: 120 * time.Second,
			Load:   fleetOf(100),
			Server: Server{Backends: 10, Faults: []Fault{{Backends: upTo(v.n), Response: Response{Status: 500}}}},
			Targets: []Target{
				atLeast("success", Result.Success, v.shared, "%.4f").shared(),
				atLeast("success", Result.Success, v.own, "%.4f").perClient(),
			},
		}
	}, broken{1, 0.999, 0.999}, broken{3, 0.98, 0.97})
	type hanging struct {
		n             int
		success, goal float64
	}
	hang := each(func(v hanging) Scenario {
		return Scenario{
			Row: 6, Name: fmt.Sprintf("backends-hang-%d", v.n), Note: fmt.Sprintf("%d of 10 backends hang; deadline 5 s", v.n), During: 40 * time.Second,
			Server: Server{Backends: 10, AttemptTimeout: -1, Faults: []Fault{{Backends: upTo(v.n), Response: Response{Hang: true}}}},
			Load:   Load{Deadline: 5 * time.Second},
			Targets: []Target{
				atLeast("success", Result.Success, v.success, "%.4f"),
				atLeast("success", Result.Success, v.goal, "%.4f").goal(),
			},
		}
	}, hanging{1, 0.985, 0.99}, hanging{3, 0.91, 0.95})
	return append(append(fails, hang...), deploy())
}

// upTo returns the first n backends.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// deploy restarts one backend after another.
func deploy() Scenario {
	s := Scenario{
		Row: 11, Name: "deploy", Note: "rolling deployment: ten backends restart one after another, 3.8 s each", During: 100 * time.Second,
		Server: Server{Backends: 10}, Load: fleetOf(100),
		Targets: []Target{atLeast("success", Result.Success, 0.9995, "%.5f")},
	}
	for i := range 10 {
		from := time.Duration(i)*10*time.Second + 3*time.Second
		s.Server.Faults = append(s.Server.Faults, Fault{
			From: from, To: from + 3800*time.Millisecond, Backends: []int{i}, Response: Response{Err: ErrRefused},
		})
	}
	return s
}

// hangs are servers that hang or are slow.
func hangs() []Scenario {
	const afterwards = "success from 5 s after the fault"
	return []Scenario{{
		Row: 7, Name: "hang", Note: "all requests hang for 30 s; deadline 5 s", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: 30 * time.Second, After: 30 * time.Second,
		Server: Server{AttemptTimeout: -1, Faults: []Fault{{Response: Response{Hang: true}}}},
		Load:   Load{Rate: 200, Deadline: 5 * time.Second},
		Targets: []Target{
			atMost("attempts per call", Result.AttemptsPerCall, 1.1, "%.3f"),
			atLeast("success", Result.Success, 0.49, "%.4f"),
			atMost("attempts per call after 10 s of the fault", func(r Result) float64 {
				return r.between(r.Scenario.Before+10*time.Second, r.Scenario.Before+r.Scenario.During)
			}, 0.2, "%.3f").goal(), // as the circuit opens
			recoversWithin(2 * time.Second),
		},
	}, {
		Row: 8, Name: "slow", Note: "responses take 35 s to 45 s; deadline 60 s", During: 60 * time.Second,
		Server:  Server{AttemptTimeout: -1, Faults: []Fault{{Response: Response{Status: 200, After: 35 * time.Second, Until: 45 * time.Second}}}},
		Load:    Load{Rate: 20, Clients: 20, Deadline: time.Minute},
		Targets: []Target{atLeast("success", Result.Success, 0.95, "%.4f")},
	}, {
		Row: 28, Name: "small-clients", Note: "500 clients with a call every 9 s, half of the capacity; a quarter of the workers for 10 s", Reason: whySlow, Topologies: []Topology{Own},
		Before: 30 * time.Second, During: 10 * time.Second, After: 120 * time.Second,
		Server: Server{Workers: 4, Service: 36 * time.Millisecond, AttemptTimeout: 800 * time.Millisecond, Staff: []Staff{{Workers: 1}}},
		Load:   Load{Every: 9 * time.Second, Clients: 500}, Shows: afterwards,
		Targets: []Target{
			atLeast(afterwards, func(r Result) float64 {
				return r.successBetween(r.Scenario.Before+r.Scenario.During+5*time.Second, r.Scenario.Length())
			}, 0.99, "%.4f"),
			recoversWithin(5 * time.Second),
		},
	}}
}

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

// met is the measure of an outage during which few calls are made.
const met = "success during the outage"

// crons are clients with one call per minute. The third call of each client happens during
// an outage.
func crons() (all []Scenario) {
	for _, v := range []struct {
		length  time.Duration
		success float64
	}{{20 * time.Second, 0.95}, {5 * time.Second, 0.95}, {200 * time.Millisecond, 0.99}} {
		for _, a := range []struct {
			name     string
			response Response
		}{{"503", Response{Status: 503}}, {"500", Response{Status: 500}}, {"refused", Response{Err: ErrRefused}}} {
			all = append(all, Scenario{
				Row: 12, Name: fmt.Sprintf("cron-%v-%s", v.length, a.name), Topologies: []Topology{Own},
				Note:   fmt.Sprintf("clients with a call per minute; outage of %v: %s", v.length, strings.ReplaceAll(a.name, "refused", "connection refused")),
				Before: 2 * time.Minute, During: v.length, After: 2*time.Minute - v.length,
				Server:  Server{Workers: -1, Service: 20 * time.Millisecond, Faults: []Fault{{Response: a.response}}},
				Load:    Load{Every: time.Minute, Spread: v.length, Clients: 300},
				Shows:   met,
				Targets: []Target{atLeast(met, Result.SuccessDuring, v.success, "%.4f")},
			})
		}
	}
	return all
}

// crowds are overloads: more calls than the capacity.
func crowds() []Scenario {
	const goodput = "goodput, of capacity"
	shedder := Server{Service: 40 * time.Millisecond, Queue: 24, RetryAfter: 1}
	all := each(func(times float64) Scenario {
		return Scenario{
			Row: 15, Name: fmt.Sprintf("shed-%g", times), During: 60 * time.Second,
			Note:   fmt.Sprintf("%g × the capacity; the server rejects the excess: 503 with Retry-After: 1", times),
			Server: shedder, Load: Load{Rate: times * shedder.capacity()},
			Shows:   goodput,
			Targets: []Target{atLeast(goodput, func(r Result) float64 { return r.CapacityUsed }, 0.95, "%.4f")},
		}
	}, 1.1, 1.5, 3)
	cold := Scenario{
		Row: 16, Name: "cold-start", Note: "a starting server: one more worker every 2.5 s", Reason: whyGrowing, During: 30 * time.Second, Topologies: []Topology{Shared},
		Targets: []Target{atLeast("success", Result.Success, 0.600, "%.4f")},
	}
	for i := range defaultWorkers {
		at := time.Duration(i) * 2500 * time.Millisecond
		cold.Server.Staff = append(cold.Server.Staff, Staff{From: at, To: at + 2500*time.Millisecond, Workers: i + 1})
	}
	return append(all, cold, Scenario{
		Row: 16, Name: "flash-crowd", Note: "three times the calls for 10 s", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: 10 * time.Second, After: 45 * time.Second,
		Load:    Load{Surges: []Surge{{From: 10 * time.Second, To: 20 * time.Second, Factor: 3}}},
		Targets: []Target{atLeast("success", Result.Success, 0.75, "%.4f")},
	})
}

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

// life are failures that each user of an API has met: two minutes, some 50 calls a second through one client, a deadline of
// 10 s. The calls are GETs, and attempts have no timeout of their own, unless a row says so. They are the comparison in README.md.
func life() []Scenario {
	away := func(name, note string, length time.Duration, response Response) Scenario {
		response.After = answersAfter
		return Scenario{
			Name: "life-" + name, Note: note, Before: 30 * time.Second, During: length, After: 90*time.Second - length,
			Server: Server{Faults: []Fault{{Response: response}}},
		}
	}
	var surges []Surge
	for at := 30 * time.Second; at <= 90*time.Second; at += 30 * time.Second {
		surges = append(surges, Surge{From: at, To: at + 5*time.Second, Factor: 2.5})
	}
	slow := Server{Backends: 10, Faults: []Fault{{Backends: []int{0}, Response: Response{Status: 200, After: 15 * time.Second}}}}
	slowAndTimed := slow
	slowAndTimed.AttemptTimeout = time.Second
	all := []Scenario{
		away("restart-2s", "a restart of 2 s", 2*time.Second, Response{Err: ErrRefused}),
		away("restart-8s", "a restart of 8 s", 8*time.Second, Response{Err: ErrRefused}),
		{Name: "life-errors", Note: "1 % of the responses are 500", Server: Server{Faults: []Fault{{Share: 0.01, Response: Response{Status: 500}}}}},
		{Name: "life-slow", Note: "one of ten backends takes 15 s", Server: slow},
		{Name: "life-slow-post", Note: "the same, POSTs", Server: slow, Load: Load{Method: http.MethodPost}},
		{Name: "life-slow-post-timed", Note: "the same, POSTs, each attempt ends after 1 s", Server: slowAndTimed, Load: Load{Method: http.MethodPost}},
		{
			Name: "life-quota", Note: "a quota of 60 calls a second, and three times 5 s with 100",
			Server: Server{Limit: Limit{Quota: 60}}, Load: Load{Rate: 40, Surges: surges},
		},
		away("outage-1m", "an outage of a minute", time.Minute, Response{Status: http.StatusServiceUnavailable}),
	}
	for i := range all {
		s := &all[i]
		s.Topologies = []Topology{Shared}
		s.Server.Workers, s.Server.Service = -1, 20*time.Millisecond
		s.Server.AttemptTimeout = cmp.Or(s.Server.AttemptTimeout, -1)
		s.Load.Clients, s.Load.Deadline = 1, 10*time.Second
		s.Load.Rate = cmp.Or(s.Load.Rate, 50)
		if s.Length() == 0 {
			s.During = 2 * time.Minute
		}
	}
	return all
}
