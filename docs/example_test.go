package docs_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/doctable"
	"github.com/resilienthttp/resilienthttp/internal/transcript"
)

// TestExamples compares each example of the pages with what happens now. UPDATE_DOCS=1 rewrites them.
// A transcript is always the same: time is virtual, and random waits are given or shown as a range.
func TestExamples(t *testing.T) {
	for _, row := range []struct {
		page, name string // "": the page's
		story      func(*testing.T) string
	}{
		{page: "retries", story: retriesExample},
		{page: "idempotency-keys", story: idempotencyKeysExample},
		{page: "payments", story: paymentsExample},
		{page: "deadlines", story: deadlinesExample},
		{page: "hedging", story: hedgingExample},
		{page: "errors", story: errorsExample},
		{"endpoints", "endpoints-get", endpointsGetExample},
		{"endpoints", "endpoints-post", endpointsPostExample},
		{"endpoints", "endpoints-back", endpointsBackExample},
		{page: "downloads", story: downloadsExample},
		{page: "backoff", story: backoffExample},
		{page: "retry-budget", story: retryBudgetExample},
		{page: "circuit-breaker", story: shortOutageExample},
		{"circuit-breaker", "circuit-breaker-deadlines", deadlinesOfOutages},
		{"rate-limits", "rate-limits-quota", quotaExample},
		{"rate-limits", "rate-limits-bucket", bucketExample},
		{"rate-limits", "rate-limits-rejections", rejectionsExample},
		{page: "server-idempotency", story: serverIdempotencyExample},
		{page: "admission", story: admissionExample},
		{page: "durable", story: durableExample},
	} {
		name := row.name
		if name == "" {
			name = row.page
		}
		bubble.Run(t, name, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC))) // a bubble begins in 2000
			doctable.Example(t, row.page+".md", name, row.story(t))
		})
	}
}

// events is a transcript of several calls, in the form of resilienthttp.Explain. Each cell comes
// from an observation.
type events struct {
	start  time.Time
	titles []string // without the time
	calls  int      // of the last line

	mu   sync.Mutex
	rows [][]string
}

func newEvents(titles ...string) *events { return &events{start: time.Now(), titles: titles} }

// add adds a line for what has happened now.
func (e *events) add(cells ...string) { e.addAt(time.Now(), cells...) }

func (e *events) addAt(at time.Time, cells ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows = append(e.rows, append([]string{transcript.Duration(at.Sub(e.start))}, cells...))
}

// addCall adds a call that began then. The first cell is the number of calls: those that follow each
// other with equal cells are one line. The state after the latest of them is its last cell.
func (e *events) addCall(began time.Time, state string, cells ...string) {
	if n := len(e.rows); n > 0 && slices.Equal(e.rows[n-1][2:len(cells)+2], cells) {
		e.calls++
		e.rows[n-1][1], e.rows[n-1][len(cells)+2] = strconv.Itoa(e.calls), state
		return
	}
	e.calls = 1
	e.addAt(began, slices.Concat([]string{"1"}, cells, []string{state})...)
}

func (e *events) String() string {
	return transcript.Table(append([]string{"at"}, e.titles...), e.rows)
}

// latency is the duration of a response of the examples' servers.
const latency = 20 * time.Millisecond

// after returns a handler that responds after a time.
func after(d time.Duration, handler http.Handler) http.Handler {
	return faulttest.Reply{Handler: handler, Delay: d}
}

func usual(handler http.Handler) http.Handler { return after(latency, handler) }

// lost executes a request and loses its response.
func lost(work http.Handler) http.Handler {
	reply := faulttest.LoseResponse(work)
	reply.Delay = latency
	return reply
}

// observed is a RoundTripper that a story watches.
type observed func(*http.Request) (*http.Response, error)

func (f observed) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// drawn is a Backoff that returns the given waits. They stand for random ones.
func drawn(waits ...time.Duration) resilienthttp.Backoff {
	return func(retry int, _ time.Duration) time.Duration { return waits[min(retry, len(waits))-1] }
}

// result is the status of a response, or the type of the error.
func result(resp *http.Response, err error) string {
	if err != nil {
		return resilienthttp.ErrorType(err)
	}
	return strconv.Itoa(resp.StatusCode)
}

// fields returns the fields with those names, each after a comma.
func fields(h http.Header, names ...string) (text string) {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			text += ", " + name + ": " + value
		}
	}
	return text
}

// with is an edit of a call's request: another context.
func with(ctx context.Context) func(*http.Request) *http.Request {
	return func(r *http.Request) *http.Request { return r.WithContext(ctx) }
}

// call makes a call with a body, or without one if it is empty, and reads the response.
func call(t *testing.T, transport http.RoundTripper, method, url, body string, edit ...func(*http.Request) *http.Request) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for _, f := range edit {
		req = f(req)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	return resp, err
}
