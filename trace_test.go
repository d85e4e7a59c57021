package resilienthttp_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// minutes records which hooks ran, in order.
type minutes struct {
	mu    sync.Mutex
	lines []string
}

func (m *minutes) addf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, fmt.Sprintf(format, args...))
}

func (m *minutes) read() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines)
}

// trace has every hook add a line with the name.
func (m *minutes) trace(name string) *resilienthttp.Trace {
	return &resilienthttp.Trace{
		AttemptStart: func(a *resilienthttp.Attempt) { m.addf("%s start %s", name, attemptName(a)) },
		AttemptDone:  func(a *resilienthttp.Attempt) { m.addf("%s done %s %v", name, attemptName(a), a.Verdict) },
		QueueWait:    func(a *resilienthttp.Attempt) { m.addf("%s queued %s %v", name, attemptName(a), a.RetryWait) },
		RetryWait:    func(a *resilienthttp.Attempt) { m.addf("%s wait %s %v", name, attemptName(a), a.RetryWait) },
		Rejected:     func(c *resilienthttp.Call) { m.addf("%s refused %d", name, len(c.Attempts)) },
		CallDone:     func(c *resilienthttp.Call) { m.addf("%s call %d", name, len(c.Attempts)) },
		BreakerChange: func(c resilienthttp.BreakerChange) {
			m.addf("%s breaker %s %v-%v", name, c.Scope, c.From, c.To)
		},
	}
}

func attemptName(a *resilienthttp.Attempt) string {
	if a.Hedge {
		return fmt.Sprintf("%dh", a.Number)
	}
	return fmt.Sprint(a.Number)
}

// The Transport's hooks run before those of the context, and those of an outer context before an
// inner one's.
func TestTraceOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m minutes
		transport := bareTransport(onceThen(503), 3)
		transport.Policy.Backoff = func(int, time.Duration) time.Duration { return time.Second }
		transport.Trace = m.trace("T")
		ctx := resilienthttp.WithTrace(t.Context(), m.trace("outer"))
		ctx = resilienthttp.WithTrace(ctx, nil)
		ctx = resilienthttp.WithPolicy(ctx, transport.Policy)
		ctx = resilienthttp.WithTrace(ctx, m.trace("inner"))
		tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		require.Equal(t, []string{
			"T start 1", "outer start 1", "inner start 1",
			"T done 1 transient", "outer done 1 transient", "inner done 1 transient",
			"T wait 1 1s", "outer wait 1 1s", "inner wait 1 1s",
			"T start 2", "outer start 2", "inner start 2",
			"T done 2 success", "outer done 2 success", "inner done 2 success",
			"T call 2", "outer call 2", "inner call 2",
		}, m.read())
	})
	t.Run("traces of one context's children are apart", func(t *testing.T) {
		var m minutes
		// After three, append has capacity for a fourth.
		parent := resilienthttp.WithTrace(resilienthttp.WithTrace(resilienthttp.WithTrace(t.Context(), m.trace("a")), m.trace("b")), m.trace("c"))
		left := resilienthttp.WithTrace(parent, m.trace("left"))
		right := resilienthttp.WithTrace(parent, m.trace("right"))
		transport := bareTransport(puppetStatus(200), 1)
		for _, ctx := range []context.Context{left, right, parent} {
			tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		}
		var calls []string
		for _, line := range m.read() {
			if name, ok := strings.CutSuffix(line, " call 1"); ok {
				calls = append(calls, name)
			}
		}
		require.Equal(t, []string{"a", "b", "c", "left", "a", "b", "c", "right", "a", "b", "c"}, calls)
	})
	t.Run("a Transport inside does not report to the outer context's", func(t *testing.T) {
		var m minutes
		outer := bareTransport(bareTransport(puppetStatus(500), 3), 2)
		tripped(t, outer, newCall(resilienthttp.WithTrace(t.Context(), m.trace("x")), t, http.MethodGet, ""))
		require.Equal(t, []string{
			"x start 1", "x done 1 transient", "x wait 1 0s", "x start 2", "x done 2 transient", "x call 2",
		}, m.read())
	})
}

// The arguments of each hook.
func TestTraceContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		const took = 20 * time.Millisecond
		transport := bareTransport(script(after(took, failing(broken)), after(took, status(503, "Retry-After", "3600"))), 4)
		transport.Policy.Backoff = func(int, time.Duration) time.Duration { return time.Second }
		transport.Scope = func(*http.Request) string { return "tenant-1" }
		begun := time.Now()
		req := newCall(t.Context(), t, http.MethodPost, "body")
		var hooks []string
		transport.Trace = &resilienthttp.Trace{
			AttemptStart: func(a *resilienthttp.Attempt) {
				hooks = append(hooks, "start")
				require.Nil(t, a.Response)
				require.NoError(t, a.Err)
				require.Equal(t, resilienthttp.VerdictDefault, a.Verdict)
				require.NotEmpty(t, a.Request.Header.Get("Idempotency-Key"), "the request as sent")
				require.Empty(t, req.Header.Get("Idempotency-Key"), "the caller's request has no key")
				require.Zero(t, a.Latency)
				require.Equal(t, time.Now(), a.Start)
			},
			AttemptDone: func(a *resilienthttp.Attempt) {
				hooks = append(hooks, "done")
				require.Equal(t, took, a.Latency)
				require.Equal(t, time.Now(), a.Start.Add(a.Latency))
				if a.Number == 1 {
					require.Nil(t, a.Response)
					require.ErrorIs(t, a.Err, broken)
					require.Equal(t, resilienthttp.VerdictTransient, a.Verdict)
				} else {
					require.Equal(t, 503, a.Response.StatusCode)
					require.NoError(t, a.Err)
					require.Equal(t, resilienthttp.VerdictThrottled, a.Verdict)
				}
				require.NoError(t, a.StopReason)
			},
			RetryWait: func(a *resilienthttp.Attempt) {
				hooks = append(hooks, "wait")
				require.Equal(t, 1, a.Number)
				require.Equal(t, time.Second, a.RetryWait)
				require.ErrorIs(t, a.Err, broken)
			},
			CallDone: func(c *resilienthttp.Call) {
				hooks = append(hooks, "call")
				require.Equal(t, "tenant-1", c.Scope)
				require.Same(t, req, c.Request)
				require.Equal(t, 503, c.Response.StatusCode)
				body, err := io.ReadAll(c.Response.Body)
				require.NoError(t, err)
				require.Equal(t, "status 503", string(body), "unread when CallDone sees it")
				require.NoError(t, c.Err)
				require.Len(t, c.Attempts, 2)
				require.Equal(t, resilienthttp.ErrRetryAfter, c.Attempts[1].StopReason)
				require.Equal(t, time.Hour, c.Attempts[1].RetryWait)
				require.Equal(t, begun, c.Start)
				require.Equal(t, 1040*time.Millisecond, c.Latency)
				require.Equal(t, time.Now().Add(time.Hour), c.NotBefore)
			},
		}
		attempts := tripped(t, transport, req)
		require.Equal(t, []string{"start", "done", "wait", "start", "done", "call"}, hooks)
		require.Len(t, attempts, 2)
	})
	t.Run("a call that fails", func(t *testing.T) {
		transport := bareTransport(puppet(func(*http.Request) (*http.Response, error) { return nil, io.EOF }), 2)
		var done *resilienthttp.Call
		transport.Trace = &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { done = c }}
		_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.Same(t, err, done.Err, "the error that RoundTrip returns")
		require.Nil(t, done.Response)
		require.Len(t, done.Attempts, 2)
		require.Zero(t, done.NotBefore)
	})
	t.Run("copies may be kept and changed", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 2)
		transport.Trace = &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { clear(c.Attempts) }}
		resp := roundTrip(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		attempts := resilienthttp.Attempts(resp)
		require.Equal(t, 1, attempts[0].Number)
		clear(attempts)
		require.Equal(t, 1, resilienthttp.Attempts(resp)[0].Number)
		require.NoError(t, resp.Body.Close())
	})
}

