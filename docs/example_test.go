package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
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

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/download"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/idempotency"
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
		{"circuit-breaker", "circuit-breaker-slots", slotsExample},
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

// retriesExample loses a response and is overloaded. Then it does so to a POST without a key.
func retriesExample(t *testing.T) string {
	var charges faulttest.Idempotent
	bank := faulttest.NewInMemory(t, faulttest.Sequence(
		lost(&charges), usual(faulttest.Unavailable(2*time.Second, faulttest.Seconds)), usual(&charges), lost(&charges),
	))
	transport := &resilienthttp.Transport{Base: bank.Transport()}
	transport.Policy.Backoff = drawn(90*time.Millisecond, 400*time.Millisecond)
	withKey, err := call(t, transport, http.MethodPost, bank.URL+"/charges", `{"amount":100}`)
	require.NoError(t, err)
	resp, err := call(t, &resilienthttp.Transport{
		Base: bank.Transport().Clone(), Idempotency: resilienthttp.Idempotency{Disabled: true},
	}, http.MethodPost, bank.URL+"/charges", `{"amount":100}`)
	return resilienthttp.Explain(withKey, nil) + "\n\n" + resilienthttp.Explain(resp, err)
}

// idempotencyKeysExample shows a call as its client and its server see it.
func idempotencyKeysExample(t *testing.T) string {
	var charges faulttest.Idempotent
	bank := faulttest.NewInMemory(t, faulttest.Sequence(lost(&charges), usual(&charges)))
	transport := &resilienthttp.Transport{Base: bank.Transport()}
	transport.Policy.Backoff = drawn(90 * time.Millisecond)
	ctx := resilienthttp.WithIdempotencyKey(t.Context(), "invoice:001")
	resp, err := call(t, transport, http.MethodPost, bank.URL+"/charges", `{"amount":100}`, with(ctx))
	story := resilienthttp.Explain(resp, err) + "\n\nThe server:\n" + bank.Transcript()
	for key, n := range charges.Executions() {
		story += fmt.Sprintf("charges for key %s: %d\n", key, n)
	}
	return story
}

// deadlinesExample has a server that hangs, and then asks for more time than is left.
func deadlinesExample(t *testing.T) string {
	api := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.Hang, usual(faulttest.Unavailable(2*time.Second, faulttest.Seconds))))
	transport := &resilienthttp.Transport{Base: api.Transport()}
	transport.Policy.AttemptTimeout = 3 * time.Second
	transport.Policy.Backoff = drawn(400 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	explained := resilienthttp.Explain(call(t, transport, http.MethodGet, api.URL+"/orders", "", with(ctx)))
	synctest.Wait() // the server notices the cancellation
	return explained + "\n\nThe server:\n" + api.Transcript()
}

// hedgingExample measures the usual latency, and then meets a slow response.
func hedgingExample(t *testing.T) string {
	const usualCalls = 100
	steps := make([]http.Handler, usualCalls, usualCalls+2)
	for i := range steps {
		steps[i] = usual(faulttest.OK(""))
	}
	api := faulttest.NewInMemory(t, faulttest.Sequence(append(steps, after(time.Second, faulttest.OK("")), usual(faulttest.OK("")))...))
	transport := &resilienthttp.Transport{Base: api.Transport(), Hedge: &resilienthttp.Hedge{}}
	for range usualCalls {
		_, err := call(t, transport, http.MethodGet, api.URL+"/orders", "")
		require.NoError(t, err)
	}
	return resilienthttp.Explain(call(t, transport, http.MethodGet, api.URL+"/orders", ""))
}

// errorsExample has a server that refuses connections.
func errorsExample(t *testing.T) string {
	transport := &resilienthttp.Transport{Base: &statusOrError{err: syscall.ECONNREFUSED}}
	transport.Policy.MaxAttempts = 3
	transport.Policy.Backoff = drawn(400*time.Millisecond, 2*time.Second)
	resp, err := call(t, transport, http.MethodGet, "http://api.test/orders", "")
	require.Error(t, err)
	return err.Error() + "\n\n" + resilienthttp.Explain(resp, err)
}

