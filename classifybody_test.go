package resilienthttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// TestClassifyBody: the error's code decides (V1, V4).
func TestClassifyBody(t *testing.T) {
	byCode := func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
		switch {
		case strings.Contains(string(body), "lock_timeout"):
			return resilienthttp.VerdictTransient
		case strings.Contains(string(body), "insufficient_quota"):
			return resilienthttp.VerdictPermanent
		case strings.Contains(string(body), "secondary rate limit"):
			return resilienthttp.VerdictThrottled
		case strings.Contains(string(body), "not a verdict"):
			return 99
		}
		return resilienthttp.VerdictDefault
	}
	toTransient := func(a *resilienthttp.Attempt) resilienthttp.Verdict {
		if a.Verdict == resilienthttp.VerdictPermanent {
			return resilienthttp.VerdictTransient
		}
		return resilienthttp.VerdictDefault
	}
	lock, quota := `{"code":"lock_timeout"}`, `{"code":"insufficient_quota"}`
	for _, row := range []struct {
		name     string
		status   int
		body     string
		method   string
		keyless  bool
		classify func(*resilienthttp.Attempt) resilienthttp.Verdict
		attempts int
		verdict  resilienthttp.Verdict
	}{
		{"transient, with status 400", 400, lock, "POST", false, nil, 4, resilienthttp.VerdictTransient},
		{"V1: the same without a key", 400, lock, "POST", true, nil, 1, resilienthttp.VerdictTransient},
		{"permanent, with status 429", 429, quota, "GET", false, nil, 1, resilienthttp.VerdictPermanent},
		{"throttled, with status 403", 403, "You have exceeded a secondary rate limit.", "GET", false, nil, 4, resilienthttp.VerdictThrottled},
		{"the table's", 400, `{}`, "GET", false, nil, 1, resilienthttp.VerdictPermanent},
		{"no verdict", 503, "not a verdict", "GET", false, nil, 4, resilienthttp.VerdictTransient},
		{"overruled by Classify", 429, quota, "GET", false, toTransient, 4, resilienthttp.VerdictTransient},
		{"V1: Classify makes no POST repeatable either", 404, `{}`, "POST", true, toTransient, 1, resilienthttp.VerdictTransient},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := faulttest.NewInMemory(t, faulttest.Reply{Status: row.status, Body: row.body})
			tr := &resilienthttp.Transport{
				Base:        api.Transport(),
				Policy:      resilienthttp.Policy{MaxAttempts: 4, ClassifyBody: byCode, Classify: row.classify},
				Idempotency: resilienthttp.Idempotency{Disabled: row.keyless},
			}
			resp := roundTrip(t, tr, newRequest(t, row.method, api.URL, map[bool]string{true: "{}"}[row.method == "POST"]))
			require.Equal(t, row.status, resp.StatusCode)
			require.Equal(t, row.body, readAll(t, resp), "the caller still reads it whole")
			require.Len(t, resilienthttp.Attempts(resp), row.attempts)
			require.Equal(t, row.verdict, lastOf(t, resp).Verdict)
		})
	}
	bubble.Run(t, "no response: not called", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(failing(errReset), status(200)), Policy: resilienthttp.Policy{ClassifyBody: byCode}}
		readAll(t, roundTrip(t, tr, get(t)))
	})
}

