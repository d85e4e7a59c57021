package resilienthttp_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// waitOf returns the wait in a body such as "wait 38s", or 0.
func waitOf(body []byte) time.Duration {
	value, _ := strings.CutPrefix(string(body), "wait ")
	wait, _ := time.ParseDuration(value)
	return wait
}

// takeWait is a ClassifyBody that sets the wait of the body.
func takeWait(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	if wait := waitOf(body); wait != 0 {
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
			assert.LessOrEqual(t, took, row.want+max(row.want/2, time.Second), "jitter adds at most half")
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
		{"503 with header, and the wait is removed", status(503, "Retry-After", "5"), 0, 2},
		{"429, with a wait of the body", status(429), time.Second, 2},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			tr := unkeyed(&resilienthttp.Transport{Base: script(row.reply, status(200)), Policy: resilienthttp.Policy{
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

// If Classify panics, the breaker and the rate limit get their permits back.
func TestClassify_panicReturnsPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var panics bool
		tr := &resilienthttp.Transport{
			Base:      script(status(500), status(500, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "60")),
			RateLimit: &resilienthttp.RateLimit{Limit: 1, Burst: 1, MaxWait: -1},
			Breaker:   nervous(time.Second),
			Policy: resilienthttp.Policy{MaxAttempts: -1, Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict {
				if panics {
					panic("mine")
				}
				return resilienthttp.VerdictDefault
			}},
		}
		_ = tripped(t, tr, get(t))
		require.Equal(t, resilienthttp.StateOpen, tr.Breaker.State("api.test", resilienthttp.PriorityDefault))
		time.Sleep(10 * time.Second)
		panics = true
		for range 3 { // each is the probe of the half-open circuit, with the only token of the limit
			require.PanicsWithValue(t, "mine", func() { _, _ = tr.RoundTrip(get(t)) })
		}
		require.Zero(t, tr.State().Scopes[0].InFlight)
	})
}