// regions are two servers in memory: frankfurt.test with the handler, and dublin.test, which works.
func regions(t *testing.T, first http.Handler) (frankfurt *faulttest.Server, list *endpoints.Transport) {
	t.Helper()
	frankfurt = &faulttest.Server{InMemory: true, Host: "frankfurt.test", Script: first}
	frankfurt.Start(t)
	dublin := &faulttest.Server{Network: frankfurt, Host: "dublin.test", Script: after(35*time.Millisecond, faulttest.OK(""))}
	dublin.Start(t)
	list = &endpoints.Transport{Transport: &resilienthttp.Transport{Base: frankfurt.Transport()}}
	for _, srv := range []*faulttest.Server{frankfurt, dublin} {
		u, err := url.Parse(srv.URL)
		require.NoError(t, err)
		list.Endpoints = append(list.Endpoints, endpoints.Endpoint{URL: u})
	}
	return frankfurt, list
}

func endpointsGetExample(t *testing.T) string {
	frankfurt, list := regions(t, usual(faulttest.Status(http.StatusServiceUnavailable)))
	return resilienthttp.Explain(call(t, list, http.MethodGet, frankfurt.URL+"/orders", ""))
}

func endpointsPostExample(t *testing.T) string {
	frankfurt, list := regions(t, faulttest.Sequence(usual(faulttest.Status(http.StatusServiceUnavailable)), usual(faulttest.OK(""))))
	list.Transport.Policy.Backoff = drawn(430 * time.Millisecond)
	return resilienthttp.Explain(call(t, list, http.MethodPost, frankfurt.URL+"/orders", "{}"))
}

// endpointsBackExample makes two GETs a second. The first region refuses connections for ten seconds.
func endpointsBackExample(t *testing.T) string {
	frankfurt, list := regions(t, usual(faulttest.OK("")))
	// Jitter must not decide whether a call in half a second is a probe.
	list.Transport.Breaker = &resilienthttp.Breaker{Cooldown: 600 * time.Millisecond, MaxCooldown: 600 * time.Millisecond}
	e := newEvents("calls", "attempts")
	down := func() bool { now := time.Since(e.start); return now >= 2*time.Second && now < 12*time.Second }
	list.Transport.Base = observed(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "frankfurt.test" && down() {
			return nil, syscall.ECONNREFUSED
		}
		return frankfurt.Transport().RoundTrip(req)
	})
	for range 40 {
		at := time.Now()
		resp, err := call(t, list, http.MethodGet, frankfurt.URL+"/orders", "")
		require.NoError(t, err)
		var visited []string
		for _, a := range resilienthttp.Attempts(resp) {
			visited = append(visited, a.Endpoint+": "+result(a.Response, a.Err))
		}
		e.addCall(at, "", strings.Join(visited, ", "))
		time.Sleep(500*time.Millisecond - time.Since(at))
	}
	return e.String()
}

