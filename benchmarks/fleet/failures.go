package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

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
// 10 s, and attempts without a timeout of their own. They are the comparison in README.md.
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
	all := []Scenario{
		away("restart-2s", "a restart of 2 s", 2*time.Second, Response{Err: ErrRefused}),
		away("restart-8s", "a restart of 8 s", 8*time.Second, Response{Err: ErrRefused}),
		{Name: "life-errors", Note: "1 % of the responses are 500", Server: Server{Faults: []Fault{{Share: 0.01, Response: Response{Status: 500}}}}},
		{
			Name: "life-slow", Note: "one of ten backends takes 15 s",
			Server: Server{Backends: 10, Faults: []Fault{{Backends: []int{0}, Response: Response{Status: 200, After: 15 * time.Second}}}},
		},
		{
			Name: "life-quota", Note: "a quota of 60 calls a second, and three times 5 s with 100",
			Server: Server{Limit: Limit{Quota: 60}}, Load: Load{Rate: 40, Surges: surges},
		},
		away("outage-1m", "an outage of a minute", time.Minute, Response{Status: http.StatusServiceUnavailable}),
	}
	for i := range all {
		s := &all[i]
		s.Topologies = []Topology{Shared}
		s.Server.Workers, s.Server.Service, s.Server.AttemptTimeout = -1, 20*time.Millisecond, -1
		s.Load.Clients, s.Load.Deadline = 1, 10*time.Second
		if s.Load.Rate == 0 {
			s.Load.Rate = 50
		}
		if s.Length() == 0 {
			s.During = 2 * time.Minute
		}
	}
	return all
}

// smallFleets are many clients with few calls each. The server's capacity is twice their
// load. Each fault lasts 20 s. Either all clients have made two calls before it, or half of
// them are new, as after a deployment.
func smallFleets() (all []Scenario) {
	for _, n := range []int{1000, 5000, 10000} {
		all = append(all, smallFleet{row: 32, brownoutRow: 33, clients: n, every: 10 * time.Second, deadline: 10 * time.Second}.scenarios()...)
	}
	return append(all, smallFleet{row: 34, brownoutRow: 34, clients: 10000, every: time.Minute, deadline: 30 * time.Second}.scenarios()...)
}

// smallFleet is a fleet and its server. All workers together drain a full queue in a second.
type smallFleet struct {
	row, brownoutRow int
	clients          int
	every, deadline  time.Duration
}

const (
	smallFleetFault   = 20 * time.Second
	smallFleetWorkers = 6 // their capacity is twice the load; one can serve a third of the load
)

func (f smallFleet) scenarios() (all []Scenario) {
	for _, isNew := range []bool{false, true} {
		for _, a := range []struct {
			name, note string
			response   Response
		}{{"503", "all responses are 503", Response{Status: 503}}, {"refused", "all connections are refused", Response{Err: ErrRefused}}} {
			s := f.scenario(isNew, a.name, a.note)
			s.Row = f.row
			s.Server.Faults = []Fault{{Response: a.response}}
			s.Targets = []Target{
				atLeast(inTheMinute, successInTheMinute, 0.90, "%.4f").timesBare(successInTheMinute),
				atLeast(inTheMinute, successInTheMinute, 1, "%.4f").timesBare(successInTheMinute).goal(),
				recoversWithin(20 * time.Second),
				atMost("attempts in the busiest second", busiestSecond, 3.6, "%.0f").timesBare(busiestSecond),
			}
			all = append(all, s)
		}
		s := f.scenario(isNew, "brownout", "one of six workers, a third of the load")
		s.Row = f.brownoutRow
		s.Server.Staff = []Staff{{Workers: 1}}
		s.Targets = []Target{
			atLeast(inTheMinute, successInTheMinute, -bareMargin, "%.4f").plusBare(successInTheMinute),
			recoversWithin(5 * time.Second),
		}
		all = append(all, s)
	}
	return all
}

