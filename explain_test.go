package resilienthttp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// T18: the transcript has one line for each attempt, wait and decision, and no part of the request.
// Explain, Call.Explain and the record of LogTrace are the same text.
func TestExplain(t *testing.T) {
	took := func(next step) step { return after(10*time.Millisecond, next) }
	tests := []struct {
		name   string
		method string // "": GET
		steps  []step
		setup  func(*resilienthttp.Transport)
		ctx    func(context.Context) context.Context
		calls  int // 0: 1; the last one is explained
		want   string
	}{
		{
			name: "success: one line for the attempt", steps: []step{took(status(200))},
			want: `
GET to api.test: 200, 1 attempt, 10ms
at  event      took  result
0s  attempt 1  10ms  200, success`,
		},
		{
			name: "retries: a line for each wait, with the server's", steps: []step{
				took(status(503, "Retry-After", "2")), took(failing(syscall.ECONNRESET)), took(status(200)),
			},
			want: `
GET to api.test: 200, 3 attempts, 4.03s
at     event      took  result
0s     attempt 1  10ms  503, throttled, server asks to wait 2s
10ms   wait       3s    backoff before the retry, at least 2s
3.01s  attempt 2  10ms  connection_reset (connection reset by peer), transient
3.02s  wait       1s    backoff before the retry
4.02s  attempt 3  10ms  200, success`,
		},
		{
			name: "permanent: the verdict is the decision", steps: []step{took(status(404))},
			want: `
GET to api.test: 404, 1 attempt, 10ms
at  event      took  result
0s  attempt 1  10ms  404, permanent`,
		},
		{
			name: "no key: the reason for no retry", method: http.MethodPost, steps: []step{took(status(500))},
			want: `
POST to api.test: 500, 1 attempt, 10ms
at    event      took  result
0s    attempt 1  10ms  500, transient
10ms  no retry         request is not idempotent`,
		},
		{
			name: "long Retry-After: the time of the next call", steps: []step{took(status(503, "Retry-After", "3600"))},
			want: `
GET to api.test: 503, 1 attempt, 10ms
at    event      took  result
0s    attempt 1  10ms  503, throttled, server asks to wait 1h0m0s
10ms  no retry         server asks to wait longer than allowed, next call in 1h0m0s`,
		},
		{
			name: "open circuit: nothing sent", steps: []step{took(status(500))}, calls: 2,
			setup: func(tr *resilienthttp.Transport) {
				tr.Breaker, tr.Policy.MaxAttempts = &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 1, Static: true, Cooldown: time.Minute}, 1
			},
			want: `
GET to api.test: circuit breaker is open, nothing sent, 0s
at  event     result
0s  rejected  circuit breaker is open, next call in about 1m`,
		},
		{
			name: "circuit opens during the wait: the wait, and the response", steps: []step{took(status(500))},
			setup: func(tr *resilienthttp.Transport) {
				tr.Breaker = &resilienthttp.Breaker{FailureRatio: 0.01, MinRequests: 2, Static: true, Cooldown: time.Minute}
				tr.Trace = &resilienthttp.Trace{RetryWait: func(*resilienthttp.Attempt) {
					other := get(t)
					go func() {
						_ = discard(tr, other.WithContext(resilienthttp.WithSingleAttempt(other.Context())))
					}()
				}}
			},
			want: `
GET to api.test: 500, 1 attempt, 1.01s
at     event      took  result
0s     attempt 1  10ms  500, transient
10ms   wait       1s    for a retry that was not sent
1.01s  no retry         circuit breaker is open, next call in about 1m`,
		},
		{
			name: "fixed limit: the wait for a permit", steps: []step{took(status(200))}, calls: 2,
			setup: func(tr *resilienthttp.Transport) { tr.RateLimit.Limit, tr.RateLimit.Burst = rate.Limit(1), 1 },
			want: `
GET to api.test: 200, 1 attempt, 1s
at     event      took   result
0s     queue      990ms  wait for the rate limit
990ms  attempt 1  10ms   200, success`,
		},
		{
			name: "fixed limit without a wait: rejected", steps: []step{took(status(200))}, calls: 2,
			setup: func(tr *resilienthttp.Transport) {
				tr.RateLimit.Limit, tr.RateLimit.Burst, tr.RateLimit.MaxWait = rate.Limit(1), 1, -1
			},
			want: `
GET to api.test: rate limited, nothing sent, 0s
at  event     result
0s  rejected  rate limited, next call in 990ms`,
		},
		{
			name: "hedge: the loser is canceled", steps: []step{after(5*time.Second, status(200)), took(status(200))},
			setup: func(tr *resilienthttp.Transport) {
				tr.Hedge = &resilienthttp.Hedge{Delay: time.Second, MaxRatio: 1}
			},
			want: `
GET to api.test: 200, 1 attempt, 1 hedge, 1.01s
at  event               took   result
0s  attempt 1           1.01s  canceled: another attempt had its response first
1s  hedge of attempt 1  10ms   200, success`,
		},
		{
			name: "canceled during a wait: the wait, and its end", steps: []step{took(status(500))},
			ctx: func(ctx context.Context) context.Context { return canceledAfter(ctx, 500*time.Millisecond) },
			want: `
GET to api.test: context canceled, 1 attempt, 500ms
at     event      took   result
0s     attempt 1  10ms   500, transient
10ms   wait       490ms  for a retry that was not sent
500ms  end               canceled (context canceled)`,
		},
		{
			name: "error of an unknown type: its text is hidden", steps: []step{took(failing(errors.New(secret)))},
			setup: func(tr *resilienthttp.Transport) { tr.Policy.MaxAttempts = 1 },
			want: `
GET to api.test: no retries left: *errors.errorString (not shown), 1 attempt, 10ms
at    event      took  result
0s    attempt 1  10ms  _OTHER (*errors.errorString (not shown)), transient
10ms  no retry         no retries left`,
		},
	}
	for _, test := range tests {
		bubble.Run(t, test.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{
				Base: script(test.steps...), Policy: every(time.Second), Breaker: never(), RateLimit: &resilienthttp.RateLimit{},
				Idempotency: resilienthttp.Idempotency{Disabled: true},
			}
			tr.Policy.Backoff = func(_ int, _ time.Duration) time.Duration { return time.Second }
			if test.setup != nil {
				test.setup(tr)
			}
			if tr.RateLimit.Limit == 0 && tr.Hedge == nil {
				tr.RateLimit.IgnoreHeaders = true // the jitter of a Retry-After is random
			}
			var reported string
			var log strings.Builder
			hooks := resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			for range max(test.calls, 1) {
				log.Reset()
				ctx := applied(resilienthttp.WithTrace(t.Context(), hooks), test.ctx)
				ctx = resilienthttp.WithTrace(ctx, &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { reported = c.Explain() }})
				req := newRequest(t, "GET", "http://api.test/things?token="+secret, "")
				req.Method = test.method
				req.Header.Set("Authorization", secret)
				resp, err := (&http.Client{Transport: tr}).Do(req.WithContext(ctx))
				got := resilienthttp.Explain(resp, err)
				if resp != nil {
					require.NoError(t, resp.Body.Close())
				}
				synctest.Wait()
				require.Equal(t, got, resilienthttp.Explain(resp, err), "after Close too")
				require.Equal(t, got, reported)
				require.NotContains(t, got, secret)
				require.NotContains(t, got, "things")
				reported = got
			}
			title, rows, _ := strings.Cut(reported, "\n")
			title, began, found := strings.Cut(title, ", began 2000-01-01 ")
			require.True(t, found, reported)
			require.Regexp(t, `^00:00:[0-9.]{6}(?:, deadline .*)?$`, began)
			require.Equal(t, strings.TrimPrefix(test.want, "\n"), aMinute.ReplaceAllString(title+"\n"+rows, "about 1m"))
			_, record, failed := strings.Cut(log.String(), "event=call_failed")
			var quoted strings.Builder
			slog.New(slog.NewTextHandler(&quoted, nil)).Info("", slog.String("transcript", reported))
			_, want, _ := strings.Cut(quoted.String(), "transcript=")
			require.Equal(t, failed, strings.HasSuffix(record, "transcript="+want), log.String())
		})
	}
}