// downloadsExample breaks a connection after ten bytes.
func downloadsExample(t *testing.T) string {
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "letters.txt", time.Time{}, strings.NewReader("abcdefghijklmnopqrstuvwxyz"))
	})
	mirror := faulttest.NewInMemory(t, faulttest.Sequence(
		faulttest.Reply{Handler: file, Delay: latency, Pause: 100 * time.Millisecond, Chunk: 5, Fault: faulttest.ResetMidBody, At: 10}, usual(file),
	))
	e := newEvents("event", "what")
	base := observed(func(req *http.Request) (*http.Response, error) {
		e.add("request", req.Method+" "+req.URL.Path+fields(req.Header, "Range", "If-Range"))
		resp, err := mirror.Transport().RoundTrip(req)
		if err == nil {
			e.add("response", result(resp, err)+fields(resp.Header, "ETag", "Content-Length", "Content-Range"))
		}
		return resp, err
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, mirror.URL+"/letters.txt", http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &download.Transport{Base: &resilienthttp.Transport{Base: base}}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	for err == nil {
		var n int
		buffer := make([]byte, 64)
		n, err = resp.Body.Read(buffer)
		e.add("read", strings.TrimSuffix(fmt.Sprintf("%q, %v", buffer[:n], err), ", <nil>"))
	}
	return e.String()
}

// backoffExample makes many calls, because the waits are random, and has the range of each wait.
func backoffExample(t *testing.T) string {
	const calls = 1000
	titles := []string{"each response is"}
	rows := [][]string{{"wait before retry 1"}, {"wait before retry 2"}, {"wait before retry 3"}, {"attempts"}, {"calls that end in time"}}
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
		base := &statusOrError{status: status}
		waits, sent, inTime := make([][]time.Duration, 3), []int(nil), 0
		for range calls {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			resp, err := call(t, &resilienthttp.Transport{Base: base}, http.MethodGet, "http://api.test/", "", with(ctx))
			require.NoError(t, err)
			if ctx.Err() == nil {
				inTime++
			}
			cancel()
			attempts := resilienthttp.Attempts(resp)
			for i := range waits {
				waits[i] = append(waits[i], attempts[i].RetryWait)
			}
			sent = append(sent, len(attempts))
		}
		slices.Sort(sent)
		column := []string{
			spread(waits[0]), spread(waits[1]), spread(waits[2]),
			strings.Trim(fmt.Sprint(slices.Compact(sent)), "[]"), fmt.Sprintf("%d of %d", inTime, calls),
		}
		for i := range rows {
			rows[i] = append(rows[i], column[i])
		}
		titles = append(titles, strconv.Itoa(status))
	}
	return transcript.Table(titles, rows)
}

// spread returns the range of random times. The longest is rounded up to two digits or less, and the
// shortest down to a quarter of the last one: so a thousand draws always have the same range.
func spread(times []time.Duration) string {
	longest, digit := slices.Max(times), time.Millisecond
	for longest >= 50*digit {
		digit *= 10
	}
	if rest := longest % digit; rest > 0 {
		longest += digit - rest
	}
	return slices.Min(times).Truncate(digit/4).String() + "–" + longest.String()
}

// retryBudgetExample has ten calls a second to a server that fails for ten seconds, with the budget and without. The circuit is
// off. The requests are the mean of five runs, because the waits are random.
func retryBudgetExample(t *testing.T) string {
	const runs = 5
	var rows [][]string
	for _, row := range []struct {
		name  string
		ratio float64
	}{{"the default", 0}, {"none: Ratio -1", -1}} {
		requests, least := 0.0, callsOfOutage-1
		for range runs {
			n, ok := outageWithBudget(t, &resilienthttp.Budget{Ratio: row.ratio})
			requests += float64(n) / runs
			least = min(least, ok)
		}
		perCall := math.Round(5*requests/callsOfOutage) / 5
		rows = append(rows, []string{row.name, fmt.Sprintf("%.1f", perCall), fmt.Sprintf("at least %d of %d", least/5*5, callsOfOutage)})
	}
	return transcript.Table([]string{"budget", "requests in the 10 s, for each call of them", "calls that began in them and got a 200"}, rows)
}

const callsOfOutage = 100

