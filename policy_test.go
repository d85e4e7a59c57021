package resilienthttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// Policy.Classify overrides the verdict of the table, except for the caller's cancellation.
func TestClassify(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		says   resilienthttp.Verdict
		want   resilienthttp.Verdict
	}{
		{"default leaves it to the table", 500, resilienthttp.VerdictDefault, resilienthttp.VerdictTransient},
		{"default, success", 200, resilienthttp.VerdictDefault, resilienthttp.VerdictSuccess},
		{"success over 500", 500, resilienthttp.VerdictSuccess, resilienthttp.VerdictSuccess},
		{"permanent over 500", 500, resilienthttp.VerdictPermanent, resilienthttp.VerdictPermanent},
		{"transient over 404", 404, resilienthttp.VerdictTransient, resilienthttp.VerdictTransient},
		{"throttled over 200", 200, resilienthttp.VerdictThrottled, resilienthttp.VerdictThrottled},
		{"an invalid number", 500, resilienthttp.Verdict(99), resilienthttp.VerdictTransient},
		{"a negative number", 500, resilienthttp.Verdict(-1), resilienthttp.VerdictTransient},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(row.status), 2)
			var seen []resilienthttp.Verdict
			transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
				seen = append(seen, a.Verdict)
				require.Equal(t, row.status, a.Response.StatusCode)
				require.NotNil(t, a.Request)
				return row.says
			}
			attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			require.Equal(t, row.want, attempts[0].Verdict)
			again := row.want == resilienthttp.VerdictTransient || row.want == resilienthttp.VerdictThrottled
			require.Equal(t, again, len(attempts) == 2)
			table := resilienthttp.VerdictSuccess
			switch row.status {
			case 404:
				table = resilienthttp.VerdictPermanent
			case 500:
				table = resilienthttp.VerdictTransient
			}
			require.Equal(t, table, seen[0], "the verdict of the table")
		})
	}
	t.Run("errors", func(t *testing.T) {
		transport := bareTransport(puppet(func(*http.Request) (*http.Response, error) { return nil, io.EOF }), 2)
		transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			require.Nil(t, a.Response)
			require.ErrorIs(t, a.Err, io.EOF)
			a.StopReason = resilienthttp.ErrBreakerOpen // by mistake: it does no harm
			return resilienthttp.VerdictPermanent
		}
		resp, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.Nil(t, resp)
		require.ErrorIs(t, err, io.EOF)
		require.NotErrorIs(t, err, resilienthttp.ErrMaxAttempts)
	})
}

// The policy of one call replaces the whole policy of the Transport.
func TestWithPolicy(t *testing.T) {
	count := func(t *testing.T, transport *resilienthttp.Transport, ctx context.Context) int {
		t.Helper()
		return len(tripped(t, transport, newCall(ctx, t, http.MethodGet, "")))
	}
	type layer = func(context.Context) context.Context
	atMost := func(attempts int) layer {
		return func(ctx context.Context) context.Context {
			return resilienthttp.WithPolicy(ctx, resilienthttp.Policy{MaxAttempts: attempts, Backoff: atOnce})
		}
	}
	value := func(ctx context.Context) context.Context { return context.WithValue(ctx, timeoutError{}, 1) }
	key := func(ctx context.Context) context.Context { return resilienthttp.WithIdempotencyKey(ctx, "k") }
	single := resilienthttp.WithSingleAttempt
	for _, row := range []struct {
		name    string
		own     int     // the Transport's MaxAttempts
		context []layer // the innermost is the last
		want    int
		stop    error
	}{
		{"the Transport's", 3, nil, 3, resilienthttp.ErrMaxAttempts},
		{"the call's", 3, []layer{atMost(2)}, 2, resilienthttp.ErrMaxAttempts},
		{"zero means the default, not the Transport's", 2, []layer{atMost(0)}, 6, resilienthttp.ErrMaxAttempts},
		{"the innermost wins", 3, []layer{atMost(7), atMost(5)}, 5, resilienthttp.ErrMaxAttempts},
		{"all of it", 3, []layer{atMost(7), atMost(0)}, 6, resilienthttp.ErrMaxAttempts},
		{"through other values", 3, []layer{atMost(2), value, key}, 2, resilienthttp.ErrMaxAttempts},
		{"single attempt", 3, []layer{single}, 1, resilienthttp.ErrSingleAttempt},
		{"single attempt before a policy", 3, []layer{single, atMost(5)}, 1, resilienthttp.ErrSingleAttempt},
		{"single attempt after a policy", 3, []layer{atMost(5), single}, 1, resilienthttp.ErrSingleAttempt},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(500), row.own)
			req := newCall(t.Context(), t, http.MethodGet, "")
			for _, add := range row.context {
				req = req.WithContext(add(req.Context()))
			}
			attempts := tripped(t, transport, req)
			require.Len(t, attempts, row.want)
			for i, a := range attempts {
				require.Equal(t, i+1, a.Number)
			}
			require.Equal(t, row.stop, attempts[row.want-1].StopReason)
		})
	}
	t.Run("Classify of the policy is used", func(t *testing.T) {
		transport := bareTransport(puppetStatus(404), 2)
		transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }
		require.Equal(t, 2, count(t, transport, t.Context()))
		require.Equal(t, 1, count(t, transport, resilienthttp.WithPolicy(t.Context(), resilienthttp.Policy{})))
	})
	t.Run("contexts are not changed by their children", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 2)
		parent := atMost(3)(t.Context())
		atMost(9)(parent)
		single(parent)
		require.Equal(t, 3, count(t, transport, parent))
		require.Equal(t, 2, count(t, transport, t.Context()))
	})
}