// §4.24: the hook is called when a wait begins.
func TestTrace_QueueWait(t *testing.T) {
	const s = time.Second
	bubble.Run(t, "queued for a quota", func(t *testing.T) {
		begun := time.Now()
		recorded, number := make(chan time.Time, 2), make(chan int, 2)
		tr := &resilienthttp.Transport{
			Base: script(status(200, "X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10")),
			Trace: &resilienthttp.Trace{QueueWait: func(a *resilienthttp.Attempt) {
				require.Equal(t, "/things", a.Request.URL.Path, "the caller's")
				require.InDelta(t, 10*s, a.RetryWait, float64(2*s))
				require.Zero(t, a.Start)
				require.False(t, a.FixedLimit, "the wait is for a quota of the server")
				recorded <- time.Now()
				number <- a.Number
			}},
		}
		answered(t, tr)
		require.Empty(t, recorded, "the first does not wait")
		answered(t, tr)
		require.Equal(t, begun, <-recorded)
		require.Equal(t, 1, <-number)
		require.GreaterOrEqual(t, time.Since(begun), 9*s)
		require.GreaterOrEqual(t, known(t, tr).Slowest.QueueWait, 9*s)
	})
	bubble.Run(t, "a retry, and no hedge", func(t *testing.T) {
		var m minutes
		tr := &resilienthttp.Transport{
			Base: script(after(3*s, status(503)), status(200)), Policy: every(s), Breaker: never(),
			RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}, Hedge: &resilienthttp.Hedge{Delay: s},
			Trace: &resilienthttp.Trace{QueueWait: func(a *resilienthttp.Attempt) {
				m.addf("%d after %v for %v, own %t", a.Number, a.QueueWait, a.RetryWait.Round(time.Millisecond), a.FixedLimit)
			}},
		}
		resp := roundTrip(t, tr, get(t))
		require.Equal(t, []string{"2 after 0s for 6s, own true"}, m.read())
		attempts := resilienthttp.Attempts(resp)
		require.False(t, attempts[0].FixedLimit, "it did not wait")
		require.True(t, attempts[1].FixedLimit)
	})
	bubble.Run(t, "a hook that panics returns the probe slot", func(t *testing.T) {
		tr := &resilienthttp.Transport{
			Base: script(status(503), status(200)), Breaker: nervous(s), Policy: resilienthttp.Policy{MaxAttempts: -1},
			RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1},
		}
		answered(t, tr)
		time.Sleep(2 * s) // its circuit is half-open
		panicky := resilienthttp.WithTrace(t.Context(), &resilienthttp.Trace{QueueWait: func(*resilienthttp.Attempt) { panic("hook") }})
		require.Panics(t, func() { _, _ = tr.RoundTrip(get(t).WithContext(panicky)) })
		require.Zero(t, known(t, tr).Breaker.NotBefore, "the slot is free")
		answered(t, tr)
		require.Equal(t, resilienthttp.StateClosed, known(t, tr).Breaker.State)
	})
	t.Run("an attempt that is rejected at once does not wait", func(t *testing.T) {
		var m minutes
		tr := &resilienthttp.Transport{
			Base: script(status(200)), RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1, MaxWait: -1}, Trace: m.trace("T"),
		}
		answered(t, tr)
		answered(t, tr)
		require.Equal(t, []string{"T start 1", "T done 1 success", "T call 1", "T refused 0", "T call 0"}, m.read())
	})
}

// CallDone is called for calls that a gate rejected without an attempt, and not for invalid
// requests.
func TestTrace_Rejected(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*resilienthttp.Transport)
		reason error
	}{
		{"breaker", func(tr *resilienthttp.Transport) { tr.Breaker = &resilienthttp.Breaker{MinRequests: 1, MaxWait: -1} }, resilienthttp.ErrBreakerOpen},
		{"limit", func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.001, MaxWait: -1}
		}, resilienthttp.ErrRateLimited},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			transport := bareTransport(puppetStatus(500), 1)
			row.change(transport)
			var m minutes
			var done *resilienthttp.Call
			transport.Trace = m.trace("T")
			call := transport.Trace.CallDone
			transport.Trace.CallDone = func(c *resilienthttp.Call) { call(c); done = c }
			tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			before := m.read()
			_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
			require.ErrorIs(t, err, row.reason)
			require.Equal(t, []string{"T refused 0", "T call 0"}, m.read()[len(before):])
			require.Same(t, err, done.Err)
			require.Empty(t, done.Attempts)
			require.False(t, done.NotBefore.IsZero())
		})
	}
	t.Run("breaker opens", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 3)
		transport.Breaker = &resilienthttp.Breaker{MinRequests: 1, MaxWait: -1}
		var m minutes
		transport.Trace = m.trace("T")
		ctx := resilienthttp.WithTrace(t.Context(), m.trace("ctx"))
		attempts := tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		require.Equal(t, resilienthttp.ErrBreakerOpen, attempts[0].StopReason)
		require.Equal(t, []string{
			"T start 1", "ctx start 1", "T breaker api.test closed-open", "ctx breaker api.test closed-open",
			"T done 1 transient", "ctx done 1 transient", "T call 1", "ctx call 1",
		}, m.read())
	})
	for name, change := range map[string]func(*http.Request) *http.Request{
		"canceled before": func(r *http.Request) *http.Request { return r.WithContext(gone(r.Context())) },
		"no URL":          func(r *http.Request) *http.Request { r.URL = nil; return r },
		"bad key": func(r *http.Request) *http.Request {
			return r.WithContext(resilienthttp.WithIdempotencyKey(r.Context(), "\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m minutes
			transport := bareTransport(puppetStatus(200), 1)
			transport.Trace = m.trace("T")
			require.Error(t, discard(transport, change(newCall(t.Context(), t, http.MethodPost, "body"))))
			require.Empty(t, m.read())
		})
	}
}