// V4: the body that ClassifyBody gets, and that the caller reads the same body.
func TestClassifyBody_prefix(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 1<<10) + "and more"
	text := func(kind string) http.Header { return http.Header{"Content-Type": {kind}} }
	for _, row := range []struct {
		name   string
		method string
		reply  faulttest.Reply
		calls  int
		seen   string
		took   time.Duration
	}{
		{"short", "GET", faulttest.Reply{Status: 400, Body: "short"}, 1, "short", 0},
		{"long", "GET", faulttest.Reply{Status: 400, Body: long}, 1, long[:16<<10], 0},
		{"empty", "GET", faulttest.Reply{Status: 404}, 1, "", 0},
		{"of a HEAD", "HEAD", faulttest.Reply{Status: 404, Body: "none"}, 1, "", 0},
		{"slow", "GET", faulttest.Reply{Status: 400, Body: "0123456789", Pause: 30 * time.Millisecond}, 1, "012", 100 * time.Millisecond},
		{"late, whole", "GET", faulttest.Reply{Status: 400, Body: "01", Pause: 30 * time.Millisecond}, 1, "01", 60 * time.Millisecond},
		{"silent", "GET", faulttest.Reply{Status: 400, Body: "01", Pause: time.Hour}, 1, "", 100 * time.Millisecond},
		{"a success", "GET", faulttest.Reply{Body: "fine"}, 0, "", 0},
		{"a redirect", "GET", faulttest.Reply{Status: 302, Body: "there"}, 0, "", 0},
		{"events", "GET", faulttest.Reply{Status: 400, Body: "data: x", Header: text("text/event-stream; charset=utf-8")}, 0, "", 0},
		{"lines", "GET", faulttest.Reply{Status: 400, Body: "{}", Header: text("application/x-ndjson")}, 0, "", 0},
		{"gRPC", "GET", faulttest.Reply{Status: 400, Body: "{}", Header: text("application/grpc+proto")}, 0, "", 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := faulttest.NewInMemory(t, row.reply)
			calls, seen := 0, ""
			tr := &resilienthttp.Transport{Base: api.Transport(), Policy: resilienthttp.Policy{
				ClassifyBody: func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
					calls, seen = calls+1, string(body)
					require.NotNil(t, a.Response)
					return resilienthttp.VerdictPermanent
				},
			}}
			began := time.Now()
			resp := roundTrip(t, tr, newRequest(t, row.method, api.URL, ""))
			require.Equal(t, row.took, time.Since(began))
			require.Equal(t, row.took, lastOf(t, resp).Latency, "§4.24")
			require.Equal(t, row.calls, calls)
			require.Equal(t, row.seen, seen)
			want := row.reply.Body
			if row.method == "HEAD" {
				want = ""
			}
			require.Equal(t, want, readAll(t, resp), "whole")
		})
	}
}

// A body after ClassifyBody reads, fails, ends and closes as before.
func TestClassifyBody_bodyIsUnchanged(t *testing.T) {
	permanent := func(*resilienthttp.Attempt, []byte) resilienthttp.Verdict { return resilienthttp.VerdictPermanent }
	ask := func(t *testing.T, body io.ReadCloser, policy resilienthttp.Policy) (*scriptedBase, *http.Response) {
		t.Helper()
		policy.ClassifyBody = permanent
		base := script(withBody(400, body))
		resp := roundTrip(t, (&resilienthttp.Transport{Base: base, Policy: policy}), get(t))
		return base, resp
	}
	for _, step := range []int{1, 7, 1 << 10, 1 << 20} {
		t.Run(fmt.Sprintf("in steps of %d", step), func(t *testing.T) {
			text := strings.Repeat("0123456789", 5<<10)
			base, resp := ask(t, io.NopCloser(strings.NewReader(text)), resilienthttp.Policy{})
			var got strings.Builder
			_, err := io.CopyBuffer(&got, struct{ io.Reader }{resp.Body}, make([]byte, step))
			require.NoError(t, err)
			require.Equal(t, text, got.String())
			n, err := resp.Body.Read(nil)
			require.Zero(t, n)
			require.NoError(t, resp.Body.Close())
			_ = err
			base.requireBalance(t)
		})
	}
	t.Run("a body that fails", func(t *testing.T) {
		base, resp := ask(t, io.NopCloser(io.MultiReader(strings.NewReader("first"), errorBody{})), resilienthttp.Policy{})
		got, err := io.ReadAll(resp.Body)
		require.Equal(t, "first", string(got))
		require.Equal(t, errReset, err)
		require.NoError(t, resp.Body.Close())
		base.requireBalance(t)
	})
	t.Run("a body that fails once", func(t *testing.T) {
		_, resp := ask(t, io.NopCloser(io.MultiReader(strings.NewReader("first"), &onceBroken{})), resilienthttp.Policy{})
		_, err := io.ReadAll(resp.Body)
		require.Equal(t, errReset, err)
		require.NoError(t, resp.Body.Close())
	})
	bubble.Run(t, "a slow body is read as it arrives", func(t *testing.T) {
		api := faulttest.NewInMemory(t, faulttest.Reply{Status: 400, Body: "0123456789", Pause: 30 * time.Millisecond})
		tr := &resilienthttp.Transport{Base: api.Transport(), Policy: resilienthttp.Policy{ClassifyBody: permanent}}
		began := time.Now()
		resp := roundTrip(t, tr, newRequest(t, "GET", api.URL, ""))
		for range 4 {
			_, err := io.ReadFull(resp.Body, make([]byte, 1))
			require.NoError(t, err)
		}
		require.Equal(t, 120*time.Millisecond, time.Since(began))
		require.Equal(t, "456789", readAll(t, resp))
	})
	bubble.Run(t, "a body that never arrives, closed", func(t *testing.T) {
		base, resp := ask(t, newBlocking(), resilienthttp.Policy{})
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		base.requireBalance(t)
	})
	bubble.Run(t, "a body that never arrives, with ReadTimeout", func(t *testing.T) {
		base, resp := ask(t, newBlocking(), resilienthttp.Policy{ReadTimeout: time.Second})
		_, err := resp.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, resilienthttp.ErrReadTimeout)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		base.requireBalance(t)
	})
	t.Run("a body that panics", func(t *testing.T) {
		_, resp := ask(t, panickyBody{}, resilienthttp.Policy{})
		require.PanicsWithValue(t, "a body that panics", func() { _, _ = resp.Body.Read(make([]byte, 1)) }, "Read panics")
		require.NoError(t, resp.Body.Close())
	})
	t.Run("a wrong count of bytes", func(t *testing.T) {
		_, resp := ask(t, io.NopCloser(boastful{}), resilienthttp.Policy{})
		_, err := resp.Body.Read(make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

// onceBroken fails once, and would then continue.
type onceBroken struct{ failed bool }

func (b *onceBroken) Read(p []byte) (int, error) {
	if !b.failed {
		b.failed = true
		return 0, errReset
	}
	return copy(p, "more"), io.EOF
}

// boastful returns a number of bytes that is larger than the buffer.
type boastful struct{}

func (boastful) Read(p []byte) (int, error) { return len(p) + 1, nil }

// A canceled call does not wait for the body.
func TestClassifyBody_canceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script(withBody(500, newBlocking()))
		tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{
			ClassifyBody: func(*resilienthttp.Attempt, []byte) resilienthttp.Verdict { return resilienthttp.VerdictDefault },
		}}
		ctx := withDeadline(t, 20*time.Millisecond)
		began := time.Now()
		resp, err := tr.RoundTrip(get(t).WithContext(ctx))
		require.Equal(t, 20*time.Millisecond, time.Since(began))
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		synctest.Wait()
		base.requireBalance(t)
	})
}

