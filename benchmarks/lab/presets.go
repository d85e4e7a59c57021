package lab

import (
	"html/template"
	"net/url"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
)

// Preset is an experiment that the page offers.
type Preset struct{ Name, Note, Query string }

// URL is the page with the scenario's fields.
func (p Preset) URL() template.URL { return template.URL("/?" + p.Query) } //nolint:gosec // a constant

// APIs returns the presets by kind of API.
func APIs() []Preset {
	all := []Preset{
		{"payments", "8 payments a second, and the provider restarts for 4 s", "clients=8&rate=8&method=POST&deadline=10s&workers=unlimited&service=200ms&timeout=none&failure=refused&start=20s&length=4s"},
		{"llm", "2 prompts a second that take 3 s, and half of them are rejected as overload for 30 s", "clients=20&rate=2&method=POST&deadline=2m&workers=unlimited&service=3s&timeout=none&failure=status&status=529&share=0.5&start=30s&total=3m"},
		{"crawler", "40 pages a second from a site that permits 30, and says so by Retry-After alone", "clients=20&rate=40&deadline=1m&workers=unlimited&service=100ms&timeout=none&quota=30&headers=retry-after"},
		{"internal-service", "500 calls a second within 1 s, and ten of twelve workers are away for 20 s", "clients=100&rate=500&deadline=1s&timeout=250ms&failure=workers&left=2&length=20s"},
	}
	for i := range all {
		all[i].Query += "&name=" + all[i].Name
	}
	return all
}

// Presets returns the scenarios that the page offers.
func Presets() (all []Preset) {
	for _, p := range []struct{ name, query string }{
		{"healthy", "total=2m"},
		{"outage", "failure=status&total=2m"},
		{"brownout", "failure=workers&length=60s&total=190s"},
		{"errors", "failure=status&status=500&share=0.01&worked=yes&start=0s&length=2m&total=2m"},
		{"quota", "rate=200&quota=100&total=2m"},
		{"tail", "workers=unlimited&service=20ms&timeout=none&failure=slow&share=0.05&start=0s&length=2m&total=2m&with=resilienthttp&with=resilienthttp-hedged"},
		{"hang", "rate=200&deadline=5s&timeout=none&failure=hang&total=70s"},
		{"slow", "clients=20&rate=20&deadline=1m&timeout=none&failure=slow&slow=35s&slowest=45s&start=0s&length=60s"},
		{"flash-crowd", "failure=surge&length=10s&total=65s"},
		{
			"1000-clients-10s-503",
			"rate=100&arrivals=regular&deadline=10s&topology=own&workers=6&service=30ms&queue=200&failure=status&start=20s&length=20s&total=2m",
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