// §4.15: callbacks run without a lock. Each hook may make a call through the same Transport, and use its Breaker.
func TestHooksHoldNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var transport *resilienthttp.Transport
		inside, called := 0, map[string]bool{}
		callBack := func(what string) {
			// Changes of the breaker may come from a call that a hook makes.
			rare := what == "OnChange" || what == "BreakerChange"
			if inside > 1 && !rare || inside > 5 {
				return // that is deep enough
			}
			called[what] = true
			inside++
			defer func() { inside-- }()
			_ = discard(transport, newCall(t.Context(), t, http.MethodGet, ""))
			transport.Breaker.State("api.test", resilienthttp.PriorityDefault)
			transport.State()
			transport.CloseIdleConnections()
		}
		n := 0
		transport = &resilienthttp.Transport{
			Base: puppet(func(req *http.Request) (*http.Response, error) {
				n++
				status := 200
				if n%3 == 0 || n > 60 {
					status = 500 // sometimes, and always at the end
				}
				return response(req, status, "body", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", fmt.Sprint(9-n%10), "X-RateLimit-Reset", "1"), nil
			}),
			Policy:    resilienthttp.Policy{Backoff: func(int, time.Duration) time.Duration { callBack("Backoff"); return time.Millisecond }},
			Breaker:   &resilienthttp.Breaker{OnChange: func(resilienthttp.BreakerChange) { callBack("OnChange") }},
			RateLimit: &resilienthttp.RateLimit{Limit: 50, Burst: 2},
			Scope:     func(r *http.Request) string { callBack("Scope"); return r.URL.Host },
		}
		transport.Idempotency.NewKey = func(*http.Request) string { callBack("NewKey"); return "k" }
		transport.Policy.Classify = func(*resilienthttp.Attempt) resilienthttp.Verdict {
			callBack("Classify")
			return resilienthttp.VerdictDefault
		}
		transport.Trace = &resilienthttp.Trace{
			AttemptStart:  func(*resilienthttp.Attempt) { callBack("AttemptStart") },
			AttemptDone:   func(*resilienthttp.Attempt) { callBack("AttemptDone") },
			RetryWait:     func(*resilienthttp.Attempt) { callBack("RetryWait") },
			QueueWait:     func(*resilienthttp.Attempt) { callBack("Queued") },
			Rejected:      func(*resilienthttp.Call) { callBack("Refused") },
			CallDone:      func(*resilienthttp.Call) { callBack("CallDone") },
			BreakerChange: func(resilienthttp.BreakerChange) { callBack("BreakerChange") },
		}
		hooks := []string{
			"Scope", "NewKey", "Classify", "Backoff", "OnChange", "AttemptStart", "AttemptDone", "RetryWait", "Queued", "Refused", "CallDone", "BreakerChange",
		}
		for calls := 0; calls < 300 && len(called) < len(hooks); calls++ {
			_ = discard(transport, newCall(t.Context(), t, http.MethodPost, "body"))
			time.Sleep(200 * time.Millisecond)
		}
		for _, what := range hooks {
			require.True(t, called[what], what)
		}
	})
}

// Attempts works for a response that other code has passed on.
func TestAttempts(t *testing.T) {
	numbers := func(resp *http.Response) (numbers []int) {
		for _, a := range resilienthttp.Attempts(resp) {
			numbers = append(numbers, a.Number)
		}
		return numbers
	}
	t.Run("not ours", func(t *testing.T) {
		require.Nil(t, resilienthttp.Attempts(nil))
		require.Nil(t, resilienthttp.Attempts(&http.Response{}))
		require.Nil(t, resilienthttp.Attempts(&http.Response{Request: &http.Request{}}))
		require.Nil(t, resilienthttp.Attempts(&http.Response{Request: newCall(t.Context(), t, http.MethodGet, "")}))
	})
	bubble.Run(t, "http.Client with a Timeout, and after the body is closed", func(t *testing.T) {
		client := &http.Client{Transport: bareTransport(onceThen(503), 3), Timeout: time.Minute}
		resp := do(t, client, newCall(t.Context(), t, http.MethodGet, ""))
		require.Equal(t, []int{1, 2}, numbers(resp))
		readAll(t, resp)
		require.Equal(t, []int{1, 2}, numbers(resp))
	})
	t.Run("a redirect's last hop", func(t *testing.T) {
		client := &http.Client{Transport: bareTransport(script(status(302, "Location", "/there"), status(503), status(200)), 3)}
		resp := do(t, client, newCall(t.Context(), t, http.MethodGet, ""))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []int{1, 2}, numbers(resp))
		require.Equal(t, "/there", resilienthttp.Attempts(resp)[0].Request.URL.Path)
		require.Equal(t, []int{1}, numbers(resp.Request.Response))
	})
}

