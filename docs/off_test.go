package docs_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// onlyRetries repeats what is safe to repeat, and does nothing else without being asked.
func onlyRetries() *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Policy:         resilienthttp.Policy{AttemptTimeout: -1},
		Idempotency:    resilienthttp.Idempotency{Disabled: true},
		DeadlineHeader: resilienthttp.DeadlineHeader{Disabled: true},
		Breaker:        &resilienthttp.Breaker{FailureRatio: -1},
		RateLimit:      &resilienthttp.RateLimit{IgnoreHeaders: true},
	}
}

// offRow is a row of the table of docs/configuration.md: what is done without being asked, and the line that switches it off.
type offRow struct {
	what, line string
	off        func(*resilienthttp.Transport)
	seen       func(*testing.T, *resilienthttp.Transport) bool
	kept       bool // onlyRetries does it too
}

// offRows switches each thing off by its line, and has a way to see it.
func offRows() []offRow {
	return []offRow{
		{
			"a key for each POST and PATCH", "Idempotency: Idempotency{Disabled: true}",
			func(tr *resilienthttp.Transport) { tr.Idempotency = resilienthttp.Idempotency{Disabled: true} },
			seesKey, false,
		},
		{
			"retries of POSTs of which the result is unknown", "Idempotency: Idempotency{Disabled: true}",
			func(tr *resilienthttp.Transport) { tr.Idempotency = resilienthttp.Idempotency{Disabled: true} },
			seesRetriedPost, false,
		},
		{
			"header fields with the deadline", "DeadlineHeader: DeadlineHeader{Disabled: true}",
			func(tr *resilienthttp.Transport) { tr.DeadlineHeader = resilienthttp.DeadlineHeader{Disabled: true} },
			seesDeadlineHeader, false,
		},
		{
			"second attempts of slow safe requests", "Policy: Policy{AttemptTimeout: -1}",
			func(tr *resilienthttp.Transport) { tr.Policy = resilienthttp.Policy{AttemptTimeout: -1} },
			seesSecondAttempt, false,
		},
		{
			"all retries", "Policy: Policy{MaxAttempts: -1}",
			func(tr *resilienthttp.Transport) { tr.Policy = resilienthttp.Policy{MaxAttempts: -1} },
			seesRetry, true,
		},
		{
			"the wait for a server that is away", "Breaker: &Breaker{MaxWait: -1}",
			func(tr *resilienthttp.Transport) { tr.Breaker = &resilienthttp.Breaker{MaxWait: -1} },
			seesHeldCall, false,
		},
		{
			"the circuit", "Breaker: &Breaker{FailureRatio: -1}",
			func(tr *resilienthttp.Transport) { tr.Breaker = &resilienthttp.Breaker{FailureRatio: -1} },
			seesOpenCircuit, false,
		},
		{
			"the limit on retries", "Budget: &Budget{Ratio: -1}",
			func(tr *resilienthttp.Transport) { tr.Budget = &resilienthttp.Budget{Ratio: -1} },
			seesEmptyBudget, true,
		},
		{
			"the wait for a server's quota", "RateLimit: &RateLimit{IgnoreHeaders: true}",
			func(tr *resilienthttp.Transport) { tr.RateLimit = &resilienthttp.RateLimit{IgnoreHeaders: true} },
			seesQuota, false,
		},
		{
			"single attempts below an SDK or a loop that retries", "OwnsRetries: true",
			func(tr *resilienthttp.Transport) { tr.OwnsRetries = true },
			seesOuterLayer, true,
		},
	}
}

// Each thing of the table is done by the zero value, and not with its line.
func TestOff(t *testing.T) {
	page, err := os.ReadFile("configuration.md")
	require.NoError(t, err)
	for _, row := range offRows() {
		bubble.Run(t, row.what, func(t *testing.T) {
			require.Contains(t, string(page), "| "+row.what+" | `"+row.line+"` |")
			require.True(t, row.seen(t, &resilienthttp.Transport{}), "by default")
			changed := &resilienthttp.Transport{}
			row.off(changed)
			require.False(t, row.seen(t, changed), row.line)
			require.Equal(t, row.kept, row.seen(t, onlyRetries()), "only retries")
		})
	}
	_, table, _ := strings.Cut(string(page), "| done without being asked |")
	table, _, _ = strings.Cut(table, "\n\n")
	require.Len(t, strings.Split(table, "\n"), len(offRows())+2, "a row of the page is not tried")
}