// outageWithBudget returns the requests that the server gets while it fails, and how many calls that began then are answered.
func outageWithBudget(t *testing.T, budget *resilienthttp.Budget) (requests, answered int) {
	t.Helper()
	const healthy, fails, interval = 10 * time.Second, 10 * time.Second, 100 * time.Millisecond
	start := time.Now()
	duringOutage := func(at time.Duration) bool { return at >= healthy && at < healthy+fails }
	var mu sync.Mutex
	base := observed(func(r *http.Request) (*http.Response, error) {
		status := http.StatusOK
		if duringOutage(time.Since(start)) {
			status = http.StatusInternalServerError
			mu.Lock()
			requests++
			mu.Unlock()
		}
		time.Sleep(latency)
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	transport := &resilienthttp.Transport{Base: base, Budget: budget, Breaker: &resilienthttp.Breaker{FailureRatio: -1}}
	var calls sync.WaitGroup
	for range 2*callsOfOutage + 100 {
		at := time.Since(start)
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			resp, err := call(t, transport, http.MethodGet, "http://api.test/", "", with(ctx))
			if err == nil && resp.StatusCode == http.StatusOK && duringOutage(at) {
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
		time.Sleep(interval)
	}
	calls.Wait()
	return requests, answered
}

// shortOutageExample has a server that is away for four seconds.
func shortOutageExample(t *testing.T) string {
	return outageExample(t, 4*time.Second, 10*time.Second, 0, 10*time.Second, 14*time.Second, 20*time.Second)
}

// deadlinesOfOutages has the least ratio, of some runs, of the calls that begin while a server is away and are answered.
func deadlinesOfOutages(t *testing.T) string {
	const before = 10 * time.Second
	titles, rows := []string{"away for"}, [][]string(nil)
	for _, deadline := range []time.Duration{10 * time.Second, 30 * time.Second, 0} {
		row := []string{"deadline " + transcript.Duration(deadline)}
		if deadline == 0 {
			row[0] = "no deadline"
		}
		for _, away := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 20 * time.Second, 40 * time.Second} {
			if len(rows) == 0 {
				titles = append(titles, transcript.Duration(away))
			}
			least := 100
			for range 5 {
				var begun, answered int
				r := newOutage(t, before, away, deadline, before+away)
				for at := range r.took {
					if at >= before {
						begun++
						if r.answered[at] {
							answered++
						}
					}
				}
				least = min(least, 100*answered/begun)
			}
			row = append(row, fmt.Sprintf("%d %%", (least+2)/5*5)) // a run differs from another by a call or two
		}
		rows = append(rows, row)
	}
	return transcript.Table(titles, rows)
}

// outageExample makes eight calls a second. The server is away from the second of the times on. Probes have random delays, so
// the figures of 50 runs are ranges.
func outageExample(t *testing.T, away, deadline time.Duration, times ...time.Duration) string {
	phases := make([]phase, len(times)-1)
	for range 50 {
		r := newOutage(t, times[1], away, deadline, times[len(phases)])
		for i := range phases {
			phases[i].add(r, times[i], times[i+1])
		}
	}
	var rows [][]string
	for i, p := range phases {
		rows = append(rows, []string{
			transcript.Duration(times[i]), twenties(p.begun), twenties(p.answered), p.requests(), "at most " + p.usuallyTakes(), p.circuit(),
		})
	}
	return transcript.Table([]string{"from", "calls begun", "answered", "requests sent", "19 of 20 calls take", "circuit"}, rows)
}

// phase is a part of the runs.
type phase struct {
	begun, answered, sent []int // of each run
	took                  []time.Duration
	opens, closes         time.Duration
}

func (p *phase) add(r *outage, from, until time.Duration) {
	begun, answered := 0, 0
	for at, took := range r.took {
		if at < from || at >= until {
			continue
		}
		begun++
		if r.answered[at] {
			answered++
		}
		p.took = append(p.took, took)
	}
	in := func(times []time.Duration) []time.Duration {
		return slices.DeleteFunc(slices.Clone(times), func(at time.Duration) bool { return at < from || at >= until })
	}
	p.begun, p.answered, p.sent = append(p.begun, begun), append(p.answered, answered), append(p.sent, len(in(r.sent)))
	for _, at := range in(r.opened) {
		p.opens = max(p.opens, at-from)
	}
	for _, at := range in(r.closed) {
		p.closes = max(p.closes, at-from)
	}
}

// requests returns how many were sent in each run, or a bound that is the same each time.
func (p *phase) requests() string {
	begun, most := p.begun[0], slices.Max(p.sent)
	switch {
	case slices.Min(p.sent) == most:
		return strconv.Itoa(most)
	case 10*most <= 9*begun:
		return "at most " + strconv.Itoa(begun)
	}
	return "at most " + strconv.Itoa(2*begun)
}

// usuallyTakes returns a bound of the times of 19 of 20 calls. The longest of all differs too much from run to run.
func (p *phase) usuallyTakes() string {
	slices.Sort(p.took)
	usually := p.took[len(p.took)*19/20]
	if usually <= 5*latency { // no call waited
		return roundedUp(usually, time.Second/2)
	}
	return roundedUp(usually, 5*time.Second)
}

func (p *phase) circuit() string {
	switch {
	case p.opens > 0:
		return "opens within " + roundedUp(p.opens, time.Second)
	case p.closes > 0:
		return "closes within " + roundedUp(p.closes, time.Second)
	}
	return ""
}

func roundedUp(d, step time.Duration) string {
	return transcript.Duration((d + step - 1).Truncate(step))
}

// twenties returns the number, or the range of the numbers in steps of 20, so that it is always the same.
func twenties(numbers []int) string {
	least, most := slices.Min(numbers), slices.Max(numbers)
	if least == most {
		return strconv.Itoa(least)
	}
	return fmt.Sprintf("%d–%d", least/20*20, (most+19)/20*20)
}

// outage is what happens while a server is away. Times are since the start, calls have the time of their begin.
type outage struct {
	took                 map[time.Duration]time.Duration
	answered             map[time.Duration]bool
	sent, opened, closed []time.Duration
}

// newOutage makes eight calls a second until the end. A deadline of 0 is none.
func newOutage(t *testing.T, from, away, deadline, end time.Duration) *outage {
	start, every := time.Now(), time.Second/8
	r := &outage{took: map[time.Duration]time.Duration{}, answered: map[time.Duration]bool{}}
	var mu sync.Mutex
	note := func(times *[]time.Duration) (at time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		at = time.Since(start)
		*times = append(*times, at)
		return at
	}
	base := func(*http.Request) (*http.Response, error) {
		at := note(&r.sent)
		time.Sleep(latency)
		if at >= from && at < from+away {
			return (&statusOrError{status: http.StatusServiceUnavailable}).RoundTrip(nil)
		}
		return (&statusOrError{status: http.StatusOK}).RoundTrip(nil)
	}
	transport := &resilienthttp.Transport{Base: observed(base), Breaker: &resilienthttp.Breaker{OnChange: func(c resilienthttp.BreakerChange) {
		if c.From == resilienthttp.StateClosed {
			note(&r.opened)
		} else if c.To == resilienthttp.StateClosed {
			note(&r.closed)
		}
	}}}
	var all sync.WaitGroup
	for at := time.Duration(0); at < end; at += every {
		all.Go(func() {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, deadline)
			}
			defer cancel()
			resp, err := call(t, transport, http.MethodGet, "http://api.test/orders", "", with(ctx))
			mu.Lock()
			defer mu.Unlock()
			r.took[at], r.answered[at] = time.Since(start)-at, err == nil && resp.StatusCode == http.StatusOK
		})
		time.Sleep(every)
	}
	all.Wait()
	return r
}

