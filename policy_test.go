package resilienthttp_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// A StopReason that Classify sets by mistake does no harm.
func TestClassify_setsStopReason(t *testing.T) {
	tr := &resilienthttp.Transport{Base: script(failing(errReset))}
	tr.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
		a.StopReason = resilienthttp.ErrBreakerOpen
		return resilienthttp.VerdictPermanent
	}
	resp, err := tr.RoundTrip(get(t))
	require.Nil(t, resp)
	require.ErrorIs(t, err, errReset)
}

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
			return resilienthttp.VerdictPermanent
		}
		_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.ErrorIs(t, err, io.EOF)
		require.NotErrorIs(t, err, resilienthttp.ErrMaxAttempts)
	})
	t.Run("§4.8 does not make a POST repeatable", func(t *testing.T) {
		transport := bareTransport(puppetStatus(404), 2)
		transport.Idempotency.Disabled = true
		transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }
		attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodPost, "body"))
		require.Len(t, attempts, 1)
		require.Equal(t, resilienthttp.ErrNotIdempotent, attempts[0].StopReason)
	})
}

// The policy of one call replaces the whole policy of the Transport.
func TestWithPolicy(t *testing.T) {
	count := func(t *testing.T, transport *resilienthttp.Transport, ctx context.Context) int {
		t.Helper()
		return len(tripped(t, transport, newCall(ctx, t, http.MethodGet, "")))
	}
	give := resilienthttp.WithPolicy
	for _, row := range []struct {
		name    string
		own     int // the Transport's MaxAttempts
		context func(context.Context) context.Context
		want    int
		stop    error
	}{
		{"the Transport's", 3, func(ctx context.Context) context.Context { return ctx }, 3, resilienthttp.ErrMaxAttempts},
		{"the call's", 3, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce})
		}, 2, resilienthttp.ErrMaxAttempts},
		{"zero means the default, not the Transport's", 2, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{Backoff: atOnce})
		}, 6, resilienthttp.ErrMaxAttempts},
		{"the innermost wins", 3, func(ctx context.Context) context.Context {
			ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 7, Backoff: atOnce})
			return give(ctx, resilienthttp.Policy{MaxAttempts: 5, Backoff: atOnce})
		}, 5, resilienthttp.ErrMaxAttempts},
		{"all of it", 3, func(ctx context.Context) context.Context {
			ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 7, Backoff: atOnce})
			return give(ctx, resilienthttp.Policy{Backoff: atOnce})
		}, 6, resilienthttp.ErrMaxAttempts},
		{"through other values", 3, func(ctx context.Context) context.Context {
			ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 2, Backoff: atOnce})
			ctx = context.WithValue(ctx, timeoutError{}, 1)
			return resilienthttp.WithIdempotencyKey(ctx, "k")
		}, 2, resilienthttp.ErrMaxAttempts},
		{"negative: never", 3, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{MaxAttempts: -1})
		}, 1, resilienthttp.ErrMaxAttempts},
		{"a million is a hundred", 3, func(ctx context.Context) context.Context {
			return give(ctx, resilienthttp.Policy{MaxAttempts: 1e6, Backoff: atOnce})
		}, 100, resilienthttp.ErrMaxAttempts},
		{"single attempt", 3, resilienthttp.WithSingleAttempt, 1, resilienthttp.ErrSingleAttempt},
		{"single attempt before a policy", 3, func(ctx context.Context) context.Context {
			return give(resilienthttp.WithSingleAttempt(ctx), resilienthttp.Policy{MaxAttempts: 5, Backoff: atOnce})
		}, 1, resilienthttp.ErrSingleAttempt},
		{"single attempt after a policy", 3, func(ctx context.Context) context.Context {
			return resilienthttp.WithSingleAttempt(give(ctx, resilienthttp.Policy{MaxAttempts: 5, Backoff: atOnce}))
		}, 1, resilienthttp.ErrSingleAttempt},
	} {
		t.Run(row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(500), row.own)
			attempts := tripped(t, transport, newCall(row.context(t.Context()), t, http.MethodGet, ""))
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
		require.Equal(t, 1, count(t, transport, give(t.Context(), resilienthttp.Policy{})))
	})
	t.Run("contexts are not changed by their children", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 2)
		parent := give(t.Context(), resilienthttp.Policy{MaxAttempts: 3, Backoff: atOnce})
		give(parent, resilienthttp.Policy{MaxAttempts: 9, Backoff: atOnce})
		resilienthttp.WithSingleAttempt(parent)
		require.Equal(t, 3, count(t, transport, parent))
		require.Equal(t, 2, count(t, transport, t.Context()))
	})
	bubble.Run(t, "attempt timeout", func(t *testing.T) {
		transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}), 1)
		for _, row := range []struct {
			timeout time.Duration
			call    time.Duration
			want    time.Duration
		}{
			{0, time.Hour, time.Hour},
			{time.Second, time.Hour, time.Second},
			{-1, time.Hour, time.Hour},
			{time.Second, time.Millisecond, time.Millisecond},
			{1<<63 - 1, time.Hour, time.Hour},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), row.call)
			ctx = give(ctx, resilienthttp.Policy{MaxAttempts: 1, AttemptTimeout: row.timeout})
			attempts := tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
			require.Equal(t, row.want, attempts[0].Latency)
			cancel()
		}
	})
	bubble.Run(t, "Backoff gets the number and its last result", func(t *testing.T) {
		var asked []string
		ctx := give(t.Context(), resilienthttp.Policy{MaxAttempts: 4, Backoff: func(retry int, prev time.Duration) time.Duration {
			asked = append(asked, fmt.Sprint(retry, " ", prev))
			return time.Duration(retry) * time.Second
		}})
		attempts := tripped(t, bareTransport(puppetStatus(500), 1), newCall(ctx, t, http.MethodGet, ""))
		require.Equal(t, []string{"1 0s", "2 1s", "3 2s"}, asked)
		require.Equal(t, time.Second, attempts[0].RetryWait)
		require.Equal(t, 2*time.Second, attempts[1].RetryWait)
		require.Equal(t, 3*time.Second, attempts[2].RetryWait)
		require.Zero(t, attempts[3].RetryWait)
	})
	t.Run("a negative Backoff is none", func(t *testing.T) {
		ctx := give(t.Context(), resilienthttp.Policy{MaxAttempts: 3, Backoff: func(int, time.Duration) time.Duration { return -time.Hour }})
		require.Equal(t, 3, count(t, bareTransport(puppetStatus(500), 1), ctx))
	})
}