// logged runs the calls with a LogTrace over a JSON handler and returns its
// records without the time.
func logged(t *testing.T, calls func(*resilienthttp.Trace)) (records []map[string]any, raw string) {
	t.Helper()
	var out bytes.Buffer
	calls(resilienthttp.LogTrace(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	for line := range strings.Lines(out.String()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		require.Contains(t, record, "time")
		delete(record, "time")
		records = append(records, record)
	}
	return records, out.String()
}

// record is a record of a call to api.test, without its time: the event is the message with underscores.
func record(level, msg, method string, more map[string]any) map[string]any {
	more["level"], more["msg"], more["event"] = level, msg, strings.ReplaceAll(msg, " ", "_")
	more["http.request.method"], more["server.address"], more["scope"] = method, "api.test", "api.test"
	return more
}

// The exact keys and levels of the records.
func TestLogTrace(t *testing.T) {
	type keys = map[string]any
	ms := func(n float64) float64 { return n * 1e6 }
	bubble.Run(t, "a retry", func(t *testing.T) {
		transport := bareTransport(script(after(5*time.Millisecond, failing(io.ErrUnexpectedEOF)), after(5*time.Millisecond, status(201))), 3)
		transport.Policy.Backoff = resilienthttp.Constant(100 * time.Millisecond)
		records, _ := logged(t, func(trace *resilienthttp.Trace) {
			transport.Trace = trace
			tripped(t, transport, newCall(resilienthttp.WithIdempotencyKey(t.Context(), "invoice-1"), t, http.MethodPost, "body"))
		})
		const hash = "sha256:ed8d97c08bf3" // printf invoice-1 | sha256sum
		require.Equal(t, []map[string]any{
			record("WARN", "attempt failed", "POST", keys{
				"attempt": 1.0, "verdict": "transient", "error": "unexpected EOF", "error.type": "eof", "idempotency_key_hash": hash, "duration": ms(5),
			}),
			record("INFO", "retry scheduled", "POST", keys{
				"attempt": 1.0, "verdict": "transient", "error": "unexpected EOF", "error.type": "eof", "idempotency_key_hash": hash, "retry_wait": ms(100),
			}),
			record("DEBUG", "attempt done", "POST", keys{
				"attempt": 2.0, "verdict": "success", "http.response.status_code": 201.0, "idempotency_key_hash": hash, "duration": ms(5),
			}),
			record("DEBUG", "call done", "POST", keys{
				"attempts": 2.0, "http.response.status_code": 201.0, "duration": ms(110), "queue_wait": 0.0, "in_flight": ms(10), "retry_wait": ms(100),
			}),
		}, records)
	})
	bubble.Run(t, "a failure, the breaker, and a rejection", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 1)
		transport.Breaker = &resilienthttp.Breaker{MinRequests: 1, MaxWait: -1}
		records, _ := logged(t, func(trace *resilienthttp.Trace) {
			ctx := resilienthttp.WithTrace(t.Context(), trace)
			tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
			tripped(t, transport, newCall(ctx, t, http.MethodGet, ""))
		})
		require.Len(t, records, 4)
		require.Equal(t, keys{
			"level": "WARN", "msg": "breaker changed", "event": "breaker_changed", "scope": "api.test",
			"openings": 1.0, "from": "closed", "to": "open", "at": "2000-01-01T00:00:00Z", "attempts": 1.0, "failures": 1.0,
		}, records[0])
		require.Equal(t, record("WARN", "attempt failed", "GET", keys{
			"attempt": 1.0, "verdict": "transient", "http.response.status_code": 500.0, "error.type": "500", "duration": 0.0,
		}), records[1])
		require.Equal(t, record("ERROR", "call failed", "GET", keys{
			"attempts": 1.0, "http.response.status_code": 500.0, "error.type": "500", "duration": 0.0, "stop_reason": "max_attempts",
			"transcript": records[2]["transcript"], "not_before": records[2]["not_before"],
		}), records[2])
		require.Contains(t, records[2]["transcript"], "GET to api.test: 500, 1 attempt, 0s, began 2000-01-01 00:00:00.000\nat  event      took  result\n0s  attempt 1  0s    500, transient\n0s  no retry         no retries left, next call in ")
		require.Contains(t, records[3]["error"], "circuit breaker is open")
		require.Contains(t, records[3]["transcript"], "next call in ")
		require.NotEmpty(t, records[3]["not_before"])
		require.Equal(t, record("ERROR", "call failed", "GET", keys{
			"attempts": 0.0, "duration": 0.0, "error.type": "breaker_open",
			"transcript": records[3]["transcript"], "error": records[3]["error"], "not_before": records[3]["not_before"],
		}), records[3])
	})
	t.Run("a permanent error is logged at debug", func(t *testing.T) {
		records, _ := logged(t, func(trace *resilienthttp.Trace) {
			tripped(t, bareTransport(puppetStatus(404), 3), newCall(resilienthttp.WithTrace(t.Context(), trace), t, http.MethodGet, ""))
		})
		require.Len(t, records, 2)
		require.Equal(t, "DEBUG", records[0]["level"])
		require.Equal(t, "DEBUG", records[1]["level"])
	})
	bubble.Run(t, "why a call took ten seconds", func(t *testing.T) {
		records, _ := logged(t, func(trace *resilienthttp.Trace) {
			transport := bareTransport(puppetStatus(200), 1)
			transport.RateLimit = &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}
			transport.Trace = trace
			for range 2 {
				tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
			}
		})
		require.Len(t, records, 5)
		require.Equal(t, record("INFO", "attempt queued", "GET", keys{"attempt": 1.0, "estimated_wait": ms(10_000)}), records[2])
		require.InDelta(t, ms(10_000), records[4]["queue_wait"], ms(1))
		require.InDelta(t, ms(10_000), records[4]["duration"], ms(1))
		require.Equal(t, "INFO", records[4]["level"])
		require.Equal(t, []any{0.0, 0.0}, []any{records[4]["in_flight"], records[4]["retry_wait"]})
	})
	t.Run("an empty method is GET", func(t *testing.T) {
		records, _ := logged(t, func(trace *resilienthttp.Trace) {
			req := newCall(resilienthttp.WithTrace(t.Context(), trace), t, http.MethodGet, "")
			req.Method = ""
			tripped(t, bareTransport(puppetStatus(200), 3), req)
		})
		require.Equal(t, "GET", records[0]["http.request.method"])
		require.Equal(t, "GET", records[1]["http.request.method"])
	})
	t.Run("levels that are off cost nothing", func(t *testing.T) {
		var out bytes.Buffer
		trace := resilienthttp.LogTrace(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})))
		tripped(t, bareTransport(onceThen(503), 3), newCall(resilienthttp.WithTrace(t.Context(), trace), t, http.MethodGet, ""))
		require.Empty(t, out.String())
	})
	t.Run("nil is the default logger of that moment", func(t *testing.T) {
		var out bytes.Buffer
		trace := resilienthttp.LogTrace(nil)
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		defer slog.SetDefault(before)
		tripped(t, bareTransport(puppetStatus(200), 1), newCall(resilienthttp.WithTrace(t.Context(), trace), t, http.MethodGet, ""))
		require.Equal(t, 2, strings.Count(out.String(), `"event":"`))
	})
	t.Run("the record's context is the caller's", func(t *testing.T) {
		handler := &contextHandler{}
		trace := resilienthttp.LogTrace(slog.New(handler))
		ctx := context.WithValue(t.Context(), contextHandlerKey{}, "span-1")
		tripped(t, bareTransport(onceThen(503), 3), newCall(resilienthttp.WithTrace(ctx, trace), t, http.MethodGet, ""))
		require.Equal(t, []any{"span-1", "span-1", "span-1", "span-1"}, handler.spans)
	})
}

