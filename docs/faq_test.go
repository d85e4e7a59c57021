package docs_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// TestFAQ tries what docs/faq.md says: each symptom, how to see it, and the setting.
func TestFAQ(t *testing.T) {
	for _, row := range []struct {
		name string
		try  func(*testing.T)
	}{
		{"My call took 20 s: the log has the times", faqSlowCall},
		{"Was my POST sent twice: attempts and one key", faqSentTwice},
		{"429 storm: a fixed limit prevents it", faqStorm},
		{"the circuit is open, one endpoint blocks the others: Scope separates them", faqScope},
		{"request body cannot be replayed: a strings.Reader can", faqBody},
		{"504 from DeadlineHandler: the deadline had passed", faqPassedDeadline},
		{"long polls: AttemptTimeout -1 sends one request", faqLongPoll},
		{"two layers retry: OwnsRetries leaves one", faqLayers},
		{"no retries for one call: WithSingleAttempt, and a negative MaxAttempts for all", faqNoRetries},
		{"Retry-After 3600: returned at once, NotBefore has the time", faqRetryAfter},
	} {
		bubble.Run(t, row.name, row.try)
	}
}

func faqGet(t *testing.T, transport *resilienthttp.Transport, url string) (*http.Response, error) {
	t.Helper()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err == nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return resp, err
}

func faqSlowCall(t *testing.T) {
	var out bytes.Buffer
	srv := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.Unavailable(20*time.Second, faulttest.Seconds), faulttest.Status(http.StatusOK)))
	resp, err := faqGet(t, &resilienthttp.Transport{Base: srv.Transport(), Trace: resilienthttp.LogTrace(slog.New(slog.NewTextHandler(&out, nil)))}, srv.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, out.String(), "retry_wait=2")
	require.Contains(t, out.String(), "queue_wait=")
	require.Contains(t, out.String(), "in_flight=")
}

func faqSentTwice(t *testing.T) {
	var charges faulttest.Idempotent
	srv := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.LoseResponse(&charges), &charges))
	resp, err := (&http.Client{Transport: &resilienthttp.Transport{Base: srv.Transport()}}).Post(srv.URL, "text/plain", strings.NewReader("1"))
	require.NoError(t, err)
	defer resp.Body.Close()
	attempts := resilienthttp.Attempts(resp)
	require.Len(t, attempts, 2)
	require.Equal(t, attempts[0].Request.Header.Get("Idempotency-Key"), attempts[1].Request.Header.Get("Idempotency-Key"))
	charges.AssertExactlyOnce(t, 1)

	lost := faulttest.NewInMemory(t, faulttest.LoseResponse(faulttest.Status(http.StatusOK)))
	_, err = (&http.Client{Transport: &resilienthttp.Transport{
		Base: lost.Transport(), Idempotency: resilienthttp.Idempotency{Disabled: true},
	}}).Post(lost.URL, "text/plain", strings.NewReader("1"))
	var failed *resilienthttp.Error
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.NotSent())
	require.ErrorIs(t, err, resilienthttp.ErrNotIdempotent)
	lost.AssertAttempts(t, 1)
}

func faqStorm(t *testing.T) {
	silent := func(limit *resilienthttp.RateLimit) (rejected int) {
		quota := &faulttest.Quota{Limit: 10, Window: time.Second, Dialect: faulttest.NoHeaders, RetryAfterFormat: faulttest.NoRetryAfter}
		srv := faulttest.NewInMemory(t, quota)
		transport := &resilienthttp.Transport{Base: srv.Transport(), RateLimit: limit}
		for range 100 {
			_, err := faqGet(t, transport, srv.URL)
			require.NoError(t, err)
		}
		_, rejected = quota.Counts()
		return rejected
	}
	require.Positive(t, silent(&resilienthttp.RateLimit{}))
	require.Zero(t, silent(&resilienthttp.RateLimit{Limit: 9, Burst: 1}))
}

func faqScope(t *testing.T) {
	waited := func(scope func(*http.Request) string) (longest time.Duration) {
		srv := faulttest.NewInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/export" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		transport := &resilienthttp.Transport{Base: srv.Transport(), Scope: scope, Policy: resilienthttp.Policy{MaxAttempts: -1}}
		for range 20 {
			for range 20 {
				_, _ = faqGet(t, transport, srv.URL+"/export")
				time.Sleep(10 * time.Millisecond)
			}
			begun := time.Now()
			_, err := faqGet(t, transport, srv.URL+"/charge")
			require.NoError(t, err)
			longest = max(longest, time.Since(begun))
		}
		return longest
	}
	require.Positive(t, waited(nil), "the circuit holds it")
	require.Zero(t, waited(func(r *http.Request) string { return r.URL.Host + " " + r.URL.Path }))
}