// aMinute is the rest of a cooldown of a minute. Its jitter is random.
var aMinute = regexp.MustCompile(`(?:59[0-9.]*s|1m[0-9.]+s)$`)

// What does not come from a Transport is explained in one line, and a call that did not begin.
func TestExplain_withoutCall(t *testing.T) {
	other := &http.Response{StatusCode: http.StatusOK, Request: get(t)}
	for name, row := range map[string]struct {
		resp *http.Response
		err  error
		want string
	}{
		"nothing":               {nil, nil, "no call: response and error are nil"},
		"response of another":   {other, nil, "no call: no Transport returned this response or error"},
		"response of no one":    {&http.Response{}, nil, "no call: no Transport returned this response or error"},
		"error of another":      {nil, io.EOF, "no call: no Transport returned this response or error"},
		"error of a program":    {nil, &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen}, "call: circuit breaker is open, nothing sent, 0s"},
		"a Call of a program's": {nil, nil, "call: no result, nothing sent, 0s"},
	} {
		got := resilienthttp.Explain(row.resp, row.err)
		if strings.HasPrefix(name, "a Call") {
			got = new(resilienthttp.Call).Explain()
		}
		require.Equal(t, row.want, strings.SplitN(got, "\n", 2)[0], name)
	}
	_, err := (&resilienthttp.Transport{}).RoundTrip(&http.Request{})
	require.Equal(t, "call: invalid request: nil Request.URL, nothing sent, 0s\nat  event  result\n0s  end    _OTHER (invalid request: nil Request.URL)",
		resilienthttp.Explain(nil, err), "a call that did not begin")
}