type contextHandlerKey struct{}

// contextHandler keeps a value of each record's context, as OpenTelemetry's
// bridge does.
type contextHandler struct{ spans []any }

func (h *contextHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *contextHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *contextHandler) WithGroup(string) slog.Handler            { return h }

func (h *contextHandler) Handle(ctx context.Context, _ slog.Record) error {
	h.spans = append(h.spans, ctx.Value(contextHandlerKey{}))
	return nil
}

// written counts the records of each event, with those that were suppressed.
func written(records []map[string]any) map[any]int {
	events := map[any]int{}
	for _, r := range records {
		events[r["event"]]++
		if n, ok := r["suppressed"].(float64); ok {
			events[r["event"]] += int(n)
		}
	}
	return events
}

// T13: LogTrace writes at most 100 failed calls a second and ten records of another event, for any number of hosts, and
// counts the others.
func TestLogTrace_manyHosts(t *testing.T) {
	for _, hosts := range []int{1, 20, 200, 3000} {
		bubble.Run(t, fmt.Sprintf("%d hosts fail: each record is written or counted", hosts), func(t *testing.T) {
			const calls, seconds = 3000, 15
			records, raw := logged(t, func(trace *resilienthttp.Trace) {
				transport := bareTransport(puppetStatus(500), 1)
				transport.Trace = trace
				for i := range calls {
					tripped(t, transport, newRequest(t, http.MethodGet, fmt.Sprintf("http://host-%d.test/", i%hosts), ""))
					time.Sleep(seconds * time.Second / calls)
				}
				time.Sleep(time.Second)
				tripped(t, transport, newRequest(t, http.MethodGet, "http://last.test/", "")) // it reports what was suppressed
			})
			perSecond := map[string]int{}
			for line := range strings.Lines(raw) {
				perSecond[line[:len(`{"time":"2000-01-01T00:00:00`)]]++
			}
			require.LessOrEqual(t, slices.Max(slices.Collect(maps.Values(perSecond))), 10+100)
			require.GreaterOrEqual(t, len(perSecond), seconds)
			require.Equal(t, map[any]int{"attempt_failed": calls + 1, "call_failed": calls + 1}, written(records), "no record is lost")
		})
	}
}

// T13: the log of a night has each failed call with its key, all that are in doubt, and two changes of
// the circuit for one outage.
func TestLogTrace_night(t *testing.T) {
	pick := func(records []map[string]any, event string) (picked []map[string]any) {
		for _, r := range records {
			if r["event"] == event {
				picked = append(picked, r)
			}
		}
		return picked
	}
	bubble.Run(t, "an outage of a minute: two changes, and each call", func(t *testing.T) {
		start, failed := time.Now(), map[string]bool{}
		var state resilienthttp.BreakerStatus
		var refused atomic.Int64
		records, _ := logged(t, func(trace *resilienthttp.Trace) {
			tr := &resilienthttp.Transport{Trace: trace, Base: puppet(func(req *http.Request) (*http.Response, error) {
				if at := time.Since(start); at >= time.Minute && at < 2*time.Minute {
					refused.Add(1)
					return nil, syscall.ECONNREFUSED
				}
				return response(req, 200, "body"), nil
			})}
			var mu sync.Mutex
			var calls sync.WaitGroup
			for i := range 3 * 60 * 8 {
				if i == 110*8 {
					state = tr.State().Scopes[0].Breaker
				}
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(t.Context(), strconv.Itoa(i)), 10*time.Second)
					defer cancel()
					resp, err := tr.RoundTrip(newCall(ctx, t, http.MethodPost, "charge"))
					if err == nil {
						require.NoError(t, resp.Body.Close())
						return
					}
					mu.Lock()
					defer mu.Unlock()
					failed[idempotencykey.Hash(strconv.Itoa(i))] = true
				})
				time.Sleep(time.Second / 8)
			}
			calls.Wait()
		})
		changes := pick(records, "breaker_changed")
		require.Len(t, changes, 2)
		require.Equal(t, []any{"closed", "open"}, []any{changes[0]["from"], changes[0]["to"]})
		require.Equal(t, []any{"half-open", "closed"}, []any{changes[1]["from"], changes[1]["to"]})
		require.GreaterOrEqual(t, changes[0]["failures"], 5.0)
		require.NotContains(t, changes[0], "failed_probes")
		require.InDelta(t, 60e9, changes[1]["duration"], 3e9)
		require.Equal(t, int(refused.Load()), int(changes[0]["failures"].(float64))+int(changes[1]["failed_probes"].(float64)))
		require.Equal(t, start.Add(time.Minute).Truncate(time.Second), state.OpenedAt.Truncate(time.Second))
		require.Positive(t, state.FailedProbes)
		require.Less(t, float64(state.FailedProbes), changes[1]["failed_probes"])

		require.Greater(t, len(failed), 100)
		hashes := map[string]bool{}
		for _, r := range pick(records, "call_failed") {
			require.NotContains(t, r, "suppressed")
			require.NotContains(t, r, "in_doubt", "a refused connection is no doubt")
			require.False(t, hashes[r["idempotency_key_hash"].(string)], "one record a call")
			hashes[r["idempotency_key_hash"].(string)] = true
		}
		require.Equal(t, failed, hashes)
	})
	for _, row := range []struct {
		name, method       string
		status             int
		written, leftOut   int // of 500 calls in a second, and the next one
		inDoubt, hasRecord bool
	}{
		{"a POST without key ends with 500: in doubt, each is written", http.MethodPost, 500, 501, 0, true, true},
		{"a POST ends with 501: in doubt, each is written", http.MethodPost, 501, 501, 0, true, true},
		{"a GET ends with 500: the next record counts those above 100", http.MethodGet, 500, 101, 400, false, true},
		{"a GET ends with 501: failed, too", http.MethodGet, 501, 101, 400, false, true},
		{"a GET ends with 404: not failed", http.MethodGet, 404, 0, 0, false, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			records, _ := logged(t, func(trace *resilienthttp.Trace) {
				tr := bareTransport(puppetStatus(row.status), 1)
				tr.Trace, tr.Breaker = trace, &resilienthttp.Breaker{FailureRatio: -1}
				for range 500 {
					tripped(t, tr, newCall(t.Context(), t, row.method, ""))
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Second)
				tripped(t, tr, newCall(t.Context(), t, row.method, ""))
			})
			calls := pick(records, "call_failed")
			require.Len(t, calls, row.written)
			if !row.hasRecord {
				return
			}
			last := calls[len(calls)-1]
			doubt, _ := last["in_doubt"].(bool)
			leftOut, _ := last["suppressed"].(float64)
			require.Equal(t, []any{row.inDoubt, row.leftOut}, []any{doubt, int(leftOut)})
		})
	}
}

