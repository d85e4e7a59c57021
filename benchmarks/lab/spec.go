// Package lab is a page that answers the question which values to set, before an outage does. A
// user chooses clients, a server, a failure, libraries and a configuration. The lab runs them in
// virtual time with package fleet, and compares them with a bare client.
//
// The page is served on a loopback address by benchmarks/cmd/lab. Each run is a child process of
// the same binary, because a bubble that panics or deadlocks ends its process. The child reads
// the [Spec.Query] from its standard input, and writes its progress and its [Report] to its standard
// output.
package lab

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// The limits of a run.
const (
	maxClients = 10_000
	maxTotal   = 10 * time.Minute
	maxCalls   = 1_000_000
	maxPeers   = 4 // besides the bare client
)

// Spec is one experiment. [Parse] makes it from the values of a form or of a URL.
type Spec struct {
	seed int

	load     fleet.Load // as the form says; [Spec.Scenario] adds the arrivals
	regular  bool       // calls are evenly spaced
	topology fleet.Topology

	server fleet.Server

	failure             string
	fault               fleet.Fault // its response has the fields of all kinds
	factor              float64
	left                int
	start, length, full time.Duration

	peers  []string // without bare
	config string   // JSON; "": the zero Transport

	values url.Values // those that differ from the initial ones
}

// FormError are errors by the name of the field; "" is the form.
type FormError map[string]string

// Error implements error.
func (e FormError) Error() string { return fmt.Sprintf("lab: %v", map[string]string(e)) }