// §4.17a: the problem quota-exceeded of a 429 or 503 names its policies in Attempt, State, Explain and the log. No other body
// is read for it.
func TestQuotaExceeded(t *testing.T) {
	const kind = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problem := func(policies string) string {
		return `{"type":"` + kind + `","title":"too many","violated-policies":` + policies + `}`
	}
	daily := problem(`["daily"]`)
	for _, row := range []struct {
		name, media, body string
		status            int
		want              []string
		read              bool // before the caller does
	}{
		{"one policy", "application/problem+json", daily, 429, []string{"daily"}, true},
		{"two policies, and a parameter", "Application/Problem+JSON; charset=utf-8", problem(`["daily","per user"]`), 429, []string{"daily", "per user"}, true},
		{"503", "application/problem+json", daily, 503, []string{"daily"}, true},
		{"no policies", "application/problem+json", problem(`null`), 429, nil, true},
		{"another type", "application/problem+json", strings.Replace(daily, "quota-exceeded", "date", 1), 429, nil, true},
		{"not JSON", "application/problem+json", daily[1:], 429, nil, true},
		{"above 16 KiB", "application/problem+json", problem(`["` + strings.Repeat("x", 16<<10) + `"]`), 429, nil, true},
		{"names that would forge a line, or are no text", "application/problem+json", problem(`["a\nb","é","\u007f","",7,{"x":1},"` + strings.Repeat("x", 129) + `","ok"]`), 429, []string{"ok"}, true},
		{"16 names at most", "application/problem+json", problem(`["p"` + strings.Repeat(`,"p"`, 99) + `]`), 429, slices.Repeat([]string{"p"}, 16), true},
		{"another media type: not read", "application/json", daily, 429, nil, false},
		{"another status: not read", "application/problem+json", daily, 500, nil, false},
		{"a success: not read", "application/problem+json", daily, 200, nil, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var log strings.Builder
			base := script(replies(row.status, row.body, "Content-Type", row.media))
			tr := &resilienthttp.Transport{
				Policy: resilienthttp.Policy{MaxAttempts: 1},
				Trace:  resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, nil))),
				Base:   base,
			}
			resp := roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/", ""))
			require.Equal(t, row.read, base.reads.Load() > 0)
			require.Equal(t, row.body, readAll(t, resp), "the caller reads the body whole")
			require.Equal(t, row.want, resilienthttp.Attempts(resp)[0].Policies())
			require.Equal(t, row.want, tr.State().Scopes[0].Failure.Policies)
			said := strings.Join(row.want, ", ")
			require.Equal(t, row.want != nil, strings.Contains(resilienthttp.Explain(resp, nil), ", violated: "+said))
			require.Equal(t, row.want != nil, strings.Contains(log.String(), "quota_policies="), log.String())
		})
	}
	bubble.Run(t, "a body that does not arrive: after 100 ms", func(t *testing.T) {
		read, write := io.Pipe()
		tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: 1}, Base: script(withBody(429, read, "Content-Type", "application/problem+json"))}
		began := time.Now()
		resp := roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/", ""))
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Nil(t, resilienthttp.Attempts(resp)[0].Policies())
		go func() { _, _ = io.WriteString(write, daily); _ = write.Close() }()
		require.Equal(t, daily, readAll(t, resp))
	})
}

