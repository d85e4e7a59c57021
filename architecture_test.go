package resilienthttp_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

// architectureCase is a call of docs/maintainers/architecture.md: what happens to it, and the function that decides.
type architectureCase struct {
	name, why string
	request   func(t *testing.T) *http.Request
	transport *resilienthttp.Transport
	answers   []step

	requests int
	result   string // a status, or the text of the error
	reason   error  // Attempt.StopReason of the last attempt, or Error.Reason
}

// architectureCases has an example of each kind of decision: what came back, the three questions of a plan, the paces, the gates
// and the copies.
func architectureCases() []architectureCase {
	const soon, later = time.Second, time.Minute
	usual := func() *resilienthttp.Transport { return &resilienthttp.Transport{} }
	get := func(deadline time.Duration) func(t *testing.T) *http.Request {
		return func(t *testing.T) *http.Request { return newCall(withDeadline(t, deadline), t, http.MethodGet, "") }
	}
	post := func(t *testing.T) *http.Request { return newCall(withDeadline(t, later), t, http.MethodPost, "pay") }
	hedged := func() *resilienthttp.Transport {
		return &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: 10 * time.Millisecond}}
	}
	return []architectureCase{
		{
			"a POST without a key gets a 503 with `Retry-After: 2`", "the work is in doubt: `harmless`",
			post, withoutKeys(usual()), []step{status(503, "Retry-After", "2"), status(201)}, 1, "503", resilienthttp.ErrNotIdempotent,
		},
		{
			"the same POST gets a 429", "a 429 proves that nothing was executed: `harmless`",
			post, withoutKeys(usual()), []step{status(429, "Retry-After", "2"), status(201)}, 2, "201", nil,
		},
		{
			"a GET with a second to spare gets a 503 with `Retry-After: 2`", "the retry would be too late: `isTooLate`",
			get(soon), usual(), []step{status(503, "Retry-After", "2"), status(200)}, 1, "503", resilienthttp.ErrDeadline,
		},
		{
			"a GET gets a 409", "permanent in the table: `Of`",
			get(later), usual(), []step{status(409), status(200)}, 1, "409", nil,
		},
		{
			"a GET to a host that has never answered and is unknown to DNS", "permanent in the table, as a wrong name is no outage: `cameWith`",
			get(later), usual(), []step{failing(&net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}), status(200)}, 1, "error", nil,
		},
		{
			"a GET times out, the budget is empty, and no other retry after a timeout is in flight", "nothing can bring its tokens back: `pay`, `MayAwait`",
			get(later), &resilienthttp.Transport{
				Policy: resilienthttp.Policy{AttemptTimeout: soon}, Budget: &resilienthttp.Budget{Ratio: 1e-9, Burst: -1}, Breaker: never(),
			}, []step{hanging, status(200)}, 1, "error", resilienthttp.ErrBudgetExhausted,
		},
		{
			"a POST with its key times out, and its retry gets a 409", "the server is at work on the first attempt, so the tokens return: `exchangeRetry`",
			post, &resilienthttp.Transport{Policy: resilienthttp.Policy{AttemptTimeout: soon}}, []step{hanging, status(409), status(201)}, 3, "201", nil,
		},
		{
			"a GET with `MaxAttempts: 2` and an empty budget gets three 429s with `Retry-After: 5`", "the limit paces the call: `isAsked`, `paceTurn`",
			get(time.Minute), &resilienthttp.Transport{
				Policy: resilienthttp.Policy{MaxAttempts: 2}, Budget: &resilienthttp.Budget{Ratio: 1e-9, Burst: -1},
			}, []step{status(429, "Retry-After", "5"), status(429, "Retry-After", "5"), status(429, "Retry-After", "5"), status(200)}, 4, "200", nil,
		},
		{
			"a GET at a `Breaker` with `MaxWait: -1` that opens at the failure", "the circuit would reject the retry: `isRejected`",
			get(later), &resilienthttp.Transport{Breaker: nervous(later)}, []step{status(500), status(200)}, 1, "500", resilienthttp.ErrBreakerOpen,
		},
		{
			"a GET at a server that is away for the first five attempts", "the circuit holds the call and sends it as a probe: `choosePace`, `waitForCircuit`",
			get(later), &resilienthttp.Transport{Breaker: &resilienthttp.Breaker{FailureRatio: .01, MinRequests: 1}},
			[]step{refused, refused, refused, refused, refused, status(200)}, 6, "200", nil,
		},
		{
			"the hedge of a GET gets a 409, the first attempt would get a 200", "the first final response wins: `hasFinalResponse`, `mayWin`",
			get(later), hedged(), []step{after(soon, status(200)), status(409)}, 2, "409", nil,
		},
		{
			"the same with a POST and its key", "a 409 is no result while the server may be at work on the first attempt: `mayBeAtWork`, and `mayWin` too",
			post, hedged(), []step{after(soon, status(201)), status(409)}, 2, "201", nil,
		},
		{
			"the same, but the hedge gets a 422", "the server may reject the second of two, so the first is awaited: `mayWin`",
			post, hedged(), []step{after(soon, status(201)), status(422)}, 2, "201", nil,
		},
	}
}

// The cases of the page are what the code does.
func TestArchitecturePage(t *testing.T) {
	table := &strings.Builder{}
	table.WriteString("| case | requests | result | reason | because |\n|---|--:|---|---|---|\n")
	for _, c := range architectureCases() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script(c.answers...)
				c.transport.Base = base
				result, reason := c.outcome(t)
				require.Equal(t, c.result, result)
				require.Equal(t, c.reason, reason)
				require.Len(t, base.calls(), c.requests)
			})
		})
		reason := ""
		if c.reason != nil {
			reason = "`" + nameOf(c.reason) + "`"
		}
		fmt.Fprintf(table, "| %s | %d | %s | %s | %s |\n", c.name, c.requests, c.result, reason, c.why)
	}
	doctable.Overview(t, "docs/maintainers/architecture.md", "cases", table.String())
}

// outcome makes the call, and returns its result and why it ended.
func (c architectureCase) outcome(t *testing.T) (result string, reason error) {
	resp, err := c.transport.RoundTrip(c.request(t))
	if err != nil {
		attempts := asError(t, err).Attempts
		return "error", attempts[len(attempts)-1].StopReason
	}
	reason = lastOf(t, resp).StopReason
	require.NoError(t, resp.Body.Close())
	return fmt.Sprint(resp.StatusCode), reason
}

// nameOf returns the name of a reason of the cases.
func nameOf(reason error) string {
	for name, known := range map[string]error{
		"ErrNotIdempotent": resilienthttp.ErrNotIdempotent, "ErrDeadline": resilienthttp.ErrDeadline,
		"ErrBudgetExhausted": resilienthttp.ErrBudgetExhausted, "ErrBreakerOpen": resilienthttp.ErrBreakerOpen,
	} {
		if errors.Is(reason, known) {
			return name
		}
	}
	return reason.Error()
}