// Parse returns the experiment, or all errors. Absent fields have their initial values.
func Parse(values url.Values) (*Spec, FormError) {
	s, errs := &Spec{values: url.Values{}}, FormError{}
	known := map[string]bool{peersField: true}
	for _, g := range fieldGroups() {
		for _, f := range g.Fields {
			known[f.Name] = true
			text := f.Initial
			if values.Has(f.Name) {
				text = strings.TrimSpace(values.Get(f.Name))
			}
			if f.Options != nil && !slices.ContainsFunc(f.Options, func(o option) bool { return o.Value == text }) {
				errs[f.Name] = fmt.Sprintf("unknown choice %.40q", text)
			} else if err := f.set(s, text); err != nil {
				errs[f.Name] = err.Error()
			}
			if text != f.Initial {
				s.values.Set(f.Name, text)
			}
		}
	}
	for name := range values {
		if !known[name] {
			errs[""] = fmt.Sprintf("unknown field %.40q", name)
		}
	}
	if err := s.setPeers(values); err != nil {
		errs[peersField] = err.Error()
	}
	if len(errs) == 0 {
		s.check(errs)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

func (s *Spec) setPeers(values url.Values) error {
	s.peers = []string{peers.Ours}
	if values.Has(peersField) {
		s.peers = slices.DeleteFunc(slices.Clone(values[peersField]), func(name string) bool { return name == "" })
		s.values[peersField] = s.peers
	}
	for _, name := range s.peers {
		if name == bare || !slices.Contains(peers.Names(), name) {
			return fmt.Errorf("no library %.40q", name)
		}
	}
	if n := len(s.peers); n == 0 || n > maxPeers {
		return fmt.Errorf("%d libraries (want 1 to %d; the bare client always runs)", n, maxPeers)
	}
	return nil
}

// check compares fields with each other.
func (s *Spec) check(errs FormError) {
	if s.start+s.length > s.full {
		errs["length"] = fmt.Sprintf("the failure ends after %v (want at most the total of %v)", s.start+s.length, s.full)
	}
	if s.failure == failWorkers && s.server.Workers < 0 {
		errs["left"] = "needs a server with a number of workers"
	}
	if slow := s.fault.Response; s.failure == failSlow && slow.Until != 0 && slow.Until < slow.After {
		errs["slowest"] = fmt.Sprintf("%v (want at least slow, %v)", slow.Until, slow.After)
	}
	if s.failure == failSurge && s.regular {
		errs["arrivals"] = "a surge needs random arrivals"
	}
	if calls := s.calls(); calls > maxCalls {
		errs["rate"] = fmt.Sprintf("%.0f calls (want at most %d)", calls, maxCalls)
	}
}

// calls is the number of calls of a library.
func (s *Spec) calls() float64 {
	length := s.full.Seconds()
	if s.failure == failSurge {
		length += (s.factor - 1) * s.length.Seconds()
	}
	return s.load.Rate * length
}

// Query returns the fields that differ from their initial values, as the query of a URL.
func (s *Spec) Query() string { return s.values.Encode() }

// Scenario returns the experiment as a scenario of the fleet.
func (s *Spec) Scenario() fleet.Scenario {
	sc := fleet.Scenario{
		Name: "lab", Before: s.start, During: s.length, After: s.full - s.start - s.length, Server: s.server, Load: s.load,
	}
	if s.regular {
		sc.Load.Every = time.Duration(float64(s.load.Clients) / s.load.Rate * float64(time.Second))
	}
	switch s.failure {
	case failNone: // During is the whole run
		sc.Before, sc.During, sc.After = 0, s.full, 0
	case failWorkers:
		sc.Server.Staff = []fleet.Staff{{Workers: s.left}}
	case failSurge:
		sc.Load.Surges = []fleet.Surge{{From: s.start, To: s.start + s.length, Factor: s.factor}}
	default:
		fault := s.fault
		fault.Response = s.response()
		sc.Server.Faults = []fleet.Fault{fault}
	}
	if s.config != "" {
		sc.Configure = fleet.Configured(s.config)
	}
	return sc
}

// response has the fields of the kind of failure.
func (s *Spec) response() fleet.Response {
	all := s.fault.Response
	switch s.failure {
	case failRefused:
		return fleet.Response{Err: fleet.ErrRefused}
	case failReset:
		return fleet.Response{Err: fleet.ErrReset}
	case failHang:
		return fleet.Response{Hang: true}
	case failSlow:
		return fleet.Response{Status: http.StatusOK, After: all.After, Until: all.Until}
	}
	return fleet.Response{Status: all.Status, RetryAfter: all.RetryAfter}
}

// runs are the runs of the experiment: the bare client first. A configured Transport is compared
// with the defaults too.
func (s *Spec) runs() (runs []fleet.Config, labels []string) {
	add := func(name, label string, sc fleet.Scenario) {
		found, err := peers.Named(name)
		if err != nil {
			panic(err) // setPeers has checked it
		}
		runs = append(runs, fleet.Config{Scenario: sc, Peer: found[0], Topology: s.topology, Seed: uint64(s.seed)})
		labels = append(labels, label)
	}
	sc := s.Scenario()
	add(bare, bare, sc)
	for _, name := range s.peers {
		add(name, name, sc)
		if s.config != "" && name == peers.Ours {
			defaults := sc
			defaults.Configure = nil
			add(name, name+", defaults", defaults)
		}
	}
	return runs, labels
}

// Preset is an experiment that the page offers.
type Preset struct{ Name, Note, Query string }

// URL is the page with the scenario's fields.
func (p Preset) URL() template.URL { return template.URL("/?" + p.Query) } //nolint:gosec // a constant

// APIs returns the presets by kind of API.
func APIs() []Preset {
	return []Preset{
		{"payments", "8 payments a second, and the provider restarts for 4 s", "clients=8&rate=8&method=POST&deadline=10s&workers=unlimited&service=200ms&timeout=none&failure=refused&start=20s&length=4s"},
		{"llm", "2 prompts a second that take 3 s, and half of them are rejected as overload for 30 s", "clients=20&rate=2&method=POST&deadline=2m&workers=unlimited&service=3s&timeout=none&failure=status&status=529&share=0.5&start=30s&total=3m"},
		{"crawler", "40 pages a second from a site that permits 30, and says so by Retry-After alone", "clients=20&rate=40&deadline=1m&workers=unlimited&service=100ms&timeout=none&quota=30&headers=retry-after"},
		{"internal-service", "500 calls a second within 1 s, and ten of twelve workers are away for 20 s", "clients=100&rate=500&deadline=1s&timeout=250ms&failure=workers&left=2&length=20s"},
	}
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
		all = append(all, Preset{p.name, found[0].Note, p.query})
	}
	return all
}