// The times of a Call or an Error that a program has made begin with the first attempt.
func TestExplain_madeByAProgram(t *testing.T) {
	attempts := []resilienthttp.Attempt{{Request: get(t), Number: 1, Start: time.Date(2026, 7, 28, 9, 0, 0, 0, time.UTC), Latency: time.Second, Err: io.EOF}}
	for _, got := range []string{
		resilienthttp.Explain(nil, &resilienthttp.Error{Err: io.EOF, Attempts: attempts}),
		(&resilienthttp.Call{Err: io.EOF, Attempts: attempts}).Explain(),
	} {
		lines := strings.Split(got, "\n")
		require.Contains(t, lines[0], "began 2026-07-28 09:00:00.000")
		require.Regexp(t, `^0s +attempt 1 +1s `, lines[2])
	}
}

// Explain does not read the body, and knows the error of a body.
func TestExplain_body(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked, writer := io.Pipe()
		t.Cleanup(func() { _ = writer.Close() })
		tr := &resilienthttp.Transport{Base: script(withBody(200, blocked)), Policy: resilienthttp.Policy{ReadTimeout: time.Second}}
		resp := roundTrip(t, tr, get(t))
		before := resilienthttp.Explain(resp, nil)
		require.NotContains(t, before, "later")
		_, err := resp.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, resilienthttp.ErrReadTimeout)
		want := "later             read_timeout (response body timed out)"
		require.Contains(t, strings.Join(strings.Fields(resilienthttp.Explain(resp, err)), " "), strings.Join(strings.Fields(want), " "))
		require.Equal(t, resilienthttp.Explain(nil, err), resilienthttp.Explain(resp, err))
		require.NoError(t, resp.Body.Close())
	})
}

// T18: Explain is safe while a hedge that has lost is in flight, and in the hooks of a call.
func TestExplain_duringHedge(t *testing.T) {
	base := puppet(func(req *http.Request) (*http.Response, error) {
		if _, hedge := resilienthttp.AttemptNumber(req.Context()); hedge {
			return hanging(req)
		}
		return after(time.Millisecond, status(200))(req) // the hedge is in flight
	})
	tr := hedging(base, 2, &resilienthttp.Hedge{Delay: time.Microsecond, MaxRatio: 1})
	tr.Trace = &resilienthttp.Trace{AttemptDone: func(a *resilienthttp.Attempt) {
		if a.Response != nil {
			_ = resilienthttp.Explain(a.Response, nil)
		}
	}}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				resp, err := tr.RoundTrip(get(t))
				if err != nil {
					t.Error(err)
					return
				}
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() { _ = resilienthttp.Explain(resp, nil) })
				}
				_ = resp.Body.Close()
				both.Wait()
			}
		})
	}
	group.Wait()
}

// The first line has the start of the call and its deadline, so that a log can be searched. The rows
// say which quota a call waited for.
func TestExplain_quotaAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exhausted := status(200, "X-RateLimit-Limit", "300", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30")
		tr := &resilienthttp.Transport{Base: script(exhausted), Idempotency: resilienthttp.Idempotency{Disabled: true}}
		var log strings.Builder
		tr.Trace = resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, nil)))
		answered(t, tr)
		ctx := withDeadline(t, 10*time.Second)
		resp, err := tr.RoundTrip(get(t).WithContext(ctx))
		require.Nil(t, resp)
		require.EqualError(t, err, "resilienthttp: deadline of the call leaves no time: quota exhausted (0 of 300 until 00:00:30); not before 2000-01-01T00:00:30.034Z")
		require.Contains(t, resilienthttp.Explain(resp, err), "nothing sent, 0s, began 2000-01-01 00:00:00.000, deadline 00:00:10.000 (after 10s)\n")
		require.Contains(t, log.String(), "quota_limit=300 quota_remaining=0 quota_until=2000-01-01T00:00:30.000Z")
		resp, err = tr.RoundTrip(get(t))
		require.Contains(t, resilienthttp.Explain(resp, err), "0s   queue      30s   wait for the rate limit: quota exhausted (0 of 300 until 00:00:30)\n")
		readAll(t, resp)
	})
}