// quotaExample has a server that grants three requests in ten seconds and says so.
func quotaExample(t *testing.T) string {
	quota := &faulttest.Quota{Limit: 3, Window: 10 * time.Second, Next: usual(faulttest.OK(""))}
	api := faulttest.NewInMemory(t, quota)
	transport := &resilienthttp.Transport{Base: api.Transport()}
	e := newEvents("request", "status", "RateLimit")
	var last string
	for i := range 5 {
		resp, err := call(t, transport, http.MethodGet, api.URL+"/orders", "")
		sent := resilienthttp.Attempts(resp)[0].Start
		e.addAt(sent, strconv.Itoa(i+1), result(resp, err), resp.Header.Get("RateLimit"))
		if i == 3 {
			last = resilienthttp.Explain(resp, err)
		}
	}
	accepted, rejected := quota.Counts()
	return fmt.Sprintf("%saccepted: %d, rejected: %d\n\nThe fourth call:\n%s", e, accepted, rejected, last)
}

// bucketExample has a server with a token bucket.
func bucketExample(t *testing.T) string {
	quota := &admission.Quota{Limit: 12, Burst: 4}
	api := faulttest.NewInMemory(t, quota.Handler(usual(faulttest.OK(""))))
	transport := &resilienthttp.Transport{Base: api.Transport()}
	e := newEvents("request", "status", "RateLimit")
	for i := range 7 {
		resp, err := call(t, transport, http.MethodGet, api.URL+"/orders", "")
		e.addAt(resilienthttp.Attempts(resp)[0].Start, strconv.Itoa(i+1), result(resp, err), resp.Header.Get("RateLimit"))
	}
	return e.String()
}