// The texts of the types that logs and State show.
func TestStrings(t *testing.T) {
	for value, want := range map[fmt.Stringer]string{
		resilienthttp.VerdictDefault: "default", resilienthttp.VerdictSuccess: "success", resilienthttp.VerdictPermanent: "permanent",
		resilienthttp.VerdictTransient: "transient", resilienthttp.VerdictThrottled: "throttled",
		resilienthttp.Verdict(99): "unknown", resilienthttp.Verdict(-1): "unknown",
		resilienthttp.PriorityBatch: "batch", resilienthttp.PriorityDefault: "default", resilienthttp.PriorityCritical: "critical",
		resilienthttp.Priority(9): "Priority(9)",
		resilienthttp.StateClosed: "closed", resilienthttp.StateHalfOpen: "half-open", resilienthttp.StateOpen: "open",
		resilienthttp.BreakerState(7): "BreakerState(7)", resilienthttp.BreakerState(-1): "BreakerState(-1)",
	} {
		require.Equal(t, want, value.String())
	}
	require.Equal(t, resilienthttp.StateClosed, resilienthttp.BreakerState(0), "the zero state")
}

// Negative and huge durations in all fields of Policy.
func TestBadPolicies(t *testing.T) {
	const huge = time.Duration(math.MaxInt64)
	const year = 365 * 24 * time.Hour
	tests := []struct {
		name     string
		policy   resilienthttp.Policy
		steps    []step
		deadline time.Duration
		attempts int
		status   int
		took     time.Duration
	}{
		{"all negative", resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: -1, ReadTimeout: -1, MaxRetryAfter: -1}, []step{status(503)}, 0, 1, 503, 0},
		{"all huge", resilienthttp.Policy{MaxAttempts: math.MaxInt, AttemptTimeout: huge, ReadTimeout: huge, MaxRetryAfter: huge, Backoff: resilienthttp.Constant(time.Second)}, []step{status(503), status(200)}, 0, 2, 200, time.Second},
		{"all huge, with a deadline", resilienthttp.Policy{AttemptTimeout: huge, ReadTimeout: huge, MaxRetryAfter: huge, Backoff: resilienthttp.Constant(huge)}, []step{status(503)}, time.Minute, 1, 503, 0},
		{"a million attempts are a hundred", resilienthttp.Policy{MaxAttempts: 1_000_000, Backoff: resilienthttp.Constant(0)}, []step{status(503)}, 0, 100, 503, 0},
		{"Backoff says a negative wait", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return math.MinInt64 }}, []step{status(503)}, 0, 6, 503, 0},
		{"Backoff says a huge wait", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503), status(200)}, 0, 2, 200, year},
		{"Backoff and server both say huge waits", resilienthttp.Policy{MaxRetryAfter: -1, Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503, "Retry-After", "99999999999999999999"), status(200)}, 0, 2, 200, 2 * year},
		{"Backoff says a huge wait, with a deadline", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503)}, time.Hour, 1, 503, 0},
		{"Classify calls all of them transient", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }, Backoff: resilienthttp.Constant(0)}, []step{status(200)}, 0, 6, 200, 0},
		{"Classify calls all of them a success", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictSuccess }}, []step{status(500)}, 0, 1, 500, 0},
	}
	for _, tt := range tests {
		for _, perCall := range []bool{false, true} {
			bubble.Run(t, fmt.Sprintf("%s, per call %v", tt.name, perCall), func(t *testing.T) {
				base := script(tt.steps...)
				tr := &resilienthttp.Transport{Base: base, Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1}, RateLimit: &resilienthttp.RateLimit{IgnoreHeaders: true}}
				ctx := withDeadline(t, tt.deadline)
				if perCall {
					ctx = resilienthttp.WithPolicy(ctx, tt.policy)
				} else {
					tr.Policy = tt.policy
				}
				start := time.Now()
				resp := roundTrip(t, tr, get(t).WithContext(ctx))
				require.Equal(t, tt.took, time.Since(start))
				require.Equal(t, tt.status, resp.StatusCode)
				require.Len(t, base.calls(), tt.attempts)
				require.Len(t, resilienthttp.Attempts(resp), tt.attempts)
				readAll(t, resp)
				base.requireBalance(t)
			})
		}
	}
}

