package statepage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// version is that of the JSON.
const version = 1

// page is what is known now, as the JSON has it.
type page struct {
	Version    int             `json:"version"`
	Title      string          `json:"title"`
	At         time.Time       `json:"at"`
	Transports []transportView `json:"transports"`
	Sources    []sourceView    `json:"sources,omitempty"`

	part string // of the names of the scopes that are shown
}

type transportView struct {
	Name   string      `json:"name"`
	Scopes []scopeView `json:"scopes"`
}

type scopeView struct {
	Scope    string       `json:"scope"`
	Held     *heldView    `json:"held,omitempty"`
	Breaker  breakerView  `json:"breaker"`
	Budget   budgetView   `json:"budget"`
	Quotas   []quotaView  `json:"quotas,omitempty"`
	InFlight int          `json:"in_flight"`
	Waiting  int          `json:"waiting"`
	Retrying int          `json:"retrying"`
	Latency  latencyView  `json:"latency,omitzero"`
	Slowest  *callView    `json:"slowest_call,omitempty"`
	Failure  *failureView `json:"last_failure,omitempty"`
}

// heldView is why calls to a scope are refused, or have to wait.
type heldView struct {
	Refused bool      `json:"refused"` // or they wait
	Until   time.Time `json:"until,omitzero"`
	Why     string    `json:"why"`
}

type breakerView struct {
	State     string    `json:"state"`
	Calls     int       `json:"calls"`
	Failures  int       `json:"failures"`
	Since     time.Time `json:"since,omitzero"`
	NotBefore time.Time `json:"not_before,omitzero"`
	Limit     float64   `json:"limit,omitempty"`
}

type budgetView struct {
	Used      float64 `json:"used"`
	Remaining float64 `json:"remaining"` // -1: no limit
}

type quotaView struct {
	Bucket       string    `json:"bucket"`
	Limit        int64     `json:"limit"`
	Remaining    int64     `json:"remaining"`
	Reset        time.Time `json:"reset,omitzero"`
	BlockedUntil time.Time `json:"closed_until,omitzero"`
}

type latencyView struct {
	P50     float64 `json:"p50_seconds"`
	P95     float64 `json:"p95_seconds"`
	P99     float64 `json:"p99_seconds"`
	Samples int     `json:"samples"`
	Timeout float64 `json:"timeout_seconds,omitempty"` // the adaptive one; 0: there is none
}

type callView struct {
	Start    time.Time `json:"start"`
	Latency  float64   `json:"latency_seconds"`
	Queued   float64   `json:"queued_seconds"`
	Sent     float64   `json:"sent_seconds"`
	Waited   float64   `json:"waited_seconds"`
	Attempts int       `json:"attempts"`
	Status   int       `json:"status,omitempty"`
	Error    string    `json:"error,omitempty"`
	Why      string    `json:"why"`
}

type failureView struct {
	At     time.Time `json:"at"`
	Status int       `json:"status,omitempty"`
	Error  string    `json:"error,omitempty"`
}

func newPage(title string, transports map[string]*resilienthttp.Transport, sources []sourceView, part string) *page {
	p := &page{Version: version, Title: title, At: time.Now(), Transports: []transportView{}, Sources: sources, part: part}
	for _, name := range slices.Sorted(maps.Keys(transports)) {
		t := transports[name]
		if t == nil {
			continue
		}
		v := transportView{Name: name, Scopes: []scopeView{}}
		for _, s := range t.State().Scopes {
			if strings.Contains(s.Scope, part) {
				v.Scopes = append(v.Scopes, viewOf(&s, p.At))
			}
		}
		p.Transports = append(p.Transports, v)
	}
	return p
}

func viewOf(s *resilienthttp.ScopeState, now time.Time) scopeView {
	v := scopeView{
		Scope: s.Scope, InFlight: s.InFlight, Waiting: s.Queued, Retrying: s.RetryWaiting,
		Breaker: breakerView{s.Breaker.State.String(), s.Breaker.Calls, s.Breaker.Failures, s.Breaker.Since, s.Breaker.NotBefore, s.Breaker.SlowStartLimit},
		Budget:  budgetView(s.Budget),
		Latency: latencyView{s.Latency.P50.Seconds(), s.Latency.P95.Seconds(), s.Latency.P99.Seconds(), s.Latency.Samples, s.Latency.AdaptiveTimeout.Seconds()},
		Slowest: callOf(&s.Slowest),
	}
	for _, q := range s.Quotas {
		v.Quotas = append(v.Quotas, quotaView(q))
	}
	if f := s.Failure; !f.At.IsZero() {
		v.Failure = &failureView{f.At, f.Status, f.Err}
	}
	v.Held = heldOf(s, now)
	return v
}