// takeWait is a ClassifyBody that sets the wait of a body such as "wait 38s".
func takeWait(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	value, _ := strings.CutPrefix(string(body), "wait ")
	if wait, _ := time.ParseDuration(value); wait != 0 {
		a.RetryAfter = wait
	}
	return resilienthttp.VerdictDefault
}

// replies responds with a status, a body and a header.
func replies(code int, body string, header ...string) step {
	return withBody(code, io.NopCloser(strings.NewReader(body)), header...)
}

// §4.11: the call waits as long as Classify and ClassifyBody leave in Attempt.RetryAfter.
func TestAttempt_RetryAfter(t *testing.T) {
	t.Parallel()
	setTo := func(wait time.Duration) func(*resilienthttp.Attempt) resilienthttp.Verdict {
		return func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			a.RetryAfter = wait
			return resilienthttp.VerdictDefault
		}
	}
	failsWith := func(wait time.Duration) func(*resilienthttp.Attempt) resilienthttp.Verdict {
		return func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			if a.Number > 1 {
				return resilienthttp.VerdictDefault
			}
			a.RetryAfter = wait
			return resilienthttp.VerdictTransient
		}
	}
	for _, row := range []struct {
		name     string
		reply    step
		policy   resilienthttp.Policy
		want     time.Duration // Attempt.RetryAfter
		attempts int
		stop     error
	}{
		{"header alone", status(429, "Retry-After", "30"), resilienthttp.Policy{}, 30 * time.Second, 2, nil},
		{"reset of an exhausted quota", status(429, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"), resilienthttp.Policy{}, 30 * time.Second, 2, nil},
		{"no wait", status(503), resilienthttp.Policy{}, 0, 2, nil},
		{"body: one retry at 38 s", replies(429, "wait 38s"), resilienthttp.Policy{ClassifyBody: takeWait}, 38 * time.Second, 2, nil},
		{"body replaces the header", replies(429, "wait 38s", "Retry-After", "2"), resilienthttp.Policy{ClassifyBody: takeWait}, 38 * time.Second, 2, nil},
		{"Classify replaces the body", replies(429, "wait 38s"), resilienthttp.Policy{ClassifyBody: takeWait, Classify: setTo(20 * time.Second)}, 20 * time.Second, 2, nil},
		{"zero removes the header's wait", status(429, "Retry-After", "30"), resilienthttp.Policy{Classify: setTo(0)}, 0, 2, nil},
		{"negative: none", status(429), resilienthttp.Policy{Classify: setTo(math.MinInt64)}, 0, 2, nil},
		{"body above MaxRetryAfter: at once", replies(429, "wait 61s"), resilienthttp.Policy{ClassifyBody: takeWait}, 61 * time.Second, 1, resilienthttp.ErrRetryAfter},
		{"overflow: the maximum", status(429), resilienthttp.Policy{Classify: setTo(math.MaxInt64)}, 365 * 24 * time.Hour, 1, resilienthttp.ErrRetryAfter},
		{"error", failing(errReset), resilienthttp.Policy{Classify: failsWith(20 * time.Second)}, 20 * time.Second, 2, nil},
		{"success that Classify fails: its wait", status(200, "Retry-After", "2"), resilienthttp.Policy{Classify: failsWith(20 * time.Second)}, 20 * time.Second, 2, nil},
		{"success that Classify fails: the header's", status(200, "Retry-After", "20"), resilienthttp.Policy{Classify: failsWith(0)}, 20 * time.Second, 2, nil},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			base := script(row.reply, status(200))
			tr := &resilienthttp.Transport{Base: base, Policy: row.policy, RateLimit: &resilienthttp.RateLimit{IgnoreHeaders: true}}
			began := time.Now()
			resp := roundTrip(t, tr, get(t))
			took := time.Since(began)
			_ = readAll(t, resp)
			attempts := resilienthttp.Attempts(resp)
			require.Len(t, attempts, row.attempts)
			first := attempts[0]
			assert.Equal(t, row.want, first.RetryAfter)
			assert.Equal(t, row.stop, first.StopReason)
			if row.stop != nil {
				assert.Zero(t, took)
				assert.Equal(t, row.want, first.RetryWait)
				assert.Equal(t, began.Add(row.want), resilienthttp.NotBefore(resp, nil))
				return
			}
			assert.GreaterOrEqual(t, took, row.want, "the wait is a minimum")
			assert.LessOrEqual(t, took, row.want+max(row.want/2, 1250*time.Millisecond), "jitter adds at most half")
			base.requireBalance(t)
		})
	}
}

