package fleet

import (
	"fmt"
	"strings"
	"time"
)

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
