package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/transcript"
)

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

// retryBudgetExample has an outage of more than two minutes, and one failure after it.
func retryBudgetExample(t *testing.T) string {
	api := faulttest.NewInMemory(t, faulttest.Script{
		{Until: 135 * time.Second, Handler: usual(faulttest.Status(http.StatusInternalServerError))},
		{After: 295 * time.Second, Times: 1, Handler: usual(faulttest.Status(http.StatusInternalServerError))},
		{Handler: usual(faulttest.OK(""))},
	})
	transport := &resilienthttp.Transport{Base: api.Transport()}
	e := newEvents("calls", "attempts", "result", "no retry because", "tokens left")
	for time.Since(e.start) < 320*time.Second {
		at := time.Now()
		resp, err := call(t, transport, http.MethodGet, api.URL+"/orders", "")
		require.NoError(t, err)
		attempts, reason := resilienthttp.Attempts(resp), ""
		if stop := attempts[len(attempts)-1].StopReason; stop != nil {
			reason = stop.Error()
		}
		left := transport.State().Scopes[0].Budget.Remaining
		e.addCall(at, fmt.Sprintf("%.1f", left), strconv.Itoa(len(attempts)), result(resp, err), reason)
		time.Sleep(15*time.Second - time.Since(at))
	}
	return e.String()
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
			row = append(row, fmt.Sprintf("%d %%", least/5*5)) // a run differs from another by a call or two
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
			transcript.Duration(times[i]), twenties(p.begun), twenties(p.answered), p.requests(), "at most " + p.longestTime(), p.circuit(),
		})
	}
	return transcript.Table([]string{"from", "calls begun", "answered", "requests sent", "a call takes", "circuit"}, rows)
}

// phase is a part of the runs.
type phase struct {
	begun, answered, sent  []int // of each run
	longest, opens, closes time.Duration
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
		p.longest = max(p.longest, took)
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

func (p *phase) longestTime() string {
	if p.longest <= 5*latency { // no call waited
		return roundedUp(p.longest, time.Second/2)
	}
	return roundedUp(p.longest, 5*time.Second)
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
