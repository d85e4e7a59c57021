package statepage

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// version is that of the JSON.
const version = 1

// page is the JSON document.
type page struct {
	Version    int             `json:"version"`
	Title      string          `json:"title"`
	At         time.Time       `json:"at"`
	Headline   headline        `json:"headline"`
	Transports []transportView `json:"transports"`
	Sources    []sourceView    `json:"sources,omitempty"`

	filter string // part of the names of the scopes that are shown
}

type transportView struct {
	Name   string      `json:"name"`
	Error  string      `json:"error,omitempty"` // of its configuration: each call fails
	Scopes []scopeView `json:"scopes"`
}

type scopeView struct {
	Scope        string        `json:"scope"`
	Priority     string        `json:"priority,omitempty"` // batch or critical
	Health       health        `json:"health"`
	Action       string        `json:"action,omitempty"` // what the Transport does about the failures
	Responses    responsesView `json:"responses"`
	LastMinute   minuteView    `json:"last_minute"`
	History      historyView   `json:"history,omitzero"`
	Failure      *failureView  `json:"last_failure,omitempty"`
	Blocked      *blockedView  `json:"blocked,omitempty"`
	Breaker      breakerView   `json:"breaker"`
	Budget       budgetView    `json:"budget"`
	Quotas       []quotaView   `json:"quotas,omitempty"`
	InFlight     int           `json:"in_flight"`
	Queued       int           `json:"queued"`
	RetryWaiting int           `json:"retry_waiting"`
	Latency      latencyView   `json:"latency,omitzero"`
	Slowest      *callView     `json:"slowest_call,omitempty"`
}

// health is the answer to "what fails?" for a scope.
type health string

const (
	healthOK       health = "ok"
	healthDegraded health = "degraded" // a call failed in the last 5 min, or the last attempt
	healthSlow     health = "slow"     // far slower than usual: see LatencyStatus.Slow
	healthFailing  health = "failing"  // all of the last calls failed, or most of the last minute's, or the circuit is not closed
)

// responsesView counts calls by how they ended.
type responsesView struct {
	Calls         int       `json:"calls"`
	Failures      int       `json:"failures"`
	ClientErrors  int       `json:"client_errors"`
	Throttled     int       `json:"throttled"` // of the client errors: what a limit has rejected
	ServerErrors  int       `json:"server_errors"`
	NetworkErrors int       `json:"network_errors"`
	Timeouts      int       `json:"timeouts"`
	Rejected      int       `json:"rejected"`
	Since         time.Time `json:"failing_since,omitzero"`
	CallsSince    int       `json:"calls_since,omitempty"`
}

// minuteView counts the calls of the last minute.
type minuteView struct {
	Calls    int `json:"calls"`
	Failures int `json:"failures"`
}

// historyView has the calls of the last 5 min, the oldest part first. The last one is not over.
type historyView struct {
	Step     float64   `json:"step_seconds"`
	At       time.Time `json:"last_step_at"`
	Calls    []int     `json:"calls"`
	Failures []int     `json:"failures"`
}

// historyStep is the length of a part of ResponseStatus.History.
const historyStep = 18750 * time.Millisecond

func newHistoryView(s *resilienthttp.ScopeState) historyView {
	if len(s.Responses.History) == 0 {
		return historyView{} // the scope of a shared circuit without a call
	}
	v := historyView{historyStep.Seconds(), s.Responses.HistoryAt, make([]int, len(s.Responses.History)), make([]int, len(s.Responses.History))}
	for i, part := range s.Responses.History {
		v.Calls[i], v.Failures[i] = part.Calls, part.Failures
	}
	return v
}

func newResponsesView(r *resilienthttp.ResponseStatus) responsesView {
	return responsesView{r.Calls, r.Failures(), r.ClientErrors, r.Throttled, r.ServerErrors, r.NetworkErrors, r.Timeouts, r.Rejected, r.Since, r.CallsSince}
}

