package lab

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/config"
)

const (
	bare       = "bare"
	peersField = "with"
	none       = "none"

	failNone    = "none"
	failStatus  = "status"
	failRefused = "refused"
	failReset   = "reset"
	failHang    = "hang"
	failSlow    = "slow"
	failWorkers = "workers"
	failSurge   = "surge"

	ofRequests = failStatus + " " + failRefused + " " + failReset + " " + failHang + " " + failSlow
	timed      = ofRequests + " " + failWorkers + " " + failSurge
)

// field is one field of the form.
type field struct {
	Name, Label, Hint, Initial string

	Options []option // of a list; nil: a text
	Long    bool     // more than one line
	Kinds   string   // the kinds of failure that it belongs to; "": all

	set setter
}

// setter sets a part of the experiment to the value of a field.
type setter func(*Spec, string) error

type option struct{ Value, Label string }

type fieldGroup struct {
	Title  string
	Fields []field
}

// fieldGroups are all fields except the libraries.
func fieldGroups() []fieldGroup {
	return []fieldGroup{
		{"Clients", []field{
			{Name: "clients", Label: "Number", Hint: "at most 10,000", Initial: "1000", set: number(1, maxClients, func(s *Spec) *int { return &s.load.Clients })},
			{Name: "rate", Label: "Calls per second", Hint: "of all clients together", Initial: "1000", set: float(0.01, 100_000, func(s *Spec) *float64 { return &s.load.Rate })},
			{
				Name: "arrivals", Label: "Arrivals", Initial: "random", Options: []option{{"random", "random (Poisson)"}, {"regular", "regular"}},
				set: choice(func(s *Spec, v string) { s.regular = v == "regular" }),
			},
			{Name: "deadline", Label: "Deadline of a call", Hint: "or none", Initial: "30s", set: orNone(none, -1, time.Millisecond, time.Hour, span, func(s *Spec) *time.Duration { return &s.load.Deadline })},
			{
				Name: "method", Label: "Method", Initial: http.MethodGet, Options: []option{{http.MethodGet, "GET"}, {http.MethodPost, "POST, with a generated key"}},
				set: choice(func(s *Spec, v string) { s.load.Method = v }),
			},
			{
				Name: "topology", Label: "Transports", Initial: "shared",
				Options: []option{{"shared", "one for all clients"}, {"own", "one for each client"}},
				set:     choice(func(s *Spec, v string) { s.topology = fleet.Topology(v) }),
			},
		}},
		{"Server", []field{
			{Name: "workers", Label: "Workers", Hint: "or unlimited", Initial: "12", set: orNone("unlimited", -1, 1, 100_000, number, func(s *Spec) *int { return &s.server.Workers })},
			{Name: "service", Label: "Time of a request", Initial: "10ms", set: span(time.Millisecond/10, time.Minute, func(s *Spec) *time.Duration { return &s.server.Service })},
			{Name: "queue", Label: "Queue", Hint: "requests, or none", Initial: "1000", set: orNone(none, -1, 1, 1_000_000, number, func(s *Spec) *int { return &s.server.Queue })},
			{Name: "timeout", Label: "Timeout of an attempt", Hint: "or none", Initial: "500ms", set: orNone(none, -1, time.Millisecond, time.Hour, span, func(s *Spec) *time.Duration { return &s.server.AttemptTimeout })},
			{Name: "quota", Label: "Quota", Hint: "requests a second; 0: none", Initial: "0", set: number(0, 1_000_000, func(s *Spec) *int { return &s.server.Limit.Quota })},
			{
				Name: "headers", Label: "Quota headers", Initial: "all",
				Options: []option{{"all", "on all responses"}, {"rejections", "on rejections"}, {"retry-after", "Retry-After alone"}, {none, none}},
				set: choice(func(s *Spec, v string) {
					s.server.Limit.Headers = map[string]fleet.HeaderPolicy{
						"all": fleet.AllHeaders, "rejections": fleet.HeadersOnRejections, "retry-after": fleet.RetryAfterOnly, none: fleet.NoHeaders,
					}[v]
				}),
			},
		}},
		{"Failure", []field{
			{
				Name: "failure", Label: "Kind", Initial: failNone,
				Options: []option{
					{failNone, "none"}, {failStatus, "a status"}, {failRefused, "connections refused"}, {failReset, "connections reset"},
					{failHang, "no response"}, {failSlow, "slow responses"}, {failWorkers, "fewer workers"}, {failSurge, "more calls"},
				},
				set: choice(func(s *Spec, v string) { s.failure = v }),
			},
			{Name: "start", Kinds: timed, Label: "Starts at", Initial: "10s", set: span(0, maxTotal, func(s *Spec) *time.Duration { return &s.start })},
			{Name: "length", Kinds: timed, Label: "Lasts", Initial: "30s", set: span(0, maxTotal, func(s *Spec) *time.Duration { return &s.length })},
			{Name: "total", Label: "Whole run", Hint: "at most 10m", Initial: "60s", set: span(time.Second, maxTotal, func(s *Spec) *time.Duration { return &s.full })},
			{Name: "share", Kinds: ofRequests, Label: "Ratio of the requests", Hint: "at most 1", Initial: "1", set: float(0.0001, 1, func(s *Spec) *float64 { return &s.fault.Share })},
			{Name: "status", Kinds: failStatus, Label: "Status", Hint: "of a status", Initial: "503", set: number(400, 599, func(s *Spec) *int { return &s.fault.Response.Status })},
			{Name: "after", Kinds: failStatus, Label: "Retry-After", Hint: "seconds; 0: none", Initial: "0", set: number(0, 3600, func(s *Spec) *int { return &s.fault.Response.RetryAfter })},
			{
				Name: "worked", Kinds: ofRequests, Label: "Work before the failure", Initial: "no", Options: []option{{"no", "no"}, {"yes", "yes"}},
				set: choice(func(s *Spec, v string) { s.fault.Worked = v == "yes" }),
			},
			{Name: "slow", Kinds: failSlow, Label: "Slow responses take", Initial: "1s", set: span(time.Millisecond, maxTotal, func(s *Spec) *time.Duration { return &s.fault.Response.After })},
			{Name: "slowest", Kinds: failSlow, Label: "to", Hint: "or none: all equal", Initial: none, set: orNone(none, 0, time.Millisecond, maxTotal, span, func(s *Spec) *time.Duration { return &s.fault.Response.Until })},
			{Name: "left", Kinds: failWorkers, Label: "Workers that are left", Initial: "6", set: number(0, 100_000, func(s *Spec) *int { return &s.left })},
			{Name: "factor", Kinds: failSurge, Label: "Calls, as a multiple", Initial: "3", set: float(0.1, 100, func(s *Spec) *float64 { return &s.factor })},
		}},
		{"Run", []field{
			{Name: "seed", Label: "Seed", Hint: "of arrivals and server", Initial: strconv.Itoa(fleet.Seed), set: number(0, math.MaxInt, func(s *Spec) *int { return &s.seed })},
			{
				Name: "config", Label: "Configuration of resilienthttp", Hint: `JSON of package config, for example {"Policy": {"MaxAttempts": 3}}`, Long: true,
				set: configuration,
			},
		}},
	}
}