func faqBody(t *testing.T) {
	for _, row := range []struct {
		body     io.Reader
		attempts []int
	}{{io.MultiReader(strings.NewReader("1")), []int{1}}, {strings.NewReader("1"), []int{2}}} {
		srv := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.ResetBeforeRead, faulttest.Status(http.StatusOK)))
		resp, err := (&http.Client{Transport: &resilienthttp.Transport{Base: srv.Transport()}}).Post(srv.URL, "text/plain", row.body)
		if err == nil {
			resp.Body.Close()
		} else {
			require.ErrorIs(t, err, resilienthttp.ErrNotReplayable)
			require.ErrorContains(t, err, "request body cannot be replayed")
		}
		srv.AssertAttempts(t, row.attempts...)
	}
}

func faqPassedDeadline(t *testing.T) {
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, row := range []struct {
		name    string
		handler http.Handler
		want    int
	}{
		{"with DeadlineHandler: 504", resilienthttp.DeadlineHandler{Next: served}, http.StatusGatewayTimeout},
		{"without it: the handler decides", served, http.StatusOK},
	} {
		srv := faulttest.NewInMemory(t, row.handler)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		require.NoError(t, err)
		req.Header.Set("X-Request-Timeout-Ms", "0")
		resp, err := (&http.Client{Transport: srv.Transport()}).Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, row.want, resp.StatusCode, row.name)
	}
}

func faqLongPoll(t *testing.T) {
	for timeout, want := range map[time.Duration]int{0: 2, -1: 1} {
		srv := faulttest.NewInMemory(t, faulttest.Reply{Delay: 50 * time.Second})
		transport := &resilienthttp.Transport{Base: srv.Transport(), Policy: resilienthttp.Policy{AttemptTimeout: timeout}}
		resp, err := faqGet(t, transport, srv.URL)
		require.NoError(t, err)
		require.Equal(t, want, srv.Total(), "AttemptTimeout %s", timeout)
		if want == 2 {
			attempts := resilienthttp.Attempts(resp)
			require.True(t, attempts[0].Concurrent || attempts[len(attempts)-1].Concurrent, "%+v", attempts)
		}
	}
}

func faqLayers(t *testing.T) {
	requests := func(owns bool) int {
		bottom := faulttest.NewInMemory(t, faulttest.Status(http.StatusInternalServerError))
		inner := &resilienthttp.Transport{Base: bottom.Transport(), Budget: &resilienthttp.Budget{Ratio: -1}}
		middle := faulttest.NewInMemory(t, resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, bottom.URL+"/"+strconv.Itoa(int(time.Now().UnixNano())), nil)
			if err == nil {
				var resp *http.Response
				if resp, err = inner.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
			}
			w.WriteHeader(http.StatusBadGateway)
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, middle.URL, nil)
		require.NoError(t, err)
		outer := &resilienthttp.Transport{Base: middle.Transport(), OwnsRetries: owns, Budget: &resilienthttp.Budget{Ratio: -1}}
		if resp, err := outer.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		require.Positive(t, middle.Total())
		return bottom.Total() / middle.Total()
	}
	require.Equal(t, 1, requests(true))
	require.Greater(t, requests(false), 1)
}

func faqRetryAfter(t *testing.T) {
	srv := faulttest.NewInMemory(t, faulttest.Unavailable(time.Hour, faulttest.Seconds))
	start := time.Now()
	resp, err := faqGet(t, &resilienthttp.Transport{Base: srv.Transport()}, srv.URL)
	require.NoError(t, err)
	require.Zero(t, time.Since(start))
	last := resilienthttp.Attempts(resp)[0]
	require.Equal(t, resilienthttp.ErrRetryAfter, last.StopReason)
	require.GreaterOrEqual(t, last.RetryWait, time.Hour)
	require.WithinRange(t, resilienthttp.NotBefore(resp, err), start.Add(time.Hour), start.Add(2*time.Hour))
}

func faqNoRetries(t *testing.T) {
	srv := faulttest.NewInMemory(t, faulttest.Status(http.StatusInternalServerError))
	for _, row := range []struct {
		ctx      context.Context
		policy   resilienthttp.Policy
		attempts int
	}{
		{t.Context(), resilienthttp.Policy{}, 5},
		{resilienthttp.WithSingleAttempt(t.Context()), resilienthttp.Policy{}, 1},
		{t.Context(), resilienthttp.Policy{MaxAttempts: -1}, 1},
	} {
		transport := &resilienthttp.Transport{Base: srv.Transport(), Policy: row.policy}
		resp, err := call(t, transport, http.MethodGet, srv.URL, "", with(row.ctx))
		require.NoError(t, err)
		require.Len(t, resilienthttp.Attempts(resp), row.attempts)
	}
}
