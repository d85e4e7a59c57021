package docs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
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

// TestErrorsPage requires an entry in docs/errors.md for each exported error of the
// repository. An error of a driver package may stand there under the name of its alias.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile("errors.md")
	require.NoError(t, err)
	found := 0
	for file, names := range exportedErrors(t) {
		dir := filepath.Dir(file)
		for _, name := range names {
			found++
			entries := []string{"`" + filepath.Base(dir) + "." + name + "`"}
			if dir == "." {
				entries = []string{"| `" + name + "` |"}
			}
			has := false
			for _, entry := range entries {
				has = has || strings.Contains(string(page), entry)
			}
			if !has {
				t.Errorf("%s declares %s: got no entry in docs/errors.md, want one of %v", file, name, entries)
			}
		}
	}
	require.Greater(t, found, 11, "errors of the root and of other packages")
}

// exportedErrors returns the names of the exported errors that the files of this repository
// declare, by file.
func exportedErrors(t *testing.T) map[string][]string {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^(?:\t|var )(Err[A-Z]\w*) += `)
	repository := os.DirFS("..")
	names := map[string][]string{}
	require.NoError(t, fs.WalkDir(repository, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{"internal", "examples", "benchmarks", "crashtest"}, entry.Name()) || len(path) > 1 && strings.HasPrefix(path, ".")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		content, err := fs.ReadFile(repository, path)
		for _, match := range declaration.FindAllStringSubmatch(string(content), -1) {
			names[path] = append(names[path], match[1])
		}
		return err
	}))
	return names
}

// statusOrError is a Base that returns a response with the status, or the error if that is set.
type statusOrError struct {
	status int
	err    error
}

func (s *statusOrError) RoundTrip(*http.Request) (*http.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{}, Body: http.NoBody}, nil
}

// TestBackoffPage tries each row of the table "Costs in seconds" of docs/backoff.md.
func TestBackoffPage(t *testing.T) {
	page, err := os.ReadFile("backoff.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## Costs in seconds\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4 || cells[0] == "failure" {
			continue
		}
		rows++
		t.Run(cells[0]+", deadline "+cells[1], func(t *testing.T) {
			tries := costCases(cells[0])
			require.NotEmpty(t, tries)
			for _, try := range tries {
				for range 20 { // the waits are random
					synctest.Test(t, func(t *testing.T) { tryCost(t, try, cells) })
				}
			}
		})
	}
	require.Equal(t, 7, rows)
}

// costCase is a server that fails, and the status of a call before it, or 0.
type costCase struct {
	server statusOrError
	before int
}

// costCases returns the cases of a cell of the column "failure".
func costCases(failure string) []costCase {
	switch failure {
	case "500 or connection reset":
		return []costCase{{server: statusOrError{status: 500}}, {server: statusOrError{err: syscall.ECONNRESET}}}
	case "503, 529, 429 or connection refused":
		return []costCase{
			{server: statusOrError{status: 503}}, {server: statusOrError{status: 529}}, {server: statusOrError{status: 429}},
			{server: statusOrError{err: syscall.ECONNREFUSED}},
		}
	case "timeout":
		return []costCase{{server: statusOrError{err: os.ErrDeadlineExceeded}}}
	case "timeout, server healthy, few calls":
		return []costCase{{server: statusOrError{err: os.ErrDeadlineExceeded}, before: 200}}
	case "500 while the scope only fails":
		return []costCase{{server: statusOrError{status: 500}, before: 500}}
	}
	return nil
}

// tryCost makes the call of one row. The cells are failure, deadline, attempts, and "8–10 s".
func tryCost(t *testing.T, try costCase, cells []string) {
	t.Helper()
	base := try.server
	transport := &resilienthttp.Transport{Base: &base}
	if try.before != 0 {
		base = statusOrError{status: try.before}
		_, _ = costOf(t, transport, "none")
		base = try.server
	}
	attempts, took := costOf(t, transport, cells[1])
	require.Equal(t, cells[2], strconv.Itoa(attempts), "attempts")
	low, high, _ := strings.Cut(strings.TrimSuffix(cells[3], " s"), "–")
	lowest, err := strconv.ParseFloat(low, 64)
	require.NoError(t, err)
	highest, err := strconv.ParseFloat(high, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, took.Seconds(), lowest)
	require.LessOrEqual(t, took.Seconds(), highest)
}

// costOf makes a call that has so long, or "none" for no deadline.
func costOf(t *testing.T, transport *resilienthttp.Transport, deadline string) (attempts int, took time.Duration) {
	t.Helper()
	ctx := t.Context()
	if deadline != "none" {
		limit, err := time.ParseDuration(strings.ReplaceAll(deadline, " ", ""))
		require.NoError(t, err)
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", http.NoBody)
	require.NoError(t, err)
	begin := time.Now()
	resp, err := transport.RoundTrip(req)
	took = time.Since(begin)
	if failed, ok := errors.AsType[*resilienthttp.Error](err); ok {
		return len(failed.Attempts), took
	}
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return len(resilienthttp.Attempts(resp)), took
}