// If another layer owns the retries, the end of one of its attempts is no error of the program, and the reason is that layer.
// The body without GetBody is that of durable.HTTP.
func TestLogTrace_anotherLayerRetries(t *testing.T) {
	for _, row := range []struct {
		name       string
		single     bool
		level, why string
	}{
		{"the call owns its retries", false, "ERROR", "not_replayable"},
		{"another layer owns them", true, "WARN", "single_attempt"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			records, _ := logged(t, func(trace *resilienthttp.Trace) {
				tr := bareTransport(puppetStatus(502), 3)
				tr.Trace = trace
				ctx := t.Context()
				if row.single {
					ctx = resilienthttp.WithSingleAttempt(ctx)
				}
				req := newCall(ctx, t, http.MethodPost, "body")
				req.GetBody = nil
				tripped(t, tr, req)
			})
			last := records[len(records)-1]
			require.Equal(t, []any{"call_failed", row.level, row.why, true}, []any{last["event"], last["level"], last["stop_reason"], last["in_doubt"]})
		})
	}
}

// T13: responses 4xx that are not retried are logged once a minute and scope.
func TestLogTrace_clientErrors(t *testing.T) {
	for _, row := range []struct {
		name     string
		statuses []int // repeated
		every    time.Duration
		calls    int
		want     int
	}{
		{"each call 401: one a minute", []int{401}, time.Second, 300, 5},
		{"each call 403: one a minute", []int{403}, time.Second, 300, 5},
		{"one 401 among successes: logged", append([]int{401}, slices.Repeat([]int{200}, 59)...), time.Second, 60, 1},
		{"each call 404, a call per 10 s: logged from the 20th on", []int{404}, 10 * time.Second, 30, 2},
		{"each call 404, fewer than 20 calls: not logged", []int{404}, time.Second, 19, 0},
		{"5 % are 404: not logged", append(slices.Repeat([]int{200}, 19), 404), time.Second, 200, 0},
		{"10 % are 404: one a minute", append(slices.Repeat([]int{200}, 9), 404), time.Second, 300, 5},
		{"successes: not logged", []int{200}, time.Second, 300, 0},
		{"5xx: not logged as client errors", []int{500}, time.Second, 300, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			records, _ := logged(t, func(trace *resilienthttp.Trace) {
				n := 0
				transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
					n++
					return response(req, row.statuses[(n-1)%len(row.statuses)], "body"), nil
				}), 1)
				transport.Trace = trace
				for range row.calls {
					tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
					time.Sleep(row.every)
				}
			})
			n := 0
			for _, r := range records {
				if r["event"] == "client_errors" {
					n++
					require.Equal(t, "WARN", r["level"])
					require.Equal(t, "api.test", r["scope"])
					require.Positive(t, r["client_errors"])
					require.Equal(t, fmt.Sprint(r["http.response.status_code"]), r["error.type"])
				}
			}
			require.Equal(t, row.want, n)
		})
	}
}

// A slow scope is logged once a minute, with the usual latency, also while no response arrives.
func TestLogTrace_slow(t *testing.T) {
	for _, row := range []struct {
		name         string
		usual, then  time.Duration
		least, most  int // records in three minutes
		usualSeconds float64
		recovers     bool // after three minutes
	}{
		{"2.1 s instead of 40 ms", 40 * time.Millisecond, 2100 * time.Millisecond, 2, 4, 0.04, true},
		{"no response", 40 * time.Millisecond, time.Hour, 2, 4, 0.04, false},
		{"100 ms instead of 40 ms: not logged", 40 * time.Millisecond, 100 * time.Millisecond, 0, 0, 0, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			start := time.Now()
			records, _ := logged(t, func(trace *resilienthttp.Trace) {
				transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
					took := row.usual
					if at := time.Since(start); at > 5*time.Minute && at < 8*time.Minute {
						took = row.then
					}
					return after(took, status(200))(req)
				}), 1)
				transport.Trace, transport.RateLimit = trace, &resilienthttp.RateLimit{}
				ctx, cancel := context.WithCancel(t.Context())
				var calls sync.WaitGroup
				for time.Since(start) < 10*time.Minute && (row.recovers || time.Since(start) < 8*time.Minute) {
					calls.Go(func() { _ = discard(transport, newCall(ctx, t, http.MethodGet, "")) })
					time.Sleep(200 * time.Millisecond)
				}
				cancel()
				calls.Wait()
			})
			n, recovered := 0, 0
			for _, r := range records {
				if r["event"] == "scope_recovered" {
					recovered++
					require.InDelta(t, 165e9, r["duration"], 15e9)
					require.InDelta(t, row.usualSeconds*1e9, r["latency"], 0.06e9)
					require.LessOrEqual(t, row.least, n, "after the slow ones")
				}
				if r["event"] != "scope_slow" {
					continue
				}
				require.Zero(t, recovered, "it does not flap")
				n++
				require.Equal(t, []any{"WARN", "scope slow", "api.test"}, []any{r["level"], r["msg"], r["scope"]})
				require.InDelta(t, row.usualSeconds*1e9, r["usual_latency"], 0.06e9)
				require.NotZero(t, r["attempts_in_flight"])
			}
			require.GreaterOrEqual(t, n, row.least)
			require.LessOrEqual(t, n, row.most)
			require.Equal(t, row.recovers, recovered == 1)
		})
	}
}

