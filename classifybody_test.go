package resilienthttp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
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
		{"transient, with status 400", 400, lock, "POST", false, nil, 5, resilienthttp.VerdictTransient},
		{"V1: the same without a key", 400, lock, "POST", true, nil, 1, resilienthttp.VerdictTransient},
		{"permanent, with status 429", 429, quota, "GET", false, nil, 1, resilienthttp.VerdictPermanent},
		{"throttled, with status 403", 403, "You have exceeded a secondary rate limit.", "GET", false, nil, 5, resilienthttp.VerdictThrottled},
		{"the table's", 400, `{}`, "GET", false, nil, 1, resilienthttp.VerdictPermanent},
		{"no verdict", 503, "not a verdict", "GET", false, nil, 4, resilienthttp.VerdictTransient},
		{"overruled by Classify", 429, quota, "GET", false, toTransient, 4, resilienthttp.VerdictTransient},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := faulttest.NewInMemory(t, faulttest.Reply{Status: row.status, Body: row.body})
			tr := &resilienthttp.Transport{
				Base:        api.Transport(),
				Policy:      resilienthttp.Policy{ClassifyBody: byCode, Classify: row.classify},
				Idempotency: resilienthttp.Idempotency{Disabled: row.keyless},
			}
			resp := roundTrip(t, tr, newRequest(t, row.method, api.URL, map[bool]string{true: "{}"}[row.method == "POST"]))
			require.Equal(t, row.status, resp.StatusCode)
			require.Equal(t, row.body, readAll(t, resp), "the caller still reads it whole")
			require.Len(t, resilienthttp.Attempts(resp), row.attempts)
			require.Equal(t, row.verdict, lastOf(t, resp).Verdict)
		})
	}
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
		resp, err := tr.RoundTrip(newRequest(t, "GET", api.URL, ""))
		require.NoError(t, err)
		for range 4 {
			_, err = io.ReadFull(resp.Body, make([]byte, 1))
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
		_, resp := ask(t, io.NopCloser(panickingReader{}), resilienthttp.Policy{})
		require.PanicsWithValue(t, "read", func() { _, _ = resp.Body.Read(make([]byte, 1)) }, "Read panics")
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

type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("read") }

// boastful returns a number of bytes that is larger than the buffer.
type boastful struct{}

func (boastful) Read(p []byte) (int, error) { return len(p) + 1, nil }

// A panic of ClassifyBody leaves no body open.
func TestClassifyBody_panics(t *testing.T) {
	base := script(status(500))
	tr := &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{
		ClassifyBody: func(*resilienthttp.Attempt, []byte) resilienthttp.Verdict { panic("mine") },
	}}
	require.PanicsWithValue(t, "mine", func() { _, _ = tr.RoundTrip(get(t)) })
	base.requireBalance(t)
}

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
			body := &countedReader{Reader: strings.NewReader(row.body)}
			tr := &resilienthttp.Transport{
				Policy: resilienthttp.Policy{MaxAttempts: 1},
				Trace:  resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&log, nil))),
				Base: puppet(func(req *http.Request) (*http.Response, error) {
					resp := puppetAnswer(req, row.status, "Content-Type", row.media)
					resp.Body, resp.ContentLength = io.NopCloser(body), -1
					return resp, nil
				}),
			}
			resp := roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/", ""))
			require.Equal(t, row.read, body.reads > 0)
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
		tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: 1}, Base: puppet(func(req *http.Request) (*http.Response, error) {
			resp := puppetAnswer(req, 429, "Content-Type", "application/problem+json")
			resp.Body, resp.ContentLength = read, -1
			return resp, nil
		})}
		began := time.Now()
		resp := roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/", ""))
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Nil(t, resilienthttp.Attempts(resp)[0].Policies())
		go func() { _, _ = io.WriteString(write, daily); _ = write.Close() }()
		require.Equal(t, daily, readAll(t, resp))
	})
}

type countedReader struct {
	io.Reader

	reads int
}

func (r *countedReader) Read(p []byte) (int, error) {
	r.reads++
	return r.Reader.Read(p)
}