func number(low, high int, to func(*Spec) *int) setter { return within(strconv.Atoi, low, high, to) }

func float(low, high float64, to func(*Spec) *float64) setter {
	return within(func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }, low, high, to)
}

func span(low, high time.Duration, to func(*Spec) *time.Duration) setter {
	return within(time.ParseDuration, low, high, to)
}

// within sets a value that parse reads, from low to high.
func within[T int | float64 | time.Duration](parse func(string) (T, error), low, high T, to func(*Spec) *T) setter {
	return func(s *Spec, text string) error {
		v, err := parse(text)
		if err != nil || !(v >= low && v <= high) { // NaN is neither
			return fmt.Errorf("%.40q (want %v to %v)", text, low, high)
		}
		*to(s) = v
		return nil
	}
}

// orNone sets the value for the word, and another text as set does.
func orNone[T any](word string, value, low, high T, set func(low, high T, to func(*Spec) *T) setter, to func(*Spec) *T) setter {
	return func(s *Spec, text string) error {
		if text == word {
			*to(s) = value
			return nil
		}
		return set(low, high, to)(s, text)
	}
}

// choice sets one of the options. Parse has checked that it is one.
func choice(set func(*Spec, string)) setter {
	return func(s *Spec, text string) error {
		set(s, text)
		return nil
	}
}

// configuration reads a configuration, and reports all its errors by field.
func configuration(s *Spec, text string) error {
	if s.config = text; text == "" {
		return nil
	}
	t := &resilienthttp.Transport{}
	if err := config.Read(strings.NewReader(text), t); err != nil {
		return err
	}
	if c, ok := t.Base.(*resilienthttp.Connections); ok && c.MaxAge != 0 {
		return errors.New("config: Connections.MaxAge: has no effect in the model, which has no connections")
	}
	return nil
}
