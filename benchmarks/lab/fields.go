package lab

import (
	"errors"
	"fmt"
	"regexp"
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

	set func(*Spec, string) error
}

type option struct{ Value, Label string }

type fieldGroup struct {
	Title  string
	Fields []field
}

// fieldGroups are all fields except the libraries.
func fieldGroups() []fieldGroup {
	return []fieldGroup{
		{"Clients", []field{
			{Name: "clients", Label: "Number", Hint: "at most 10,000", Initial: "1000", set: number(1, maxClients, func(s *Spec) *int { return &s.clients })},
			{Name: "rate", Label: "Calls per second", Hint: "of all clients together", Initial: "1000", set: float(0.01, 100_000, func(s *Spec) *float64 { return &s.rate })},
			{
				Name: "arrivals", Label: "Arrivals", Initial: "random", Options: []option{{"random", "random (Poisson)"}, {"regular", "regular"}},
				set: choice(func(s *Spec, v string) { s.regular = v == "regular" }, "random", "regular"),
			},
			{Name: "deadline", Label: "Deadline of a call", Hint: "or none", Initial: "30s", set: orNone(none, -1, span(time.Millisecond, time.Hour, func(s *Spec) *time.Duration { return &s.deadline }), func(s *Spec) *time.Duration { return &s.deadline })},
			{
				Name: "method", Label: "Method", Initial: "GET", Options: []option{{"GET", "GET"}, {"POST", "POST, with a generated key"}},
				set: choice(func(s *Spec, v string) { s.post = v == "POST" }, "GET", "POST"),
			},
			{
				Name: "topology", Label: "Transports", Initial: "shared",
				Options: []option{{"shared", "one for all clients"}, {"own", "one for each client"}},
				set:     choice(func(s *Spec, v string) { s.topology = fleet.Topology(v) }, "shared", "own"),
			},
		}},
		{"Server", []field{
			{Name: "workers", Label: "Workers", Hint: "or unlimited", Initial: "12", set: server(12, "unlimited", number(1, 100_000, workers), workers)},
			{Name: "service", Label: "Time of a request", Initial: "10ms", set: server(10*time.Millisecond, "", span(time.Millisecond/10, time.Minute, service), service)},
			{Name: "queue", Label: "Queue", Hint: "requests, or none", Initial: "1000", set: server(1000, none, number(1, 1_000_000, queue), queue)},
			{Name: "full", Label: "Retry-After of a full queue", Hint: "seconds; 0: none", Initial: "0", set: number(0, 3600, func(s *Spec) *int { return &s.server.RetryAfter })},
			{Name: "timeout", Label: "Timeout of an attempt", Hint: "or none", Initial: "500ms", set: server(500*time.Millisecond, none, span(time.Millisecond, time.Hour, timeout), timeout)},
			{Name: "quota", Label: "Quota", Hint: "requests a window; 0: none", Initial: "0", set: number(0, 1_000_000, func(s *Spec) *int { return &s.server.Limit.Quota })},
			{Name: "window", Label: "Window of the quota", Hint: "whole seconds", Initial: "1s", set: window},
			{
				Name: "headers", Label: "Quota headers", Initial: "all",
				Options: []option{{"all", "on all responses"}, {"rejections", "on rejections"}, {"retry-after", "Retry-After alone"}, {none, none}},
				set: func(s *Spec, v string) error {
					policies := map[string]fleet.HeaderPolicy{"all": fleet.AllHeaders, "rejections": fleet.HeadersOnRejections, "retry-after": fleet.RetryAfterOnly, none: fleet.NoHeaders}
					policy, ok := policies[v]
					if !ok {
						return unknownChoice(v)
					}
					s.server.Limit.Headers = policy
					return nil
				},
			},
		}},
		{"Failure", []field{
			{
				Name: "failure", Label: "Kind", Initial: failNone,
				Options: []option{
					{failNone, "none"}, {failStatus, "a status"}, {failRefused, "connections refused"}, {failReset, "connections reset"},
					{failHang, "no response"}, {failSlow, "slow responses"}, {failWorkers, "fewer workers"}, {failSurge, "more calls"},
				},
				set: choice(func(s *Spec, v string) { s.failure = v },
					failNone, failStatus, failRefused, failReset, failHang, failSlow, failWorkers, failSurge),
			},
			{Name: "start", Kinds: timed, Label: "Starts at", Initial: "10s", set: span(0, maxTotal, func(s *Spec) *time.Duration { return &s.start })},
			{Name: "length", Kinds: timed, Label: "Lasts", Initial: "30s", set: span(0, maxTotal, func(s *Spec) *time.Duration { return &s.length })},
			{Name: "total", Label: "Whole run", Hint: "at most 10m", Initial: "60s", set: span(time.Second, maxTotal, func(s *Spec) *time.Duration { return &s.full })},
			{Name: "share", Kinds: ofRequests, Label: "Ratio of the requests", Hint: "at most 1", Initial: "1", set: float(0.0001, 1, func(s *Spec) *float64 { return &s.share })},
			{Name: "status", Kinds: failStatus, Label: "Status", Hint: "of a status", Initial: "503", set: number(400, 599, func(s *Spec) *int { return &s.status })},
			{Name: "after", Kinds: failStatus, Label: "Retry-After", Hint: "seconds; 0: none", Initial: "0", set: number(0, 3600, func(s *Spec) *int { return &s.retryAfter })},
			{
				Name: "worked", Kinds: ofRequests, Label: "Work before the failure", Initial: "no", Options: []option{{"no", "no"}, {"yes", "yes"}},
				set: choice(func(s *Spec, v string) { s.worked = v == "yes" }, "no", "yes"),
			},
			{Name: "slow", Kinds: failSlow, Label: "Slow responses take", Initial: "1s", set: span(time.Millisecond, maxTotal, func(s *Spec) *time.Duration { return &s.slow })},
			{Name: "slowest", Kinds: failSlow, Label: "to", Hint: "or none: all equal", Initial: none, set: orNone(none, 0, span(time.Millisecond, maxTotal, func(s *Spec) *time.Duration { return &s.slowest }), func(s *Spec) *time.Duration { return &s.slowest })},
			{Name: "left", Kinds: failWorkers, Label: "Workers that are left", Initial: "6", set: number(0, 100_000, func(s *Spec) *int { return &s.left })},
			{Name: "factor", Kinds: failSurge, Label: "Calls, as a multiple", Initial: "3", set: float(0.1, 100, func(s *Spec) *float64 { return &s.factor })},
		}},
		{"Run", []field{
			{Name: "seed", Label: "Seed", Hint: "of arrivals and server", Initial: strconv.Itoa(fleet.Seed), set: func(s *Spec, v string) (err error) {
				if s.seed, err = strconv.ParseUint(v, 10, 64); err != nil {
					err = fmt.Errorf("%.40q (want a number)", v)
				}
				return err
			}},
			{Name: "name", Label: "Name", Hint: "of the exported row", Initial: "lab", set: func(s *Spec, v string) error {
				if s.name = v; !rowName.MatchString(v) {
					return fmt.Errorf("%.40q (want up to 40 of a-z, 0-9 and -)", v)
				}
				return nil
			}},
			{
				Name: "config", Label: "Configuration of resilienthttp", Hint: `JSON of package config, for example {"Policy": {"MaxAttempts": 3}}`, Long: true,
				set: configuration,
			},
		}},
	}
}