// An invalid policy, of SetPolicy or WithPolicy, sends nothing and changes nothing (§4.27).
func TestSetPolicy_invalid(t *testing.T) {
	for _, row := range []struct {
		name   string
		give   resilienthttp.Policy
		margin time.Duration
		want   string // "": valid
	}{
		{"zero", resilienthttp.Policy{}, 0, ""},
		{"a number without a unit", resilienthttp.Policy{AttemptTimeout: 5}, 0, "Policy.AttemptTimeout"},
		{"less than the margin of the header", resilienthttp.Policy{AttemptTimeout: time.Second}, time.Second, "DeadlineHeader.Margin"},
		{"more than the margin of the header", resilienthttp.Policy{AttemptTimeout: 2 * time.Second}, time.Second, ""},
		{"all errors", resilienthttp.Policy{ReadTimeout: 5, MaxRetryAfter: 5}, 0, "Policy.MaxRetryAfter"},
		{"errors of the policy and of the margin", resilienthttp.Policy{AttemptTimeout: 5}, time.Second, "DeadlineHeader.Margin"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := script(status(500))
			transport := bareTransport(base, 3)
			transport.DeadlineHeader.Margin = row.margin
			_, errOfCall := transport.RoundTrip(newCall(resilienthttp.WithPolicy(t.Context(), row.give), t, http.MethodGet, ""))
			sentByCall := len(base.sent)
			err := transport.SetPolicy(row.give)
			if row.want == "" {
				require.NoError(t, errOfCall)
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, errOfCall, row.want)
			require.ErrorContains(t, errOfCall, strings.ReplaceAll(err.Error(), "\n", "; "), "the same error, in a line")
			require.Zero(t, sentByCall)
			require.ErrorContains(t, err, row.want)
			require.Equal(t, resilienthttp.ErrorType(errOfCall), resilienthttp.ErrorType(err))
			require.Len(t, tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")), 3, "the policy of before")

			fresh := bareTransport(puppetStatus(200), 1)
			fresh.Policy, fresh.DeadlineHeader = row.give, transport.DeadlineHeader
			require.ErrorContains(t, fresh.Validate(), row.want, "Validate knows the same errors")
			require.Error(t, fresh.SetPolicy(resilienthttp.Policy{}), "an invalid Transport stays invalid")
		})
	}
}

// A call keeps the policy with which it began; breaker and budget keep their state (§4.27).
func TestSetPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &resilienthttp.Transport{
			Base: puppetStatus(500), Budget: tokens(100), Breaker: never(),
			Policy: resilienthttp.Policy{MaxAttempts: 3, Backoff: resilienthttp.Constant(time.Second)},
		}
		attempts := func() int { return len(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))) }
		done := make(chan int)
		go func() { done <- attempts() }()
		time.Sleep(time.Second / 2)
		require.NoError(t, transport.SetPolicy(resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce}))
		require.Equal(t, 2, attempts())
		require.Equal(t, 3, <-done)
		require.Equal(t, 3, transport.Policy.MaxAttempts, "the field is not written")

		state := transport.State()
		require.InDelta(t, 3, state.Scopes[0].Budget.Used, .1, "the tokens of both calls")
		require.Equal(t, 2, state.Policy.MaxAttempts)
		require.Equal(t, time.Minute, state.Policy.MaxRetryAfter, "with its defaults")
		_, err := json.Marshal(state)
		require.NoError(t, err)
		require.NoError(t, transport.SetPolicy(transport.State().Policy), "what State shows may be set again")
	})
}

