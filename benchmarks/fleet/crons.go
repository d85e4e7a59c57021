package fleet

import (
	"fmt"
	"time"
)

// met is what counts in an outage that few calls meet.
const met = "success of the calls that meet it"

// crons are clients with a call a minute, of which the third meets an outage, at a
// moment of its own.
func crons() (all []Scenario) {
	for _, v := range []struct {
		length  time.Duration
		success float64
	}{{20 * time.Second, 0.95}, {5 * time.Second, 0.95}, {200 * time.Millisecond, 0.99}} {
		for _, a := range []struct {
			name   string
			answer Answer
		}{{"503", Answer{Status: 503}}, {"500", Answer{Status: 500}}, {"refused", Answer{Err: errRefused}}} {
			all = append(all, Scenario{
				Row: 12, Name: fmt.Sprintf("cron-%v-%s", v.length, a.name), Topologies: []Topology{Own},
				Note:   fmt.Sprintf("clients with a call a minute meet an outage of %v: %s", v.length, a.name),
				Before: 2 * time.Minute, During: v.length, After: 2*time.Minute - v.length,
				Server: Server{Workers: -1, Service: 20 * time.Millisecond, Faults: []Fault{{Answer: a.answer}}},
				Load:   Load{Every: time.Minute, Spread: v.length, Clients: 300},
				Shows:  met,
				Goals:  []Goal{atLeast(met, Result.SuccessDuring, v.success, "%.4f")},
			})
		}
	}
	return all
}