// rejectionsExample has a server that rejects one operation and not the others.
func rejectionsExample(t *testing.T) string {
	api := faulttest.NewInMemory(t, faulttest.Script{
		{Route: "GET /export", Times: 1, Handler: usual(faulttest.Reply{Status: http.StatusTooManyRequests, RetryAfter: 2 * time.Second})},
		{Handler: usual(faulttest.OK(""))},
	})
	transport := &resilienthttp.Transport{Base: api.Transport()}
	transport.Policy.Backoff = drawn(90 * time.Millisecond)
	explained := make([]string, 2)
	var calls sync.WaitGroup
	for i, path := range []string{"/export", "/orders"} {
		calls.Go(func() {
			time.Sleep(time.Duration(i) * time.Second)
			explained[i] = resilienthttp.Explain(call(t, transport, http.MethodGet, api.URL+path, ""))
		})
	}
	calls.Wait()
	return strings.Join(explained, "\n\n")
}

// arrival is a request that arrives at a server after a time.
type arrival struct {
	after             time.Duration
	field, name, body string
}

// responses sends the requests at their times, and returns a line for each. shown are fields of the responses.
func responses(t *testing.T, handler http.Handler, title string, arrivals []arrival, shown ...string) *events {
	t.Helper()
	srv := faulttest.NewInMemory(t, handler)
	e := newEvents(title, "took", "response")
	e.rows = make([][]string, len(arrivals))
	var all sync.WaitGroup
	for i, a := range arrivals {
		all.Go(func() {
			time.Sleep(a.after)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/charges", strings.NewReader(a.body))
			require.NoError(t, err)
			req.Header.Set(a.field, a.name)
			resp, err := srv.Client().Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			var problem struct{ Title string }
			text := string(body)
			if json.Unmarshal(body, &problem) == nil {
				text = problem.Title
			}
			took, response := time.Since(e.start.Add(a.after)), strings.TrimSpace(result(resp, nil)+" "+text)
			e.rows[i] = []string{
				transcript.Duration(a.after), strings.TrimSuffix(a.name+", "+a.body, ", "),
				transcript.Duration(took), response + fields(resp.Header, shown...),
			}
		})
	}
	all.Wait()
	return e
}

// serverIdempotencyExample sends requests with one key. An execution takes 100 ms.
func serverIdempotencyExample(t *testing.T) string {
	const ms = time.Millisecond
	var executions atomic.Int64
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := executions.Add(1)
		after(100*ms, faulttest.Reply{Status: http.StatusCreated, Body: fmt.Sprintf("charge %d", id)}).ServeHTTP(w, r)
	})
	tenant := func(*http.Request) (string, error) { return "acme", nil }
	const field, key = "Idempotency-Key", "invoice:001"
	e := responses(t, idempotency.NewHandler(new(idempotency.Memory), tenant, charge), "key, body", []arrival{
		{0, field, key, "100 €"}, {50 * ms, field, key, "100 €"}, {200 * ms, field, key, "100 €"}, {300 * ms, field, key, "900 €"},
	}, "Idempotency-Replayed", "Retry-After")
	return fmt.Sprintf("%sexecutions: %d", e, executions.Load())
}