// V1: the wait that Classify leaves changes no answer to the question whether a request may be
// repeated.
func TestAttempt_RetryAfter_repeatsNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		reply    step
		wait     time.Duration
		attempts int
	}{
		{"503 without header, with a wait of the body", status(503), time.Second, 1},
		{"409, with a wait of the body", status(409), time.Second, 1},
		{"503 with header, and the wait is removed", status(503, "Retry-After", "5"), 0, 1},
		{"503 that says that nothing was executed, and the wait is removed", status(503, "Request-Executed", "?0"), 0, 2},
		{"429, with a wait of the body", status(429), time.Second, 2},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			tr := withoutKeys(&resilienthttp.Transport{Base: script(row.reply, status(200)), Policy: resilienthttp.Policy{
				Classify: func(a *resilienthttp.Attempt) resilienthttp.Verdict {
					a.RetryAfter = row.wait
					return resilienthttp.VerdictDefault
				},
			}})
			resp := roundTrip(t, tr, newRequest(t, http.MethodPost, "http://mem.test/", "{}"))
			_ = readAll(t, resp)
			require.Len(t, resilienthttp.Attempts(resp), row.attempts)
		})
	}
}

// §4.17: twenty workers use a quota of a minute. The rate limit counts a wait that stands in the
// body as if it stood in the header.
func TestRateLimit_waitInBody(t *testing.T) {
	t.Parallel()
	most := map[string]int{} // rejections in a window
	for _, row := range []struct {
		name    string
		status  int
		header  bool                  // the header tells the wait, not the body
		verdict resilienthttp.Verdict // of ClassifyBody, for a rejection
	}{
		{"header", http.StatusTooManyRequests, true, resilienthttp.VerdictDefault},
		{"body", http.StatusTooManyRequests, false, resilienthttp.VerdictDefault},
		{"403, a rejection by its body", http.StatusForbidden, false, resilienthttp.VerdictThrottled},
	} {
		synctest.Test(t, func(t *testing.T) {
			const windows = 5
			server := &quotaOfMinute{limit: 60, status: row.status, header: row.header, began: time.Now()}
			tr := &resilienthttp.Transport{Base: server, Breaker: never(), Policy: resilienthttp.Policy{
				ClassifyBody: func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
					takeWait(a, body)
					return row.verdict
				},
			}}
			var workers sync.WaitGroup
			for range 20 {
				workers.Go(func() {
					for time.Since(server.began) < windows*time.Minute {
						resp, err := tr.RoundTrip(get(t))
						if err != nil {
							time.Sleep(max(time.Until(resilienthttp.NotBefore(nil, err)), time.Second))
							continue
						}
						_ = readAll(t, resp)
					}
				})
			}
			workers.Wait()
			t.Logf("%s: served and rejected in each window: %v", row.name, server.counts)
			for window, n := range server.counts[:windows] {
				assert.GreaterOrEqual(t, n.served, server.limit*95/100, "%s, window %d", row.name, window)
				most[row.name] = max(most[row.name], n.rejected)
			}
		})
		assert.LessOrEqual(t, most[row.name], most["header"]+most["header"]/2, row.name)
	}
}

