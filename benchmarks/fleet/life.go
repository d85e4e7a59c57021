package fleet

import (
	"net/http"
	"time"
)

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