// heldOf is why calls are held up, the worst of it; nil: they are not.
func heldOf(s *resilienthttp.ScopeState, now time.Time) *heldView {
	b := &s.Breaker
	refused := func(why string) *heldView { return &heldView{Refused: true, Until: b.NotBefore, Why: why} }
	results := plural(b.Failures, "failure") + " in " + plural(b.Calls, "result")
	switch {
	case b.State == resilienthttp.StateOpen:
		return refused("Its circuit is open: " + results + lastOf(&s.Failure) + ".")
	case b.State == resilienthttp.StateHalfOpen && b.NotBefore.After(now):
		return refused("Its circuit is half-open: a few calls are out to see whether it is back. It opened after " + results + lastOf(&s.Failure) + ".")
	case b.NotBefore.After(now):
		return refused("It was slow and failed" + lastOf(&s.Failure) + ". It is asked a little at a time.")
	}
	var held *heldView
	for i := range s.Quotas {
		if h := quotaHolds(&s.Quotas[i], s, now); h != nil && (held == nil || h.Until.After(held.Until)) {
			held = h
		}
	}
	if held == nil && s.Queued > 0 {
		held = &heldView{Why: plural(s.Queued, "call") + " in line for a turn."}
	}
	return held
}

// quotaHolds is why calls wait for a quota; nil: they do not.
func quotaHolds(q *resilienthttp.QuotaStatus, s *resilienthttp.ScopeState, now time.Time) *heldView {
	waiting := ""
	if s.Queued > 0 {
		waiting = " " + plural(s.Queued, "call") + " in line for a turn."
	}
	switch {
	case q.BlockedUntil.After(now):
		return &heldView{Until: q.BlockedUntil, Why: "The server answers that it has had too many requests" + lastOf(&s.Failure) + "." + waiting}
	case q.Limit > 0 && q.Remaining <= 0 && q.Reset.After(now):
		return &heldView{Until: q.Reset, Why: fmt.Sprintf("The quota%s is used up: none of %d is left.", named(q.Bucket), q.Limit) + waiting}
	}
	return nil
}

func named(bucket string) string {
	if bucket == "" {
		return ""
	}
	return " “" + bucket + "”"
}

func lastOf(f *resilienthttp.FailureStatus) string {
	switch {
	case f.At.IsZero():
		return ""
	case f.Status != 0:
		return ", the last one status " + strconv.Itoa(f.Status)
	}
	return ", the last one: " + f.Err
}

func callOf(c *resilienthttp.CallStatus) *callView {
	if c.Start.IsZero() {
		return nil
	}
	return &callView{
		Start: c.Start, Latency: c.Latency.Seconds(), Queued: c.QueueWait.Seconds(), Sent: c.InFlight.Seconds(), Waited: c.RetryWait.Seconds(),
		Attempts: c.Attempts, Status: c.Status, Error: c.Err, Why: whyOf(c),
	}
}

// whyOf says where the time of a call went, the largest part first.
func whyOf(c *resilienthttp.CallStatus) string {
	type part struct {
		took time.Duration
		what string
	}
	parts := []part{{c.InFlight, "for the server"}, {c.QueueWait, "in line for a turn"}, {c.RetryWait, "before retries"}}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.took, a.took) })
	var said []string
	for _, p := range parts {
		if p.took >= time.Microsecond || len(said) == 0 {
			said = append(said, spanOf(p.took.Seconds())+" "+p.what)
		}
	}
	return "It waited " + strings.Join(said, ", ") + "."
}

// plural is "1 call", "2 calls".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(int64(n)) + " " + noun + "s"
}

// grouped is a number with its thousands apart.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// spanOf is a time in seconds as people write it, to three digits.
func spanOf(seconds float64) string {
	unit := func(x float64, name string) string {
		digits := 0
		switch {
		case x < 10:
			digits = 2
		case x < 100:
			digits = 1
		}
		s := strconv.FormatFloat(x, 'f', digits, 64)
		if digits > 0 {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s + " " + name
	}
	switch {
	case seconds <= 0:
		return "0 s"
	case seconds < 1e-3:
		return unit(seconds*1e6, "µs")
	case seconds < 0.9995:
		return unit(seconds*1e3, "ms")
	case seconds < 120:
		return unit(seconds, "s")
	case seconds < 7200:
		return unit(seconds/60, "min")
	case seconds < 48*3600:
		return unit(seconds/3600, "h")
	}
	return unit(seconds/86400, "d")
}