// §4.17: a program that knows the API may say that a rejection is about all calls: then the first one holds the others of
// its scope, credential and Key.
func TestRateLimit_saidByClassify(t *testing.T) {
	t.Parallel()
	const throttled, byTable = resilienthttp.VerdictThrottled, resilienthttp.VerdictDefault
	limited := func(code int, header ...string) step { return replies(code, "wait 60s", header...) }
	for _, row := range []struct {
		name    string
		reply   step
		verdict resilienthttp.Verdict // of ClassifyBody
		change  func(other *http.Request)
		edit    func(*resilienthttp.RateLimit)
		held    bool // the other call
	}{
		{name: "a 403: held", reply: limited(403), verdict: throttled, held: true},
		{name: "a 429: held", reply: limited(429), verdict: throttled, held: true},
		{name: "a 400: held", reply: limited(400), verdict: throttled, held: true},
		{name: "a 403 that shows another quota: held", reply: limited(403, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "3000"), verdict: throttled, held: true},
		{name: "by the table it is about its own call", reply: limited(429), verdict: byTable},
		{name: "a wait of the header is about its own call", reply: status(429, "Retry-After", "60"), verdict: throttled},
		{name: "a 503 is no limit", reply: limited(503), verdict: throttled},
		{name: "an error has no limit", reply: failing(errReset), verdict: throttled},
		{name: "another path tests it", reply: limited(403), verdict: throttled, change: func(r *http.Request) { r.URL.Path = "/other" }},
		{name: "another credential", reply: limited(403), verdict: throttled, change: func(r *http.Request) { r.Header.Set("Authorization", "Bearer other") }},
		{name: "another Key", reply: limited(403), verdict: throttled, change: func(r *http.Request) { r.Header.Set("Model", "other") },
			edit: func(l *resilienthttp.RateLimit) {
				l.Key = func(r *http.Request) string { return r.Header.Get("Model") }
			}},
		{name: "IgnoreHeaders", reply: limited(403), verdict: throttled, edit: func(l *resilienthttp.RateLimit) { l.IgnoreHeaders = true }},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			base := script(row.reply, status(200))
			limit := &resilienthttp.RateLimit{}
			if row.edit != nil {
				row.edit(limit)
			}
			tr := &resilienthttp.Transport{Base: base, RateLimit: limit, Policy: resilienthttp.Policy{
				MaxAttempts: -1,
				ClassifyBody: func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
					takeWait(a, body)
					return row.verdict
				},
				Classify: func(a *resilienthttp.Attempt) resilienthttp.Verdict {
					if a.Err == nil {
						return resilienthttp.VerdictDefault
					}
					a.RetryAfter = time.Minute
					return row.verdict
				},
			}}
			first := get(t)
			first.Header.Set("Authorization", "Bearer one")
			resp, err := tr.RoundTrip(first)
			finish(t, resp, err)

			other := first.Clone(withDeadline(t, 30*time.Second))
			if row.change != nil {
				row.change(other)
			}
			resp, err = tr.RoundTrip(other)
			if row.held {
				require.ErrorIs(t, err, resilienthttp.ErrRateLimited)
				require.ErrorIs(t, err, resilienthttp.ErrDeadline)
				require.Len(t, base.calls(), 1)
				return
			}
			require.NoError(t, err)
			_ = readAll(t, resp)
			require.Len(t, base.calls(), 2)
			base.requireBalance(t)
		})
	}
}

// §4.17: a rejection that only ClassifyBody knows is no success, so it does not end what holds other calls.
func TestRateLimit_saidByClassifyIsNotServed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		test step // the response to the call that tests
		held bool
	}{
		{"a rejection of another path", replies(400, "rate_exceeded"), true},
		{"a success of another path", status(200), false},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			base := script(replies(403, "wait 60s"), row.test, status(200))
			tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{
				MaxAttempts: -1,
				ClassifyBody: func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
					takeWait(a, body)
					return resilienthttp.VerdictThrottled
				},
			}}
			_ = readAll(t, roundTrip(t, tr, get(t)))
			time.Sleep(time.Second)
			_ = readAll(t, roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/other", "")))
			time.Sleep(time.Second)
			_, err := tr.RoundTrip(get(t).WithContext(withDeadline(t, 30*time.Second)))
			require.Equal(t, row.held, errors.Is(err, resilienthttp.ErrRateLimited))
		})
	}
}