func (f smallFleet) scenario(isNew bool, kind, note string) Scenario {
	load := float64(f.clients) / f.every.Seconds()
	service := time.Duration(smallFleetWorkers / (2 * load) * float64(time.Second))
	s := Scenario{
		Name: fmt.Sprintf("%d-clients-%v-%s", f.clients, f.every, kind), Topologies: []Topology{Own}, Shows: inTheMinute,
		Note:   fmt.Sprintf("%d clients with a call every %v; for 20 s %s", f.clients, f.every, note),
		Before: 2 * f.every, During: smallFleetFault, After: 80 * time.Second,
		Server: Server{Workers: smallFleetWorkers, Service: service, Queue: int(2 * load)},
		Load:   Load{Every: f.every, Clients: f.clients, Deadline: f.deadline},
	}
	if isNew { // the calls are spread over Every: half of the clients have made one
		s.Name += "-new"
		s.Note += "; half of the clients are new"
		s.Before = f.every / 2
	}
	return s
}

const inTheMinute = "success in the first minute"

func successInTheMinute(r Result) float64 {
	return r.successBetween(r.Scenario.Before, r.Scenario.Before+time.Minute)
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
	for i := range all {
		all[i].Row = 31
		if all[i].During == 0 {
			all[i].During = time.Minute
		}
	}
	return all
}

// blips are outages so short that a caller should not notice them, and two longer ones. At
// the start of the outage, each client makes one call. A quarter of the calls, by path, gets
// each kind of failure.
func blips() (all []Scenario) {
	for _, v := range []struct {
		row     int
		length  time.Duration
		success float64
		p95     time.Duration
	}{{35, 200 * time.Millisecond, 0.999, 1200 * time.Millisecond}, {36, 2 * time.Second, 0.95, 4 * time.Second}} {
		for _, isNew := range []bool{true, false} {
			for _, deadline := range []time.Duration{5 * time.Second, 30 * time.Second, 10 * time.Minute, -1} {
				s := blip(v.row, v.length, deadline, isNew)
				for _, k := range blipKinds() {
					s.Targets = append(s.Targets,
						atLeast("success, "+k.name, metSuccess(k.path), v.success, "%.4f"),
						atMost("p95 of successful calls, "+k.name+", s", metQuantile(k.path, 0.95), v.p95.Seconds(), "%.2f").inSeconds())
				}
				all = append(all, s)
			}
		}
	}
	for _, v := range []struct {
		length  time.Duration
		success float64
		p50     time.Duration // goal; 0: none
	}{{5 * time.Second, 0.99, 10 * time.Second}, {20 * time.Second, 0.95, 0}} {
		s := blip(36, v.length, callDeadline, true)
		for _, k := range blipKinds() {
			s.Targets = append(s.Targets, atLeast("success, "+k.name, metSuccess(k.path), v.success, "%.4f"))
			if v.p50 > 0 {
				s.Targets = append(s.Targets, atMost("p50 of successful calls, "+k.name+", s", metQuantile(k.path, 0.5), v.p50.Seconds(), "%.2f").inSeconds().goal())
			}
		}
		all = append(all, s)
	}
	return all
}

type blipKind struct {
	name, path string
	response   Response
}

func blipKinds() []blipKind {
	return []blipKind{
		{"500", "/500", Response{Status: 500}},
		{"503", "/503", Response{Status: 503}},
		{"reset", "/reset", Response{Err: ErrReset}},
		{"connection refused", "/refused", Response{Err: ErrRefused}},
	}
}