// failureView is the last failed attempt.
type failureView struct {
	At        time.Time `json:"at"`
	Class     string    `json:"class"` // 4xx, 5xx, network or timeout
	ErrorType string    `json:"error_type"`
	Status    int       `json:"status,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// blockedView is why calls to a scope are rejected, or wait.
type blockedView struct {
	Rejecting bool      `json:"rejecting"` // false: calls wait
	Until     time.Time `json:"until,omitzero"`
	Reason    string    `json:"reason"`
}

type breakerView struct {
	State          string    `json:"state"`
	Calls          int       `json:"calls"`
	Failures       int       `json:"failures"`
	Opened         time.Time `json:"opened,omitzero"`
	FailedProbes   int       `json:"failed_probes,omitempty"`
	Openings       int       `json:"openings"` // of the last 5 min
	Since          time.Time `json:"since,omitzero"`
	NotBefore      time.Time `json:"not_before,omitzero"`
	SlowStartLimit float64   `json:"slow_start_limit,omitempty"`
	FailingSince   time.Time `json:"failing_since,omitzero"`
	Waiting        int       `json:"waiting,omitempty"`
}

type budgetView struct {
	Used      float64 `json:"used"`
	Remaining float64 `json:"remaining"` // -1: no limit
}

type quotaView struct {
	Bucket       string    `json:"bucket"`
	Key          string    `json:"key,omitempty"`
	Limit        int64     `json:"limit"`
	Remaining    int64     `json:"remaining"`
	Reset        time.Time `json:"reset,omitzero"`
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	UsedByOthers int64     `json:"used_by_others,omitempty"`
}

type latencyView struct {
	P50         float64 `json:"p50_seconds"`
	P95         float64 `json:"p95_seconds"`
	P99         float64 `json:"p99_seconds"`
	Samples     int     `json:"samples"`
	UsualP50    float64 `json:"usual_p50_seconds,omitempty"`
	UsualP99    float64 `json:"usual_p99_seconds,omitempty"`
	InFlightAge float64 `json:"in_flight_age_seconds,omitempty"`
	Slow        bool    `json:"slow,omitempty"`
}

type callView struct {
	Start       time.Time `json:"start"`
	Latency     float64   `json:"latency_seconds"`
	QueueWait   float64   `json:"queue_wait_seconds"`
	InFlight    float64   `json:"in_flight_seconds"`
	RetryWait   float64   `json:"retry_wait_seconds"`
	Attempts    int       `json:"attempts"`
	Status      int       `json:"status,omitempty"`
	Error       string    `json:"error,omitempty"`
	Explanation string    `json:"explanation"`
}

func newPage(title string, transports map[string]*resilienthttp.Transport, sources []sourceView, filter string) *page {
	p := &page{Version: version, Title: title, At: time.Now(), Transports: []transportView{}, Sources: sources, filter: filter}
	for _, name := range slices.Sorted(maps.Keys(transports)) {
		t := transports[name]
		if t == nil {
			continue
		}
		v := transportView{Name: name, Scopes: []scopeView{}}
		if err := t.Validate(); err != nil {
			v.Error = neterr.SafeText(err)
		}
		for _, s := range t.State().Scopes {
			if strings.Contains(s.Scope, filter) {
				v.Scopes = append(v.Scopes, newScopeView(&s, p.At))
			}
		}
		p.Transports = append(p.Transports, v)
	}
	p.Headline = newHeadline(p)
	return p
}

func newScopeView(s *resilienthttp.ScopeState, now time.Time) scopeView {
	v := scopeView{
		Scope: s.Scope, Priority: field.FormatPriority(int8(s.Priority)), Health: healthOf(s, now), InFlight: s.InFlight, Queued: s.Queued, RetryWaiting: s.RetryWaiting,
		Responses: newResponsesView(&s.Responses), LastMinute: minuteView(s.LastMinute), History: newHistoryView(s),
		Breaker: breakerView{s.Breaker.State.String(), s.Breaker.Calls, s.Breaker.Failures, s.Breaker.OpenedAt, s.Breaker.FailedProbes, s.Breaker.Openings, s.Breaker.Since, s.Breaker.NotBefore, s.Breaker.SlowStartLimit, s.Breaker.FailingSince, s.Breaker.Waiting},
		Budget:  budgetView(s.Budget),
		Latency: latencyView{
			s.Latency.P50.Seconds(), s.Latency.P95.Seconds(), s.Latency.P99.Seconds(), s.Latency.Samples,
			s.Latency.UsualP50.Seconds(), s.Latency.UsualP99.Seconds(), s.Latency.InFlightAge.Seconds(), s.Latency.Slow,
		},
		Slowest: newCallView(&s.Slowest),
		Failure: newFailureView(&s.Failure),
	}
	for _, q := range s.Quotas {
		v.Quotas = append(v.Quotas, quotaView(q))
	}
	if since := s.Responses.CallsSince; allFail(since, s.Failure.Status) {
		v.countNewest(since)
	}
	v.Blocked = blockedBy(s, now)
	v.Action = v.action(now)
	return v
}

// countNewest counts the newest calls as failures. If all fail, answers such as 404 are failures too.
func (s *scopeView) countNewest(calls int) {
	s.Responses.Failures = max(s.Responses.Failures, min(calls, s.Responses.Calls))
	s.LastMinute.Failures = max(s.LastMinute.Failures, min(calls, s.LastMinute.Calls))
	h := &s.History
	for i, n := range slices.Backward(h.Calls) {
		h.Failures[i] = max(h.Failures[i], min(calls, n))
		calls = max(calls-n, 0)
	}
}

// healthOf never returns ok while calls fail. A failed attempt counts before its call has ended.
func healthOf(s *resilienthttp.ScopeState, now time.Time) health {
	all, minute := &s.Responses, s.LastMinute
	if minute.Calls == 0 {
		minute = resilienthttp.MinuteStatus{Calls: all.Calls, Failures: all.Failures()}
	}
	recovered := all.Since.IsZero() && now.Sub(s.Failure.At) >= recoveredAfter
	failedSince := !all.Since.IsZero() && (all.Calls == 0 || !isAnswer(s.Failure.Status))
	switch {
	case s.Breaker.State != resilienthttp.StateClosed, allFail(all.CallsSince, s.Failure.Status), 2*minute.Failures > minute.Calls && !recovered:
		return healthFailing
	case s.Latency.Slow:
		return healthSlow
	case all.Failures() > 0, failedSince:
		return healthDegraded
	}
	return healthOK
}

// recoveredAfter is the time without a failed attempt after which most calls of the last minute may
// have failed.
const recoveredAfter = 15 * time.Second

// allFail reports whether so many calls in succession show that all fail. Answers such as 404 must
// be more.
func allFail(calls, status int) bool { return calls >= 20 || calls >= 5 && !isAnswer(status) }

// isAnswer reports whether a response with the status is usually a correct answer, such as 404. A
// 401 or 403 after the last success may mean that the credential has expired.
func isAnswer(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 4
}

// action returns what the Transport does about the failures; "" means nothing that can be seen.
func (s *scopeView) action(now time.Time) string {
	until := func(b *blockedView) string {
		if b.Until.IsZero() {
			return ""
		}
		return " until " + clock(b.Until) + " (" + timeUntil(b.Until, now) + ")"
	}
	switch b := s.Blocked; {
	case b != nil && s.Breaker.Waiting > 0:
		return "Calls wait for it: " + count(s.Breaker.Waiting) + ". Nothing is sent" + until(b) + "."
	case b != nil && b.Rejecting && s.Breaker.State == resilienthttp.StateOpen.String():
		return "Calls are rejected" + until(b) + ", then a probe is sent."
	case b != nil && b.Rejecting:
		return "Calls are rejected" + until(b) + "."
	case s.Breaker.State == resilienthttp.StateHalfOpen.String():
		return "The next calls are probes."
	case b != nil:
		return "Calls wait" + until(b) + "." + s.rejected()
	case s.Health == healthOK, s.Health == healthSlow:
	case s.Budget.Remaining >= 0 && s.Budget.Remaining < 1:
		return "No retries: the retry budget has less than one token."
	case s.RetryWaiting > 0:
		return plural(s.RetryWaiting, "call") + " before a retry."
	}
	return ""
}

// rejected says that not all calls wait: a call is rejected if MaxWait or its deadline is earlier.
func (s *scopeView) rejected() string {
	if s.Responses.Rejected == 0 {
		return ""
	}
	return " Rejected in the last 5 min: " + plural(s.Responses.Rejected, "call") + "."
}

func newFailureView(f *resilienthttp.FailureStatus) *failureView {
	if f.At.IsZero() {
		return nil
	}
	class := "network"
	switch {
	case f.Status != 0:
		class = strconv.Itoa(f.Status/100) + "xx"
	case f.ErrorType == "timeout":
		class = "timeout"
	}
	return &failureView{f.At, class, f.ErrorType, f.Status, failureText(f)}
}

// blockedBy returns why calls are rejected or wait, the worst reason; nil: they pass.
func blockedBy(s *resilienthttp.ScopeState, now time.Time) *blockedView {
	b := &s.Breaker
	rejecting := func(reason string) *blockedView {
		return &blockedView{Rejecting: b.Waiting == 0, Until: b.NotBefore, Reason: reason}
	}
	opened := clock(b.OpenedAt) + ", after " + ratioOf(b.Failures, b.Calls) + agree(b.Calls, " attempt", " attempts") + " failed; " +
		plural(b.FailedProbes, "probe") + " failed since."
	if f := &s.Failure; !f.At.IsZero() {
		opened += " Last failure: " + endedWith(f.Status, f.ErrorType, failureText(f)) + "."
	}
	switch {
	case b.State == resilienthttp.StateOpen:
		return rejecting("The circuit is open since " + opened)
	case b.State == resilienthttp.StateHalfOpen && b.NotBefore.After(now):
		return rejecting("The circuit is half-open: probes are in flight. It opened at " + opened)
	case b.State == resilienthttp.StateHalfOpen:
		return &blockedView{Reason: "The circuit is half-open: the next calls are probes. It opened at " + opened}
	case b.NotBefore.After(now):
		return rejecting("The circuit closes slowly after timeouts" + lastFailure(&s.Failure) + ": it limits the requests in flight.")
	}
	var blocked *blockedView
	for i := range s.Quotas {
		if q := blockedByQuota(&s.Quotas[i], s, now); q != nil && (blocked == nil || q.Until.After(blocked.Until)) {
			blocked = q
		}
	}
	if blocked == nil && s.Queued > 0 {
		blocked = &blockedView{Reason: queued(s.Queued)}
	}
	return blocked
}

func queued(n int) string { return plural(n, "call") + " in the queue." }

// blockedByQuota returns why calls wait for a quota; nil: they do not.
func blockedByQuota(q *resilienthttp.QuotaStatus, s *resilienthttp.ScopeState, now time.Time) *blockedView {
	waiting := ""
	if s.Queued > 0 {
		waiting = " " + queued(s.Queued)
	}
	switch {
	case q.Limit > 0 && q.Remaining <= 0 && q.Reset.After(now):
		until := q.Reset
		if q.BlockedUntil.After(until) {
			until = q.BlockedUntil
		}
		return &blockedView{Until: until, Reason: fmt.Sprintf("The quota%s is exhausted: 0 of %d remain.", quoted(q.Bucket), q.Limit) + usedBy(q) + waiting}
	case q.BlockedUntil.After(now):
		return &blockedView{Until: q.BlockedUntil, Reason: "The server rejects requests because of a rate limit" + lastFailure(&s.Failure) + "." + waiting}
	}
	return nil
}

// usedBy says how much of an exhausted quota other processes have used; "" means unknown.
func usedBy(q *resilienthttp.QuotaStatus) string {
	if q.UsedByOthers == 0 {
		return ""
	}
	return fmt.Sprintf(" Other processes used %s of it, or more.", grouped(q.UsedByOthers))
}

func quoted(bucket string) string {
	if bucket == "" {
		return ""
	}
	return " “" + bucket + "”"
}

func lastFailure(f *resilienthttp.FailureStatus) string {
	if f.At.IsZero() {
		return ""
	}
	return ", the last one: " + endedWith(f.Status, f.ErrorType, failureText(f))
}

// failureText returns the error, or the policies that the response names; "" means neither.
func failureText(f *resilienthttp.FailureStatus) string {
	if len(f.Policies) > 0 {
		return "violated: " + strings.Join(f.Policies, ", ")
	}
	return f.Err
}

// endedWith describes a response or an error.
func endedWith(status int, errorType, text string) string {
	switch {
	case status != 0:
		if text == "" && status < http.StatusBadRequest {
			text = errorType // of the event of a stream
		}
		if text != "" {
			text = " (" + text + ")"
		}
		return "status " + strconv.Itoa(status) + text
	case errorType == "" || errorType == neterr.Other:
		return text
	}
	return errorType + " (" + text + ")"
}

func newCallView(c *resilienthttp.CallStatus) *callView {
	if c.Start.IsZero() {
		return nil
	}
	return &callView{
		Start: c.Start, Latency: c.Latency.Seconds(), QueueWait: c.QueueWait.Seconds(), InFlight: c.InFlight.Seconds(), RetryWait: c.RetryWait.Seconds(),
		Attempts: c.Attempts, Status: c.Status, Error: c.Err, Explanation: explain(c),
	}
}

// explain says where the time of a call went, the largest part first.
func explain(c *resilienthttp.CallStatus) string {
	type part struct {
		took time.Duration
		what string
	}
	parts := []part{{c.InFlight, "for the server"}, {c.QueueWait, "in the queue"}, {c.RetryWait, "before retries"}}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.took, a.took) })
	var texts []string
	for _, p := range parts {
		if p.took >= time.Microsecond || len(texts) == 0 {
			texts = append(texts, formatSeconds(p.took.Seconds())+" "+p.what)
		}
	}
	return "It waited " + strings.Join(texts, ", ") + "."
}