// quotaOfMinute serves limit requests in each minute, after 100 ms each. Its rejections tell the
// wait in the header or in the body.
type quotaOfMinute struct {
	limit, status int
	header        bool
	began         time.Time

	mu     sync.Mutex
	counts []struct{ served, rejected int }
}

func (s *quotaOfMinute) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(100 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Since(s.began)
	window := int(since / time.Minute)
	for len(s.counts) <= window {
		s.counts = append(s.counts, struct{ served, rejected int }{})
	}
	if n := &s.counts[window]; n.served < s.limit {
		n.served++
		return response(r, http.StatusOK, "{}"), nil
	}
	s.counts[window].rejected++
	wait := time.Duration(window+1)*time.Minute - since
	if s.header {
		return response(r, s.status, "", "Retry-After-Ms", strconv.FormatInt(wait.Milliseconds()+1, 10)), nil
	}
	return response(r, s.status, fmt.Sprintf("wait %s", wait)), nil
}

// provider is a Base that does the work of a key once. While the work lasts it responds 409 to
// another request with the key, and after it with the stored 201, as payment providers do.
type provider struct {
	works  time.Duration // of the work
	loses  time.Duration // after it the connection of the first request is closed; 0: never
	lost   int           // if not 0, the status of a gateway instead of a closed connection
	header http.Header   // of each 409

	mu       sync.Mutex
	requests int
	done     map[string]time.Time // by key, the end of the work
}

func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	p.mu.Lock()
	p.requests++
	key, begun := req.Header.Get("Idempotency-Key"), time.Now()
	end, duplicate := p.done[key]
	if !duplicate {
		end = begun.Add(p.works)
		p.done[key] = end
	}
	p.mu.Unlock()
	if duplicate && time.Now().Before(end) {
		resp := response(req, http.StatusConflict, "body")
		maps.Copy(resp.Header, p.header)
		return resp, nil
	}
	wait := time.Until(end)
	loses := p.loses > 0 && !duplicate
	if loses {
		wait = min(wait, p.loses)
	}
	if err := sleep.Context(req.Context(), wait); err != nil {
		return nil, err
	}
	switch {
	case loses && p.lost != 0:
		return response(req, p.lost, "body"), nil
	case loses:
		return nil, io.EOF
	}
	return response(req, http.StatusCreated, "body"), nil
}