func TestVerdictString(t *testing.T) {
	for verdict, want := range map[resilienthttp.Verdict]string{
		resilienthttp.VerdictDefault: "default", resilienthttp.VerdictSuccess: "success", resilienthttp.VerdictPermanent: "permanent",
		resilienthttp.VerdictTransient: "transient", resilienthttp.VerdictThrottled: "throttled", 99: "unknown", -1: "unknown",
	} {
		require.Equal(t, want, verdict.String())
	}
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
		{"all as negative as can be", resilienthttp.Policy{MaxAttempts: math.MinInt, AttemptTimeout: math.MinInt64, ReadTimeout: math.MinInt64, MaxRetryAfter: math.MinInt64}, []step{status(503)}, 0, 1, 503, 0},
		{"all huge", resilienthttp.Policy{MaxAttempts: math.MaxInt, AttemptTimeout: huge, ReadTimeout: huge, MaxRetryAfter: huge, Backoff: resilienthttp.Constant(time.Second)}, []step{status(503), status(200)}, 0, 2, 200, time.Second},
		{"all huge, with a deadline", resilienthttp.Policy{AttemptTimeout: huge, ReadTimeout: huge, MaxRetryAfter: huge, Backoff: resilienthttp.Constant(huge)}, []step{status(503)}, time.Minute, 1, 503, 0},
		{"a million attempts are a hundred", resilienthttp.Policy{MaxAttempts: 1_000_000, Backoff: resilienthttp.Constant(0)}, []step{status(503)}, 0, 100, 503, 0},
		{"a hundred attempts", resilienthttp.Policy{MaxAttempts: 100, Backoff: resilienthttp.Constant(0)}, []step{status(503)}, 0, 100, 503, 0},
		{"one attempt", resilienthttp.Policy{MaxAttempts: 1}, []step{status(503)}, 0, 1, 503, 0},
		{"Backoff says a negative wait", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return math.MinInt64 }}, []step{status(503)}, 0, 6, 503, 0},
		{"Backoff says a huge wait", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503), status(200)}, 0, 2, 200, year},
		{"Backoff and server both say huge waits", resilienthttp.Policy{MaxRetryAfter: -1, Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503, "Retry-After", "99999999999999999999"), status(200)}, 0, 2, 200, 2 * year},
		{"Backoff says a huge wait, with a deadline", resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { return huge }}, []step{status(503)}, time.Hour, 1, 503, 0},
		{"a nanosecond for all", resilienthttp.Policy{AttemptTimeout: 1, ReadTimeout: 1, MaxRetryAfter: 1, Backoff: resilienthttp.Constant(1)}, []step{status(503), status(200)}, 0, 2, 200, 1},
		{"Classify says nonsense", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return 99 }, Backoff: resilienthttp.Constant(0)}, []step{status(503)}, 0, 6, 503, 0},
		{"Classify says negative nonsense", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return -1 }}, []step{status(404)}, 0, 1, 404, 0},
		{"Classify calls all of them transient", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictTransient }, Backoff: resilienthttp.Constant(0)}, []step{status(200)}, 0, 6, 200, 0},
		{"Classify calls all of them a success", resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictSuccess }}, []step{status(500)}, 0, 1, 500, 0},
	}
	for _, tt := range tests {
		for _, perCall := range []bool{false, true} {
			bubble.Run(t, fmt.Sprintf("%s, per call %v", tt.name, perCall), func(t *testing.T) {
				base := script(tt.steps...)
				tr := &resilienthttp.Transport{Base: base, Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1}, RateLimit: &resilienthttp.RateLimit{IgnoreHeaders: true}}
				ctx := t.Context()
				if tt.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
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