// admissionExample has two slots and a queue of two. The work of a request takes 100 ms.
func admissionExample(t *testing.T) string {
	const ms = time.Millisecond
	shedder := &admission.Shedder{Initial: 2, Min: 2, Max: 2, Queue: 2, Priority: admission.PriorityFromHeader}
	const field = "X-Request-Priority"
	return responses(t, shedder.Handler(after(100*ms, faulttest.OK(""))), "priority", []arrival{
		{0, field, "default", ""}, {0, field, "batch", ""}, {10 * ms, field, "batch", ""}, {20 * ms, field, "default", ""},
		{30 * ms, field, "critical", ""}, {40 * ms, field, "batch", ""}, {150 * ms, field, "batch", ""},
	}, "Retry-After").String()
}

// process is the Store of a process. After its crash, it is another one: nothing that the process does has an effect.
type process struct{ durable.Store }

// changes are hooks that add a line for each change of an intent.
func changes(e *events, process string) *durable.Trace {
	return &durable.Trace{Changed: func(c *durable.Change) {
		state, outcome := c.Record.State.String(), c.Record.Reason
		if c.Before != c.Record.State {
			state = fmt.Sprintf("%s → %s", c.Before, c.Record.State)
		}
		if a := c.FinishedAttempt; a != nil && a.Status != 0 {
			outcome = fmt.Sprintf("%d: %s", a.Status, a.Class)
		} else if a != nil {
			outcome = a.Class.String() + ": " + a.Error
		}
		e.add(process, c.Record.ID.Key, state, outcome)
	}}
}

// durableExample has a process that crashes when its send is done and the response is on its way. A second process
// looks for due intents each ten seconds. The provider declines the other intent.
func durableExample(t *testing.T) string {
	var charges faulttest.Idempotent
	psp := faulttest.NewInMemory(t, faulttest.Script{
		{
			Match:   func(r *http.Request) bool { return r.Header.Get("X-Invoice") == "002" },
			Handler: usual(faulttest.Status(http.StatusUnprocessableEntity)),
		},
		{Handler: usual(&charges)},
	})
	store := new(durable.Memory)
	e := newEvents("process", "invoice", "state", "outcome")
	engine := func(name string, of durable.Store, base http.RoundTripper) *durable.Engine {
		return &durable.Engine{
			Store: of, Policy: durable.Schedule{Backoff: drawn(time.Second)}, Trace: changes(e, name),
			Gateways: map[string]durable.Gateway{"psp": durable.HTTP{
				Client: &http.Client{Transport: base},
				NewRequest: func(s *durable.Send) (*http.Request, error) {
					body := bytes.NewReader(s.Payload)
					req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, psp.URL+"/charges", body)
					if err == nil {
						req.Header.Set("X-Invoice", s.ID.Key)
					}
					return req, err
				},
			}},
		}
	}
	dying := &process{Store: store}
	running, end := context.WithCancel(t.Context())
	first := engine("first", dying, observed(func(req *http.Request) (*http.Response, error) {
		resp, err := psp.Transport().RoundTrip(req)
		synctest.Wait() // the process uses its Store no more until the crash
		dying.Store = new(durable.Memory)
		end()
		return resp, err
	}))
	second := engine("second", store, psp.Transport())
	enqueue := func(through *durable.Engine, key string) {
		_, err := through.Enqueue(t.Context(), durable.Intent{
			ID: idempotency.ID{Scope: "acme", Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte("100"),
		})
		require.NoError(t, err)
	}
	enqueue(first, "001")
	go func() { _, _ = first.Work(running, 0) }()
	for i := range 5 {
		time.Sleep(10 * time.Second)
		if i == 4 {
			enqueue(second, "002")
		}
		_, err := second.Work(t.Context(), 0)
		require.NoError(t, err)
	}
	synctest.Wait()
	return e.String() + "\nThe provider:\n" + psp.Transcript()
}