// §4.24: Call.Latency is the sum of QueueWait and Latency of the attempts that are not
// concurrent, RetryWait of all but the last, and Call.QueueWait.
func TestTimings_addUp(t *testing.T) {
	const s = time.Second
	hang := func(d time.Duration, code int) step { return after(d, status(code)) }
	for _, row := range []struct {
		name   string
		steps  []step
		change func(*resilienthttp.Transport)
		ctx    time.Duration // its deadline
		cancel time.Duration
		calls  int // the one that is looked at is the last
	}{
		{name: "one attempt", steps: []step{hang(s, 200)}},
		{name: "retries", steps: []step{hang(s, 503), hang(2*s, 500), hang(3*s, 200)}},
		{name: "Retry-After", steps: []step{status(503, "Retry-After", "7"), hang(s, 200)}},
		{name: "attempts spent", steps: []step{hang(s, 503)}},
		{name: "attempt timeouts", steps: []step{hanging}, change: func(tr *resilienthttp.Transport) { tr.Policy.AttemptTimeout = s }},
		{name: "no wait fits", steps: []step{status(503, "Retry-After", "7")}, ctx: 5 * s},
		{name: "a body that cannot be drained", steps: []step{withBody(503, trickle{s}), hang(s, 200)}, change: func(tr *resilienthttp.Transport) {
			tr.Policy.Backoff = atOnce
		}},
		{name: "waits for a permit", steps: []step{hang(s, 503)}, change: func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.2, Burst: 1}
		}},
		{name: "rejected by the rate limit at once", steps: []step{hang(s, 200)}, calls: 2, change: func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.2, Burst: 1, MaxWait: -1}
		}},
		{name: "rejected by the rate limit after a wait", steps: []step{hang(s, 503)}, change: func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.01, Burst: 1, MaxWait: s}
		}},
		{name: "canceled in the backoff", steps: []step{hang(s, 503)}, ctx: 3 * s, change: func(tr *resilienthttp.Transport) {
			tr.Policy.Backoff = func(int, time.Duration) time.Duration { time.Sleep(4 * s); return s }
		}},
		{name: "canceled in the queue", steps: []step{hang(s, 200)}, calls: 2, cancel: 3 * s, change: func(tr *resilienthttp.Transport) {
			tr.RateLimit = &resilienthttp.RateLimit{Limit: 0.01, Burst: 1, MaxWait: time.Hour}
		}},
		{name: "the circuit holds the retry", steps: []step{after(s, status(503, "Retry-After", "1"))}, change: func(tr *resilienthttp.Transport) {
			tr.Breaker, tr.Policy = fragile(time.Hour), resilienthttp.Policy{}
		}},
		{name: "Scope and NewKey are slow", steps: []step{hang(s, 200)}, change: func(tr *resilienthttp.Transport) {
			tr.Scope = func(*http.Request) string { time.Sleep(s); return "scope" }
		}},
		{name: "a hedge wins", steps: []step{hanging, hang(s, 200)}, change: func(tr *resilienthttp.Transport) { tr.Hedge = &resilienthttp.Hedge{Delay: s} }},
		{name: "a hedge is waited for", steps: []step{hang(2*s, 503), hang(5*s, 200)}, change: func(tr *resilienthttp.Transport) { tr.Hedge = &resilienthttp.Hedge{Delay: s} }},
		{name: "a slow copy wins", steps: []step{hanging, hang(s, 200)}},
		{name: "a slow copy is waited for", steps: []step{hang(35*s, 503), hang(9*s, 200)}},
		{name: "a slow copy fails", steps: []step{hang(45*s, 503), hang(9*s, 500), hang(s, 200)}},
		{name: "a slow copy fails last", steps: []step{hang(35*s, 503), hang(9*s, 500), hang(s, 200)}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var done resilienthttp.Call
			tr := &resilienthttp.Transport{
				Base: script(row.steps...), Policy: every(10 * s), Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1},
				Trace: &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { done = *c }},
			}
			if row.change != nil {
				row.change(tr)
			}
			for range max(row.calls, 1) {
				ctx := withDeadline(t, row.ctx)
				if row.cancel > 0 {
					ctx = canceledAfter(ctx, row.cancel)
				}
				_ = discard(tr, get(t).WithContext(ctx))
			}
			if row.cancel > 0 {
				require.Equal(t, row.cancel, done.QueueWait)
			}
			requireAccounted(t, &done)
		})
	}
}

// requireAccounted requires §4.24 of a call.
func requireAccounted(tb testing.TB, done *resilienthttp.Call) {
	tb.Helper()
	sum := done.QueueWait
	for i, a := range done.Attempts {
		if !a.Concurrent {
			sum += a.QueueWait + a.Latency
		}
		if i < len(done.Attempts)-1 {
			sum += a.RetryWait
		}
	}
	require.InDelta(tb, done.Latency.Seconds(), sum.Seconds(), 0.001, "%+v", *done)
	queue, flight, retry := done.Timings()
	require.InDelta(tb, done.Latency.Seconds(), (queue + flight + retry).Seconds(), 0.001, "Timings of %+v", *done)
}

// §4.24: for random servers, with hedges, copies, gates and deadlines.
func TestTimings_addUpForRandomServers(t *testing.T) {
	const seeds = 1000
	outcomes := []func(*rand.Rand) step{
		func(*rand.Rand) step { return status(200) },
		func(*rand.Rand) step { return status(400) },
		func(*rand.Rand) step { return status(503) },
		func(r *rand.Rand) step { return status(503, "Retry-After", strconv.Itoa(1+r.IntN(120))) },
		func(*rand.Rand) step { return failing(errReset) },
		func(*rand.Rand) step { return failing(x509.UnknownAuthorityError{}) }, // permanent
		func(*rand.Rand) step { return hanging },
	}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 24))
		upTo := func(longest time.Duration) time.Duration { return 1 + time.Duration(r.Int64N(int64(longest))) }
		var steps []step
		for range 1 + r.IntN(6) {
			steps = append(steps, after(upTo(50*time.Second), outcomes[r.IntN(len(outcomes))](r)))
		}
		synctest.Test(t, func(t *testing.T) {
			var done resilienthttp.Call
			tr := &resilienthttp.Transport{
				Base: script(steps...), Policy: every(upTo(20 * time.Second)), Breaker: never(), Budget: &resilienthttp.Budget{Ratio: -1},
				Trace: &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { done = *c }},
			}
			if r.IntN(2) == 0 {
				tr.Hedge = &resilienthttp.Hedge{Delay: upTo(20 * time.Second), MaxRatio: -1}
			}
			if r.IntN(4) == 0 {
				tr.Policy.AttemptTimeout = upTo(40 * time.Second)
			}
			if r.IntN(4) == 0 {
				tr.RateLimit = &resilienthttp.RateLimit{Limit: rate.Every(upTo(20 * time.Second)), Burst: 1}
			}
			if r.IntN(4) == 0 {
				tr.Breaker = nervous(upTo(10 * time.Second))
			}
			ctx := t.Context()
			if r.IntN(2) == 0 {
				ctx = withDeadline(t, upTo(200*time.Second))
			}
			req := get(t).WithContext(ctx)
			if r.IntN(4) == 0 {
				trackBody(req, "charge")
				open, takes := req.GetBody, upTo(5*time.Second)
				fails := r.IntN(4) == 0
				req.GetBody = func() (io.ReadCloser, error) {
					time.Sleep(takes)
					if fails {
						return nil, errReset
					}
					return open()
				}
			}
			_ = discard(tr, req)
			requireAccounted(t, &done)
		})
	}
}