// get makes a GET with a deadline of 100 s, and closes the body.
func get(t *testing.T, tr *resilienthttp.Transport, path string, edit ...func(*http.Request) *http.Request) []resilienthttp.Attempt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	return attemptsOf(call(t, tr, http.MethodGet, "http://api.test"+path, "", slices.Concat([]func(*http.Request) *http.Request{with(ctx)}, edit)...))
}

func post(t *testing.T, tr *resilienthttp.Transport) []resilienthttp.Attempt {
	t.Helper()
	return attemptsOf(call(t, tr, http.MethodPost, "http://api.test/", "{}"))
}

func attemptsOf(resp *http.Response, err error) []resilienthttp.Attempt {
	var e *resilienthttp.Error
	switch {
	case resp != nil:
		return resilienthttp.Attempts(resp)
	case errors.As(err, &e):
		return e.Attempts
	}
	return nil
}

// headerOf returns the header of the request that is sent.
func headerOf(tr *resilienthttp.Transport, send func()) (h http.Header) {
	tr.Base = observed(func(req *http.Request) (*http.Response, error) {
		h = req.Header
		return (&statusOrError{status: http.StatusOK}).RoundTrip(req)
	})
	send()
	return h
}

func seesKey(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	return headerOf(tr, func() { post(t, tr) }).Get("Idempotency-Key") != ""
}

func seesDeadlineHeader(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	h := headerOf(tr, func() { get(t, tr, "/") })
	require.Equal(t, h.Get("X-Request-Deadline") == "", h.Get("X-Request-Timeout-Ms") == "")
	return h.Get("X-Request-Deadline") != ""
}

func seesRetriedPost(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	tr.Base = &statusOrError{err: syscall.ECONNRESET}
	return len(post(t, tr)) > 1
}

func seesRetry(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	tr.Base = &statusOrError{status: http.StatusServiceUnavailable}
	return len(get(t, tr, "/")) > 1
}

func seesSecondAttempt(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	var sent atomic.Int64
	tr.Base = observed(func(req *http.Request) (*http.Response, error) {
		sent.Add(1)
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
	get(t, tr, "/")
	return sent.Load() > 1
}

// opened lets 30 calls fail, so that the circuit opens if there is one.
func opened(t *testing.T, tr *resilienthttp.Transport) *resilienthttp.Transport {
	t.Helper()
	tr.Base = &statusOrError{status: http.StatusServiceUnavailable}
	for range 30 {
		get(t, tr, "/", func(r *http.Request) *http.Request {
			return r.WithContext(resilienthttp.WithSingleAttempt(r.Context()))
		})
	}
	return tr
}

func seesOpenCircuit(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	return opened(t, tr).State().Scopes[0].Breaker.State != resilienthttp.StateClosed
}

func seesHeldCall(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	for _, a := range get(t, opened(t, tr), "/") {
		if a.Held {
			return true
		}
	}
	return false
}

// seesEmptyBudget makes calls of which each second one fails.
func seesEmptyBudget(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	tr.Base = observed(func(req *http.Request) (*http.Response, error) {
		status := http.StatusOK
		if req.URL.Path == "/fails" {
			status = http.StatusInternalServerError
		}
		return (&statusOrError{status: status}).RoundTrip(req)
	})
	for range 50 {
		get(t, tr, "/")
		attempts := get(t, tr, "/fails")
		if attempts[len(attempts)-1].StopReason == resilienthttp.ErrBudgetExhausted {
			return true
		}
	}
	return false
}

func seesQuota(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	tr.Base = observed(func(req *http.Request) (*http.Response, error) {
		resp, err := (&statusOrError{status: http.StatusOK}).RoundTrip(req)
		resp.Header.Set("RateLimit", `"default";r=0;t=20`)
		resp.Header.Set("RateLimit-Policy", `"default";q=1;w=20`)
		return resp, err
	})
	get(t, tr, "/")
	begun := time.Now()
	get(t, tr, "/")
	return time.Since(begun) > time.Second
}

func seesOuterLayer(t *testing.T, tr *resilienthttp.Transport) bool {
	t.Helper()
	tr.Base = &statusOrError{status: http.StatusServiceUnavailable}
	return len(get(t, tr, "/", func(r *http.Request) *http.Request {
		r.Header.Set("X-Stainless-Retry-Count", "1")
		return r
	})) == 1
}