// blip is an outage with all kinds of failure. New clients make no other call.
func blip(row int, length, deadline time.Duration, isNew bool) Scenario {
	s := Scenario{
		Row: row, Name: fmt.Sprintf("blip-%v-%s", length, deadlineName(deadline)), Topologies: []Topology{Own},
		During: length, After: 10 * time.Second, Shows: met,
		Server: Server{Workers: -1, Service: 20 * time.Millisecond},
		Load:   Load{Every: 5 * time.Second, Spread: 10 * time.Millisecond, Clients: 1200, Deadline: deadline},
	}
	kinds := blipKinds()
	for _, k := range kinds {
		s.Load.Paths = append(s.Load.Paths, Part{k.path, 1 / float64(len(kinds))})
		s.Server.Faults = append(s.Server.Faults, Fault{Path: k.path, Response: k.response})
	}
	clients := "clients with a call every 5 s"
	if isNew {
		clients, s.Name = "new clients", s.Name+"-new"
		s.Load.Every = time.Hour
	} else {
		s.Before = 20 * time.Second
	}
	s.Note = fmt.Sprintf("%s; outage of %v (500, 503, resets, connection refused); %s", clients, length, strings.ReplaceAll(deadlineName(deadline), "-", " "))
	return s
}

func deadlineName(d time.Duration) string {
	if d < 0 {
		return "no-deadline"
	}
	return "deadline-" + d.String()
}

// duringOutage returns the calls to the path that were made in the scenario's During.
func (r Result) duringOutage(path string) (some []*Call) {
	from, to := r.Scenario.Before, r.Scenario.Before+r.Scenario.During
	for _, c := range r.calls {
		if c.path == path && c.at >= from && c.at < to {
			some = append(some, c)
		}
	}
	return some
}

func metSuccess(path string) func(Result) float64 {
	return func(r Result) float64 {
		var s Share
		for _, c := range r.duringOutage(path) {
			s.count(c)
		}
		return s.share()
	}
}

// metQuantile is a quantile of the latencies of successful calls, in seconds.
func metQuantile(path string, q float64) func(Result) float64 {
	return func(r Result) float64 {
		var good []time.Duration
		for _, c := range r.duringOutage(path) {
			if c.success {
				good = append(good, c.latency)
			}
		}
		if len(good) == 0 {
			return never.Seconds()
		}
		return quantile(sorted(good), q).Seconds()
	}
}

// deadPorts are ports without a listener. They measure the time until the error.
func deadPorts() []Scenario {
	const until = "p95 time until the error, s"
	return each(func(v struct{ deadline, most time.Duration }) Scenario {
		return Scenario{
			Row: 37, Name: "dead-port-" + deadlineName(v.deadline), Topologies: []Topology{Own},
			Note:   "new client, port without a listener; " + strings.ReplaceAll(deadlineName(v.deadline), "-", " "),
			During: time.Second, Server: always(0, Response{Err: ErrRefused}),
			Load:    Load{Every: time.Hour, Spread: time.Second, Clients: 300, Deadline: v.deadline},
			Targets: []Target{atMost(until, func(r Result) float64 { return r.FailedP95.Seconds() }, v.most.Seconds(), "%.1f").inSeconds()},
		}
	},
		struct{ deadline, most time.Duration }{-1, 12 * time.Second},
		struct{ deadline, most time.Duration }{10 * time.Minute, 12 * time.Second},
		struct{ deadline, most time.Duration }{5 * time.Second, 5 * time.Second})
}

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
			atMost("429s in the first minute", tooManyIn(time.Minute), 1.25, "%.0f").timesBare(tooManyIn(time.Minute)),
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
				n := 0
				for _, at := range r.arrived {
					if at < r.Scenario.Length() {
						n++
					}
				}
				return float64(n) / limit / r.Scenario.Length().Seconds()
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
		"with few calls cannot detect that. The peers' retries overload it too"

	whyBrownout = "a client with one call a second cannot distinguish half of the capacity from none before it has seen some " +
		"failures; each failure occupies the queue"
	whyMeasured = "a zero Hedge measures its delay from 20 responses, which take 20 s at one call a second, and sends at most " +
		"one hedge in ten calls, which is too few for two slow responses within 10 s. *hedged-50ms* sets Hedge{Delay: 50ms, MaxRatio: 0.2}"
	whyChance = "5 % of responses are slow by definition, plus or minus 0.06 % by chance"
	whyTwice  = "in one call of 400 the original and the hedge are both slow; only a third copy would help, and this library " +
		"does not send it"
)