var rowName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

func workers(s *Spec) *int             { return &s.server.Workers }
func queue(s *Spec) *int               { return &s.server.Queue }
func service(s *Spec) *time.Duration   { return &s.server.Service }
func timeout(s *Spec) *time.Duration   { return &s.server.AttemptTimeout }
func unknownChoice(value string) error { return fmt.Errorf("unknown choice %.40q", value) }

func number(low, high int, to func(*Spec) *int) func(*Spec, string) error {
	return func(s *Spec, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%.40q (want %d to %d)", text, low, high)
		}
		*to(s) = n
		return nil
	}
}

func span(low, high time.Duration, to func(*Spec) *time.Duration) func(*Spec, string) error {
	return func(s *Spec, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < low || d > high {
			return fmt.Errorf("%.40q (want %v to %v, such as 500ms)", text, low, high)
		}
		*to(s) = d
		return nil
	}
}

// orNone accepts a word for the value.
func orNone[T int | time.Duration](word string, value T, set func(*Spec, string) error, to func(*Spec) *T) func(*Spec, string) error {
	return func(s *Spec, text string) error {
		if text == word {
			*to(s) = value
			return nil
		}
		return set(s, text)
	}
}

// server sets a value of fleet.Server: 0 for its default, -1 for the word; "": no word.
func server[T int | time.Duration](standard T, word string, set func(*Spec, string) error, to func(*Spec) *T) func(*Spec, string) error {
	if word != "" {
		set = orNone(word, -1, set, to)
	}
	return func(s *Spec, text string) error {
		err := set(s, text)
		if *to(s) == standard {
			*to(s) = 0
		}
		return err
	}
}

func choice(set func(*Spec, string), values ...string) func(*Spec, string) error {
	return func(s *Spec, text string) error {
		for _, v := range values {
			if v == text {
				set(s, v)
				return nil
			}
		}
		return unknownChoice(text)
	}
}

func window(s *Spec, text string) error {
	to := func(s *Spec) *time.Duration { return &s.server.Limit.Window }
	if err := span(time.Second, maxTotal, to)(s, text); err != nil {
		return err
	}
	if *to(s)%time.Second != 0 {
		return fmt.Errorf("%q (want whole seconds)", text)
	}
	if *to(s) == time.Second {
		*to(s) = 0
	}
	return nil
}

func float(low, high float64, to func(*Spec) *float64) func(*Spec, string) error {
	return func(s *Spec, text string) error {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= low && f <= high) {
			return fmt.Errorf("%.40q (want %g to %g)", text, low, high)
		}
		*to(s) = f
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