// A Base can find out the number of its attempt.
func TestAttemptFromContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var recorded minutes
		noting := func(name string, next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				number, hedge := resilienthttp.AttemptNumber(context.WithValue(r.Context(), key{}, "a signer's"))
				recorded.addf("%s %d %v", name, number, hedge)
				return next.RoundTrip(r)
			})
		}
		tr := &resilienthttp.Transport{Base: noting("inner", script(status(503), hanging, status(200))), Hedge: &resilienthttp.Hedge{Delay: time.Second}}
		outer := &resilienthttp.Transport{Base: noting("outer", roundTripper(func(r *http.Request) (*http.Response, error) {
			return tr.RoundTrip(r.WithContext(context.WithoutCancel(context.Background())))
		}))}
		resp := roundTrip(t, outer, get(t))
		readAll(t, resp)
		require.Equal(t, []string{"outer 1 false", "inner 1 false", "inner 2 false", "inner 2 true"}, recorded.read())
		for _, ctx := range []context.Context{resp.Request.Context(), context.Background()} { // a response is of a call
			number, hedge := resilienthttp.AttemptNumber(ctx)
			require.Zero(t, number)
			require.False(t, hedge)
		}
	})
}

// §4.11: NotBefore of responses and of errors, which must not be printed as an earlier time.
func TestNotBefore(t *testing.T) {
	for _, row := range []struct {
		name string
		tr   *resilienthttp.Transport
		want time.Duration // 0: unknown
	}{
		{"answered", &resilienthttp.Transport{Base: script(status(200))}, 0},
		{"a 404", &resilienthttp.Transport{Base: script(status(404))}, 0},
		{"a 404 that asks", &resilienthttp.Transport{Base: script(status(404, "Retry-After", "5"))}, 5 * time.Second},
		{"asks, and forbids a retry", &resilienthttp.Transport{Base: script(status(503, "Retry-After", "5", "X-Should-Retry", "false"))}, 5 * time.Second},
		{"asks, and Classify ends the call", &resilienthttp.Transport{Base: script(status(429, "Retry-After", "5")), Policy: resilienthttp.Policy{
			Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictPermanent },
		}}, 5 * time.Second},
		{"asks for longer than allowed", &resilienthttp.Transport{Base: script(status(503, "Retry-After", "500"))}, 500 * time.Second},
		{"asks, and attempts are spent", &resilienthttp.Transport{Base: script(status(503, "Retry-After", "5")), Policy: resilienthttp.Policy{MaxAttempts: -1}}, 5 * time.Second},
		{"fails without a response", &resilienthttp.Transport{Base: script(status(503)), Policy: resilienthttp.Policy{MaxAttempts: -1}}, 0},
		{"fails", &resilienthttp.Transport{Base: script(failing(errReset)), Policy: resilienthttp.Policy{MaxAttempts: -1}}, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			start := time.Now()
			resp, err := (&http.Client{Transport: row.tr}).Do(get(t))
			finish(t, resp, err)
			want := time.Time{}
			if row.want > 0 {
				want = start.Add(row.want)
			}
			require.Equal(t, want, resilienthttp.NotBefore(resp, err))
		})
	}
	bubble.Run(t, "refused", func(t *testing.T) {
		client := &http.Client{Transport: &resilienthttp.Transport{
			Base: script(status(200)), RateLimit: &resilienthttp.RateLimit{Limit: 0.7, Burst: 1, MaxWait: -1},
		}}
		resp := do(t, client, get(t))
		readAll(t, resp)
		resp, err := client.Do(get(t))
		at := resilienthttp.NotBefore(resp, err)
		require.Equal(t, asError(t, err).NotBefore, at)
		_, text, recorded := strings.Cut(err.Error(), "not before ")
		require.True(t, recorded)
		printed, parseErr := time.Parse(time.RFC3339Nano, text)
		require.NoError(t, parseErr)
		require.False(t, printed.Before(at), "%v, %v", printed, at)
		require.WithinDuration(t, at, printed, time.Millisecond)
	})
	t.Run("nothing", func(t *testing.T) {
		require.Zero(t, resilienthttp.NotBefore(nil, nil))
		require.Zero(t, resilienthttp.NotBefore(&http.Response{Request: get(t)}, nil))
		require.Zero(t, resilienthttp.NotBefore(nil, io.EOF))
	})
}

// logKeys are the keys of all records: OpenTelemetry's if it has one, otherwise one name for the
// whole repository.
var logKeys = []string{
	"http.request.method", "http.response.status_code", "server.address", "server.port", "error.type", "error",

	"event", "scope", "priority", "operation", "attempt", "attempts", "verdict", "hedge", "superseded", "state",
	"idempotency_key_hash", "stop_reason", "not_before", "disposition", "execution", "generation", "code", "class", "reason", "decline_counts_from",
	"duration", "queue_wait", "in_flight", "retry_wait", "estimated_wait", "work_duration",
	"usual_latency", "latency", "samples", "attempts_in_flight", "in_flight_age", "openings",
	"quota_limit", "quota_remaining", "quota_used_by_others", "quota_policies", "quota_until",
	"suppressed", "in_doubt", "failures", "failed_probes", "client_errors", "calls", "transcript",
	"from", "to", "at", "batch", "row_number", "gateway", "holder", "until", "next_probe",
}

// T14: the records of the client, of idempotency and of durable have one set of keys.
func TestLogKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"logtrace.go", "idempotency/trace.go", "durable/logtrace.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "slog" || len(call.Args) != 2 {
				return true
			}
			key, ok := call.Args[0].(*ast.BasicLit)
			require.True(t, ok, "%s: slog.%s with a key that is no literal", name, f.Sel.Name)
			text, err := strconv.Unquote(key.Value)
			require.NoError(t, err)
			require.Contains(t, logKeys, text, name)
			seen[text] = true
			return true
		})
	}
	for _, key := range logKeys {
		require.True(t, seen[key], "no record has the key %s", key)
	}
	require.Len(t, logKeys, len(slices.Compact(slices.Sorted(slices.Values(logKeys)))))
}
