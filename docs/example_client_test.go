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

// retryBudgetExample has an outage of a minute, and one failure after it.
func retryBudgetExample(t *testing.T) string {
	api := faulttest.NewInMemory(t, faulttest.Script{
		{Until: time.Minute, Handler: usual(faulttest.Status(http.StatusInternalServerError))},
		{After: 130 * time.Second, Times: 1, Handler: usual(faulttest.Status(http.StatusInternalServerError))},
		{Handler: usual(faulttest.OK(""))},
	})
	transport := &resilienthttp.Transport{Base: api.Transport()}
	e := newEvents("calls", "attempts", "result", "no retry because", "tokens left")
	for time.Since(e.start) < 150*time.Second {
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

// circuitBreakerExample makes two calls a second. The server fails for a while.
func circuitBreakerExample(t *testing.T) string {
	api := faulttest.NewInMemory(t, faulttest.Script{
		{After: 10 * time.Second, Until: 15 * time.Second, Handler: usual(faulttest.Status(http.StatusInternalServerError))},
		{Handler: usual(faulttest.OK(""))},
	})
	e := newEvents("calls", "result", "sent", "circuit")
	breaker := &resilienthttp.Breaker{Cooldown: time.Second}
	transport := &resilienthttp.Transport{Base: api.Transport(), Breaker: breaker, Policy: resilienthttp.Policy{MaxAttempts: -1}}
	for time.Since(e.start) < 18*time.Second {
		at, before := time.Now(), api.Total()
		resp, err := call(t, transport, http.MethodGet, api.URL+"/orders", "")
		sent := map[bool]string{true: "yes", false: "no"}[api.Total() > before]
		e.addCall(at, "", result(resp, err), sent, breaker.State("fault.test", resilienthttp.PriorityDefault).String())
		time.Sleep(500*time.Millisecond - time.Since(at))
	}
	return e.String()
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