// Calls, states and new policies at the same time (§4.21).
func TestSetPolicy_concurrent(t *testing.T) {
	transport := bareTransport(puppetStatus(500), 2)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 200 {
				assert.NoError(t, transport.SetPolicy(resilienthttp.Policy{MaxAttempts: 1 + n%3, Backoff: atOnce}))
				made := len(tripped(t, transport, newCall(t.Context(), t, http.MethodGet, "")))
				assert.True(t, 1 <= made && made <= 3)
				assert.NotZero(t, transport.State().Policy.MaxAttempts)
			}
		})
	}
	all.Wait()
}

// Validate returns all errors, without a call.
func TestValidate(t *testing.T) {
	type fields = resilienthttp.Transport
	for _, row := range []struct {
		name string
		tr   *fields
		want []string
	}{
		{"zero", &fields{}, nil},
		{"all numbers mean something", &fields{
			Policy: resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: -1}, Budget: &resilienthttp.Budget{Ratio: math.NaN()},
			Breaker: &resilienthttp.Breaker{FailureRatio: math.Inf(1)}, Hedge: &resilienthttp.Hedge{Quantile: -7},
		}, nil},
		{"names", &fields{Idempotency: resilienthttp.Idempotency{Header: "a b"}, DeadlineHeader: resilienthttp.DeadlineHeader{Name: "c:"}}, []string{
			"Idempotency.Header is not", "DeadlineHeader.Name is not",
		}},
		{"one name for two", &fields{Idempotency: resilienthttp.Idempotency{Header: "x-request-deadline"}}, []string{"are the same"}},
		{"a relative name", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "a b"}}, []string{"DeadlineHeader.Relative is not"}},
		{"a relative name that is ours", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "x-retry-owner"}}, []string{"DeadlineHeader.Relative is X-Retry-Owner"}},
		{"a relative name that is the priority's", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "x-request-priority"}}, []string{"DeadlineHeader.Relative is X-Request-Priority, which the Transport uses already"}},
		{"a key in the priority's field", &fields{Idempotency: resilienthttp.Idempotency{Header: "x-request-priority"}}, []string{"Idempotency.Header is X-Request-Priority"}},
		{"both deadlines in one field", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Name: "grpc-timeout", Relative: "Grpc-Timeout"}}, []string{"DeadlineHeader.Name and DeadlineHeader.Relative are the same"}},
		{"the absolute deadline's default name", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "x-request-deadline"}}, []string{"DeadlineHeader.Name and DeadlineHeader.Relative are the same"}},
		{"the key's name", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "idempotency-key"}}, []string{"Idempotency.Header and DeadlineHeader.Relative are the same"}},
		{"the default's name, while another one is sent", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Name: "X-Request-Timeout-Ms", Relative: "grpc-timeout"}}, []string{"X-Request-Timeout-Ms"}},
		{"a name that is ours", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Name: "x-retry-owner"}}, []string{"X-Retry-Owner"}},
		{"no method", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"PO ST"}}}, []string{"\"PO ST\" is not a method"}},
		{"nil Base of a type", &fields{Base: (*http.Transport)(nil)}, []string{"nil"}},
		{"nil Connections", &fields{Base: (*resilienthttp.Connections)(nil)}, []string{"Base is a nil *Connections"}},
		{"MaxAge in nanoseconds", &fields{Base: &resilienthttp.Connections{MaxAge: 60}}, []string{"Connections.MaxAge is 60ns"}},
		{"nil Base of our type", &fields{Base: (*fields)(nil)}, []string{"nil"}},
		{"nanoseconds", &fields{
			Policy:         resilienthttp.Policy{AttemptTimeout: 5, ReadTimeout: 30, MaxRetryAfter: 60, Stream: &resilienthttp.Stream{FirstEvent: 20}},
			DeadlineHeader: resilienthttp.DeadlineHeader{Margin: 2},
			RateLimit:      &resilienthttp.RateLimit{MaxWait: 60, MaxBlock: 3}, Hedge: &resilienthttp.Hedge{Delay: 100},
			Breaker: &resilienthttp.Breaker{Window: 10, Cooldown: 100, MaxCooldown: 200, MaxWait: 300},
		}, []string{
			"Policy.AttemptTimeout is 5ns", "Policy.ReadTimeout", "Policy.MaxRetryAfter", "Policy.Stream.FirstEvent is 20ns", "DeadlineHeader.Margin",
			"RateLimit.MaxWait", "RateLimit.MaxBlock", "Hedge.Delay", "Breaker.Window", "Breaker.Cooldown", "Breaker.MaxCooldown", "Breaker.MaxWait",
		}},
		{"the least of all may be meant", &fields{
			Policy:         resilienthttp.Policy{AttemptTimeout: 1, ReadTimeout: 1, MaxRetryAfter: 1},
			DeadlineHeader: resilienthttp.DeadlineHeader{Disabled: true, Margin: 1},
			RateLimit:      &resilienthttp.RateLimit{MaxWait: 1, MaxBlock: 1}, Hedge: &resilienthttp.Hedge{Delay: 1},
			Breaker: &resilienthttp.Breaker{Window: 1, Cooldown: 1, MaxCooldown: 1},
		}, nil},
		{"and a microsecond", &fields{Policy: resilienthttp.Policy{AttemptTimeout: time.Microsecond, ReadTimeout: time.Microsecond}}, nil},
		{"percentages", &fields{Breaker: &resilienthttp.Breaker{FailureRatio: 50}, Hedge: &resilienthttp.Hedge{Quantile: 99.9}}, []string{
			"Breaker.FailureRatio is 50", "Hedge.Quantile is 99.9",
		}},
		{"ratios of 1 or more", &fields{Breaker: &resilienthttp.Breaker{FailureRatio: 1.5}, Hedge: &resilienthttp.Hedge{Quantile: 2}}, nil},
		{"ratios above 1 without limit", &fields{Budget: &resilienthttp.Budget{Ratio: 10}, Hedge: &resilienthttp.Hedge{MaxRatio: 3}}, nil},
		{"most scopes", &fields{MaxScopes: 1_000_000}, nil},
		{"more scopes", &fields{MaxScopes: 1_000_001}, []string{"MaxScopes is 1000001, must be from 0 to 1000000"}},
		{"fewer than no scopes", &fields{MaxScopes: -1}, []string{"MaxScopes is -1, must be from 0 to 1000000"}},
		{"keys that are too long", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 35}}, []string{"Idempotency.MaxLength is 35, must be at least 36"}},
		{"keys that just fit", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 36}}, nil},
		{"short keys of one's own", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 5, NewKey: func(*http.Request) string { return "k" }}}, nil},
		{"short keys of callers", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 5, Disabled: true}}, nil},
		{"short keys, and none are made", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 5, Methods: []string{}}}, nil},
		{"no time is left", &fields{Policy: resilienthttp.Policy{AttemptTimeout: time.Second}, DeadlineHeader: resilienthttp.DeadlineHeader{Margin: time.Second}}, []string{"DeadlineHeader.Margin"}},
		{"no time is left, and no deadline is sent", &fields{
			Policy: resilienthttp.Policy{AttemptTimeout: time.Second}, DeadlineHeader: resilienthttp.DeadlineHeader{Disabled: true, Margin: time.Second},
		}, nil},
		{"hosts", &fields{Idempotency: resilienthttp.Idempotency{Hosts: []string{"https://api.test", "*.API.test", "", "*.ok.test", "ok.test:80"}, MaxLength: -1}}, []string{
			"Idempotency.Hosts has \"https://api.test\", must be a host", "Idempotency.Hosts has \"*.API.test\", must be in lower case", "Idempotency.Hosts has an empty host", "Idempotency.MaxLength",
		}},
		{"QUERY in lower case", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"query"}}}, []string{"\"query\" must be \"QUERY\""}},
		{"a method in lower case", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"post"}}}, []string{"POST"}},
		{"a method of one's own", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"Charge"}}}, nil},
		{"a header that means something else", &fields{Idempotency: resilienthttp.Idempotency{Header: "authorization"}}, []string{"Authorization"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.tr.Validate()
			if row.want == nil {
				require.NoError(t, err)
				return
			}
			for _, want := range row.want {
				require.ErrorContains(t, err, want)
			}
			require.Len(t, strings.Split(err.Error(), "\n"), len(row.want), "and no more: %v", err)
			_, got := row.tr.RoundTrip(get(t))
			require.EqualError(t, asError(t, got).Err, err.Error(), "each call returns the same error")
			require.True(t, asError(t, got).NotSent())
		})
	}
	t.Run("itself", func(t *testing.T) {
		tr := &resilienthttp.Transport{}
		tr.Base = tr
		require.ErrorContains(t, tr.Validate(), "itself")
	})
	t.Run("does not use the Transport", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(500))}
		require.NoError(t, tr.Validate())
		tr.Base = script(status(200))
		resp := roundTrip(t, tr, get(t))
		require.Equal(t, 200, resp.StatusCode)
		readAll(t, resp)
	})
}