// §4.9: a 409 is not the result of a call while the server may be at work at another attempt with
// the same key. After a known failure it is.
func TestConflict_whileTheServerMayBeAtWork(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	callers := func(ctx context.Context) context.Context { return resilienthttp.WithIdempotencyKey(ctx, "order-1") }
	for _, row := range []struct {
		name     string
		provider *provider
		ctx      func(context.Context) context.Context
		deadline time.Duration // 0: none
		arrange  func(*resilienthttp.Transport)
		want     int
		sent     int // requests
	}{
		{name: "slow, the caller's key, a deadline: one request", provider: &provider{works: 3 * s}, ctx: callers, deadline: 5 * s, want: 201, sent: 1},
		{name: "slow, the caller's key, no deadline: one request", provider: &provider{works: 40 * s}, ctx: callers, want: 201, sent: 1},
		{name: "closed connection, generated key: retried until the work is done", provider: &provider{works: 2200 * ms, loses: 10 * ms}, want: 201, sent: 3},
		{name: "closed connection, a deadline: the last wait uses its time", provider: &provider{works: 2200 * ms, loses: 10 * ms}, deadline: 5 * s, want: 201, sent: 3},
		{name: "lost late: the 409 comes at once, and the rest of the deadline is used", provider: &provider{works: 4 * s, loses: 3500 * ms}, deadline: 5 * s, want: 201, sent: 3},
		{name: "lost late, with Retry-After", provider: &provider{works: 4 * s, loses: 3500 * ms, header: http.Header{"Retry-After": {"1"}}}, deadline: 5 * s, want: 201, sent: 3},
		{name: "lost in the second half of 20 s", provider: &provider{works: 15 * s, loses: 11 * s}, deadline: 20 * s, want: 201, sent: 3},
		{name: "502 of a gateway", provider: &provider{works: 2200 * ms, loses: 10 * ms, lost: 502}, want: 201, sent: 3},
		{name: "504 of a gateway", provider: &provider{works: 2200 * ms, loses: 10 * ms, lost: 504}, want: 201, sent: 3},
		{name: "attempt timeout", provider: &provider{works: 3 * s}, arrange: func(t *resilienthttp.Transport) { t.Policy.AttemptTimeout = s }, want: 201, sent: 2},
		{name: "work of a minute: two retries, then the 409", provider: &provider{works: time.Minute, loses: 10 * ms}, want: 409, sent: 4},
		{name: "many attempts: still two retries after a 409", provider: &provider{works: time.Minute, loses: 10 * ms}, arrange: func(t *resilienthttp.Transport) {
			t.Policy.MaxAttempts, t.Policy.Backoff = 10, resilienthttp.Constant(s)
		}, want: 409, sent: 4},
		{name: "hedge gets the 409, the first attempt the result", provider: &provider{works: 3 * s}, arrange: func(t *resilienthttp.Transport) {
			t.Hedge = &resilienthttp.Hedge{Delay: s, MaxRatio: -1}
		}, want: 201, sent: 2},
		{name: "should-retry false decides first", provider: &provider{works: 3 * s, loses: 10 * ms, header: http.Header{"X-Should-Retry": {"false"}}}, want: 409, sent: 2},
		{name: "without a key: not repeated", provider: &provider{works: 3 * s, loses: 10 * ms}, arrange: func(t *resilienthttp.Transport) { t.Idempotency.Disabled = true }, want: 0, sent: 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := row.provider
			base.done = map[string]time.Time{}
			transport := &resilienthttp.Transport{Base: base}
			if row.arrange != nil {
				row.arrange(transport)
			}
			ctx := applied(t.Context(), row.ctx)
			ctx = until(t, ctx, row.deadline)
			resp, err := transport.RoundTrip(newCall(ctx, t, http.MethodPost, "charge"))
			if row.want == 0 {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, row.want, resp.StatusCode)
				readAll(t, resp)
			}
			synctest.Wait()
			require.Len(t, base.done, 1, "the work is done once")
			require.Equal(t, row.sent, base.requests)
		})
	}
	t.Run("without another attempt, or after a known failure: final", func(t *testing.T) {
		for _, statuses := range [][]int{{409}, {500, 409}, {503, 409}, {408, 409}} {
			synctest.Test(t, func(t *testing.T) {
				base := script()
				for _, code := range statuses {
					base.steps = append(base.steps, status(code))
				}
				resp := roundTrip(t, bareTransport(base, 6), newCall(t.Context(), t, http.MethodPost, "charge"))
				require.Equal(t, http.StatusConflict, resp.StatusCode)
				require.Len(t, base.calls(), len(statuses), "%v", statuses)
			})
		}
	})
}

// §4.9: a 4xx to a hedge of an unsafe method is the result only if no other attempt gets a
// response. With a safe method the first final response wins.
func TestHedge_keepsA4xxOfAnUnsafeMethod(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name, method string
		copies       []copyOf
		want         string
	}{
		{"POST: the first attempt's response wins", "POST", []copyOf{{after: 3 * s, status: 201}, {status: 422}}, "1 201, 1h 422"},
		{"POST: also a failure, which is retried", "POST", []copyOf{{after: 3 * s, status: 500}, {status: 422}, {status: 201}}, "1 500, 1h 422, 2 201"},
		{"POST: the hedge's, if the first attempt gets no response", "POST", []copyOf{{after: 3 * s, err: io.EOF}, {status: 422}}, "1 EOF, 1h 422"},
		{"POST: a 409 to the first attempt, while the hedge is at work", "POST", []copyOf{{after: 2 * s, status: 409}, {after: 5 * s, status: 201}}, "1 409, 1h 201"},
		{"GET: the hedge wins", "GET", []copyOf{{after: 3 * s}, {status: 404}}, "1 lost, 1h 404"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			base := newHedgeBase(row.copies...)
			transport := hedging(base, 3, &resilienthttp.Hedge{Delay: s, MaxRatio: -1})
			require.Equal(t, row.want, story(tripped(t, transport, newCall(t.Context(), t, row.method, ""))))
			base.balanced(t)
		})
	}
}
