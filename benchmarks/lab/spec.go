package lab

import (
	"fmt"
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
	name string
	seed uint64

	clients       int
	rate          float64 // calls per second of all clients
	deadline      time.Duration
	regular, post bool
	topology      fleet.Topology

	server fleet.Server

	failure             string
	status, retryAfter  int
	share, factor       float64
	worked              bool
	slow, slowest       time.Duration
	left                int
	start, length, full time.Duration

	peers  []string // without bare
	config string   // JSON; "": the zero Transport

	values url.Values // those that differ from the initial ones
}

// FormError are errors by the name of the field; "" is the form.
type FormError map[string]string

// Error implements error.
func (e FormError) Error() string {
	var texts []string
	for name, text := range e {
		texts = append(texts, strings.TrimPrefix(name+": "+text, ": "))
	}
	slices.Sort(texts)
	return "lab: " + strings.Join(texts, "; ")
}

// Parse returns the experiment, or a FormError with all errors. Absent fields have their initial
// values.
func Parse(values url.Values) (*Spec, error) {
	s, errs := &Spec{values: url.Values{}}, FormError{}
	known := map[string]bool{peersField: true}
	for _, g := range fieldGroups() {
		for _, f := range g.Fields {
			known[f.Name] = true
			text := f.Initial
			if values.Has(f.Name) {
				text = strings.TrimSpace(values.Get(f.Name))
			}
			if err := f.set(s, text); err != nil {
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
	if s.failure == failSlow && s.slowest != 0 && s.slowest < s.slow {
		errs["slowest"] = fmt.Sprintf("%v (want at least slow, %v)", s.slowest, s.slow)
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
	return s.rate * length
}

// Query returns the fields that differ from their initial values, as the query of a URL.
func (s *Spec) Query() string { return s.values.Encode() }

// Scenario returns the experiment as a scenario of the fleet. Values that are defaults there are 0.
func (s *Spec) Scenario() fleet.Scenario {
	sc := fleet.Scenario{
		Name: s.name, Before: s.start, During: s.length, After: s.full - s.start - s.length,
		Server: s.server, Load: s.load(), Topologies: []fleet.Topology{s.topology},
	}
	if s.failure == failNone { // During is the whole run
		sc.Before, sc.During, sc.After = 0, s.full, 0
	}
	if fault, ok := s.fault(); ok {
		sc.Server.Faults = []fleet.Fault{fault}
	}
	if s.failure == failWorkers {
		sc.Server.Staff = []fleet.Staff{{Workers: s.left}}
	}
	if s.config != "" {
		sc.Configure = fleet.Configured(s.config)
	}
	return sc
}

func (s *Spec) load() fleet.Load {
	l := fleet.Load{}
	if s.regular {
		l.Every = time.Duration(float64(s.clients) / s.rate * float64(time.Second))
	} else if s.rate != fleet.Rate {
		l.Rate = s.rate
	}
	if s.clients != fleet.Clients {
		l.Clients = s.clients
	}
	if s.deadline != 30*time.Second {
		l.Deadline = s.deadline
	}
	if s.post {
		l.Method = http.MethodPost
	}
	if s.failure == failSurge {
		l.Surges = []fleet.Surge{{From: s.start, To: s.start + s.length, Factor: s.factor}}
	}
	return l
}

func (s *Spec) fault() (fleet.Fault, bool) {
	f := fleet.Fault{Worked: s.worked}
	if s.share != 1 {
		f.Share = s.share
	}
	switch s.failure {
	case failStatus:
		f.Response = fleet.Response{Status: s.status, RetryAfter: s.retryAfter}
	case failRefused:
		f.Response.Err = fleet.ErrRefused
	case failReset:
		f.Response.Err = fleet.ErrReset
	case failHang:
		f.Response.Hang = true
	case failSlow:
		f.Response = fleet.Response{Status: http.StatusOK, After: s.slow, Until: s.slowest}
	default:
		return fleet.Fault{}, false
	}
	return f, true
}

// runs are the runs of the experiment: the bare client first. A configured Transport is compared
// with the defaults too.
func (s *Spec) runs() (runs []fleet.Config, labels []string) {
	add := func(name, label string, sc fleet.Scenario) {
		found, err := peers.Named(name)
		if err != nil {
			panic(err) // setPeers has checked it
		}
		runs = append(runs, fleet.Config{Scenario: sc, Peer: found[0], Topology: s.topology, Seed: s.seed})
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
