package lab

import (
	"html/template"
	"net/url"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
)

// Preset is a scenario of the fleet.
type Preset struct{ Name, Note, Query string }

// URL is the page with the scenario's fields.
func (p Preset) URL() template.URL { return template.URL("/?" + p.Query) } //nolint:gosec // a constant

// Presets returns the scenarios that the page offers.
func Presets() (all []Preset) {
	for _, p := range []struct{ name, query string }{
		{"healthy", "total=2m"},
		{"outage", "failure=status&total=2m"},
		{"brownout", "failure=workers&length=60s&total=190s"},
		{"errors", "failure=status&status=500&share=0.01&worked=yes&start=0s&length=2m&total=2m"},
		{"quota", "every=5s&quota=100&total=2m"},
		{"tail", "workers=unlimited&service=20ms&timeout=none&failure=slow&share=0.05&start=0s&length=2m&total=2m&with=resilienthttp&with=resilienthttp-hedged"},
		{"hang", "every=5s&deadline=5s&timeout=none&failure=hang&total=70s"},
		{"slow", "clients=20&deadline=1m&timeout=none&failure=slow&slow=35s&slowest=45s&start=0s&length=60s"},
		{"flash-crowd", "failure=surge&length=10s&total=65s"},
		{
			"1000-clients-10s-503",
			"every=10s&arrivals=regular&deadline=10s&topology=own&workers=6&service=30ms&queue=200&failure=status&start=20s&length=20s&total=2m",
		},
	} {
		found, err := fleet.Named(p.name)
		if err != nil {
			panic(err) // a constant
		}
		all = append(all, Preset{p.name, found[0].Note, p.query + "&name=" + url.QueryEscape(p.name)})
	}
	return all
}
