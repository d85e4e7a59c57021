package resilienthttp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// TestRetryAfterCloses: a server's Retry-After is a word to all calls of the
// scope, not only to the one that got it (DESIGN §4.11 and 17).
func TestRetryAfterCloses(t *testing.T) {
	const forever = 365 * 24 * time.Hour
	for _, row := range []struct {
		name       string
		status     int
		header     []any
		limit      *RateLimit
		policy     Policy
		wait       time.Duration // of another call
		refused    error
		notBefore  time.Duration
		otherRoute bool // the other call goes to another route
	}{
		{name: "429", status: 429, header: []any{"Retry-After", 20}, wait: 20 * time.Second},
		{name: "503", status: 503, header: []any{"Retry-After", 20}, wait: 20 * time.Second},
		{name: "403", status: 403, header: []any{"Retry-After", 20}, wait: 20 * time.Second},
		{name: "529", status: 529, header: []any{"Retry-After", 20}, wait: 20 * time.Second},
		{name: "milliseconds", status: 429, header: []any{"Retry-After-Ms", 1500}, wait: 1500 * time.Millisecond},
		{name: "as long as may be", status: 429, header: []any{"Retry-After", 60}, wait: 60 * time.Second},
		{name: "500 with Retry-After", status: 500, header: []any{"Retry-After", 20}},
		{name: "301 with Retry-After", status: 304, header: []any{"Retry-After", 20}},
		{name: "bare 429", status: 429},
		{name: "bare 503", status: 503},
		{name: "429 with a date in the past", status: 429, header: []any{"Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"}},
		{name: "429 without sense", status: 429, header: []any{"Retry-After", "soon"}},
		{name: "exhausted", status: 429, header: []any{"RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 15}, wait: 15 * time.Second},
		{name: "exhausted, 403", status: 403, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", 15}, wait: 15 * time.Second},
		{name: "exhausted by a success", status: 200, header: []any{"RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 15}, wait: 15 * time.Second},
		{name: "from a cache", status: 200, header: []any{"RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 15, "Age", 3}},
		{name: "beyond MaxWait", status: 429, header: []any{"Retry-After", 20}, limit: &RateLimit{MaxWait: 10 * time.Second}, refused: ErrRateLimited, notBefore: 20 * time.Second},
		{name: "never wait", status: 429, header: []any{"Retry-After", 1}, limit: &RateLimit{MaxWait: -1}, refused: ErrRateLimited, notBefore: time.Second},
		{name: "beyond MaxRetryAfter", status: 429, header: []any{"Retry-After", 20}, policy: Policy{MaxRetryAfter: 10 * time.Second}, refused: ErrRateLimited, notBefore: 20 * time.Second},
		{name: "MaxRetryAfter is not for quotas", status: 429, header: []any{"RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 20}, policy: Policy{MaxRetryAfter: 10 * time.Second}, wait: 20 * time.Second},
		{name: "no limit to either", status: 429, header: []any{"Retry-After", 1800}, limit: &RateLimit{MaxWait: forever}, policy: Policy{MaxRetryAfter: -1}, wait: 30 * time.Minute},
		{name: "beyond the deadline", status: 429, header: []any{"Retry-After", 3000}, limit: &RateLimit{MaxWait: forever}, policy: Policy{MaxRetryAfter: -1}, refused: ErrDeadline, notBefore: 50 * time.Minute},
		{name: "MaxClosed cuts it", status: 429, header: []any{"Retry-After", int64(9223372037)}, limit: &RateLimit{MaxClosed: 30 * time.Second}, wait: 30 * time.Second},
		{name: "MaxClosed by default", status: 429, header: []any{"Retry-After", int64(9223372037)}, refused: ErrDeadline, notBefore: time.Hour},
		{name: "MaxClosed cuts resets too", status: 429, header: []any{"RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 99999999}, limit: &RateLimit{MaxClosed: 30 * time.Second}, wait: 30 * time.Second},
		{name: "the year 9999", status: 429, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", "9999-12-31T23:59:59Z"}, limit: &RateLimit{MaxClosed: 30 * time.Second}, wait: 30 * time.Second},
		{name: "the year 1970", status: 429, header: []any{"X-RateLimit-Limit", 10, "X-RateLimit-Remaining", 0, "X-RateLimit-Reset", 1000000001}},
		{name: "negative MaxClosed", status: 429, header: []any{"Retry-After", 20}, limit: &RateLimit{MaxClosed: -1}},
		{name: "IgnoreHeaders", status: 429, header: []any{"Retry-After", 20, "RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 15}, limit: &RateLimit{IgnoreHeaders: true}},
		{name: "a bucket's 429", status: 429, header: []any{"Retry-After", 20, "X-RateLimit-Bucket", "b"}, otherRoute: true},
		{name: "a bucket's global 429", status: 429, header: []any{"Retry-After", 20, "X-RateLimit-Bucket", "b", "X-RateLimit-Global", "true"}, otherRoute: true, wait: 20 * time.Second},
		{name: "a bucket's 503", status: 503, header: []any{"Retry-After", 20, "X-RateLimit-Bucket", "b"}, otherRoute: true, wait: 20 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in2026(0)
				if row.limit == nil {
					row.limit = &RateLimit{}
				}
				first := faulttest.Reply{Status: row.status, Header: http.Header{}}
				quotaSet(first.Header, row.header...)
				s := newQuotaScript(t, row.limit, faulttest.Sequence(first, faulttest.OK("")))
				begun := time.Now()
				row.policy.MaxAttempts = -1
				ctx, cancel := context.WithTimeout(WithPolicy(t.Context(), row.policy), 45*time.Minute)
				defer cancel()
				status, err := quotaGet(ctx, s.client, s.URL+"/limited")
				require.Nil(t, err)
				assert.Equal(t, row.status, status)
				path := "/limited"
				if row.otherRoute {
					path = "/other"
				}
				_, err = quotaGet(ctx, s.client, s.URL+path)
				took := time.Since(begun)
				if row.refused != nil {
					require.NotNil(t, err)
					assert.Equal(t, row.refused, err.Reason)
					assert.ErrorIs(t, err, ErrRateLimited)
					assert.Equal(t, row.notBefore, err.NotBefore.Sub(begun))
					assert.Zero(t, took, "told at once")
					s.AssertRequests(t, 1)
					return
				}
				assert.Nil(t, err)
				assert.GreaterOrEqual(t, took, row.wait)
				if row.wait == 0 {
					assert.Zero(t, took)
				}
				assert.LessOrEqual(t, took, row.wait+spreadTime)
				begun = time.Now()
				_, err = quotaGet(ctx, s.client, s.URL+path)
				assert.Nil(t, err)
				assert.Zero(t, time.Since(begun), "open again")
			})
		})
	}
}

// TestRetryAfterOfTheCallItself: above MaxRetryAfter the call stops with the
// response it has; a bare 429 makes it back off, and nobody else.
func TestRetryAfterOfTheCallItself(t *testing.T) {
	for _, row := range []struct {
		name       string
		retryAfter time.Duration
		attempts   int
		took       time.Duration
	}{
		{"slept", 5 * time.Second, 2, 5 * time.Second},
		{"too long", 61 * time.Second, 1, 0},
		{"bare", 0, 2, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				busy := faulttest.Reply{Status: http.StatusTooManyRequests, RetryAfter: row.retryAfter}
				s := newQuotaScript(t, &RateLimit{}, faulttest.Sequence(busy, faulttest.OK("")))
				begun := time.Now()
				status, err := quotaGet(WithPolicy(t.Context(), Policy{}), s.client, s.URL)
				require.Nil(t, err)
				s.AssertAttempts(t, row.attempts)
				assert.Equal(t, row.attempts == 1, status == http.StatusTooManyRequests)
				assert.GreaterOrEqual(t, time.Since(begun), row.took)
				assert.Less(t, time.Since(begun), row.took+2*time.Second)
			})
		})
	}
}

// TestRetryAfterSpread: those whom a server has turned away together do not come
// back together, even if they know nothing of each other.
func TestRetryAfterSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var log faulttest.Log
		said := says(1000, 500, time.Minute)
		busy := refusing(http.StatusServiceUnavailable, said)
		busy.RetryAfter = 5 * time.Second
		handler := log.Record(faulttest.Script{{To: 1, Do: busy}, {Do: said}})
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				client := quotaClient(direct{handler: handler}, &RateLimit{})
				_, _ = quotaGet(t.Context(), client, "http://mem.test")
				_, err := quotaGet(t.Context(), client, "http://mem.test")
				assert.Nil(t, err)
			})
		}
		calls.Wait()
		require.True(t, log.AssertRequests(t, 50+50))
		first, last := log.Requests()[50].Arrived, log.Requests()[99].Arrived
		assert.GreaterOrEqual(t, first.Sub(begun), 5*time.Second)
		assert.Greater(t, last.Sub(first), 500*time.Millisecond)
		assert.LessOrEqual(t, last.Sub(begun), 6*time.Second)
	})
}

// TestRetryAfterOver: when a Retry-After is over and nothing else is known, calls
// pass without a lock again.
func TestRetryAfterOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, &RateLimit{}, faulttest.Sequence(faulttest.Unavailable(time.Second, faulttest.Seconds), faulttest.OK("")))
		for range 3 {
			_, _ = s.get(t, "/")
		}
		assert.False(t, s.bucket(t).armed.Load())
	})
}

// TestCredentials: each has its own quota.
func TestCredentials(t *testing.T) {
	for _, header := range []string{"Authorization", "X-Api-Key", "Api-Key", "Private-Token"} {
		t.Run(header, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				poor := func(r *http.Request) bool { return r.Header.Get(header) == "poor" }
				s := newQuotaScript(t, &RateLimit{}, faulttest.Script{{If: poor, Do: says(10, 0, 30*time.Second)}})
				for _, credential := range []string{"poor", "rich", ""} {
					took, _ := s.get(t, "/", header, credential)
					assert.Zero(t, took, credential)
				}
				took, _ := s.get(t, "/", header, "rich")
				assert.Zero(t, took)
				took, _ = s.get(t, "/", header, "poor")
				assert.GreaterOrEqual(t, took, 30*time.Second)
			})
		})
	}
}

// TestNamedBuckets: a bucket that the server names is its own, and is known for
// the routes that were seen in it and for paths beside them.
func TestNamedBuckets(t *testing.T) {
	said := func(l faulttest.RateLimit) faulttest.Reply {
		l.Reset = 30 * time.Second
		return faulttest.Reply{RateLimits: []faulttest.RateLimit{l}}
	}
	github := faulttest.Script{
		{Route: "/search/", Do: said(faulttest.RateLimit{Dialect: faulttest.GitHub, Limit: 60, Remaining: 10, Name: "search"})},
		{
			Route: "/repos/golang/go/code-scanning/sarifs",
			Do:    said(faulttest.RateLimit{Dialect: faulttest.GitHub, Limit: 60, Remaining: 10, Name: "code_scanning_upload"}),
		},
		{Do: said(faulttest.RateLimit{Dialect: faulttest.GitHub, Limit: 60, Name: "core"})},
	}
	discord := said(faulttest.RateLimit{Dialect: faulttest.Discord, Limit: 1, Name: "messages"})
	for _, row := range []struct {
		name   string
		server http.Handler
		seen   []string // the last two of them just now
		path   string
		waits  bool
	}{
		{"same route", github, []string{"/repos/golang/go/issues"}, "/repos/golang/go/issues", true},
		{"unknown path beside it", github, []string{"/repos/golang/go/issues"}, "/repos/torvalds/linux/pulls", true},
		{"unknown path of another kind", github, []string{"/repos/golang/go/issues"}, "/gists", false},
		{"route of another bucket", github, []string{"/search/code", "/repos/golang/go/issues"}, "/search/code", false},
		{"path beside that", github, []string{"/search/code", "/repos/golang/go/issues"}, "/search/users", false},
		{
			"an exception does not prove the rule", github,
			[]string{"/repos/a/b/x", "/repos/a/b/y", "/repos/a/b/issues", "/repos/golang/go/code-scanning/sarifs"}, "/repos/c/d/issues", true,
		},
		{"the exception", github, []string{"/repos/golang/go/code-scanning/sarifs", "/repos/a/b/issues"}, "/repos/golang/go/code-scanning/sarifs", false},
		{"same channel, other message", discord, []string{"/api/v10/channels/123/messages/9"}, "/api/v10/channels/123/messages/10", true},
		{"other channel", discord, []string{"/api/v10/channels/123/messages/9"}, "/api/v10/channels/124/messages/9", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in2026(0)
				s := newQuotaScript(t, &RateLimit{}, row.server)
				for _, path := range row.seen {
					_, err := quotaGet(t.Context(), s.client, s.URL+path)
					require.Nil(t, err)
					time.Sleep(31 * time.Second)
				}
				for _, path := range row.seen[max(len(row.seen)-2, 0):] {
					took, err := s.get(t, path)
					require.Nil(t, err)
					require.Zero(t, took, path)
				}
				took, err := s.get(t, row.path)
				require.Nil(t, err)
				assert.Equal(t, row.waits, took > 25*time.Second, "%v", took)
			})
		})
	}
}

// TestHostileHeaders: whatever a server says, nothing panics, hangs or leaks, and
// no wait is longer than MaxClosed.
func TestHostileHeaders(t *testing.T) {
	numbers := []string{"0", "1", "-1", "5", "9223372036854775807", "99999999999999999999999", "NaN", "1e308", "0.5", "", "253402300799", "1000000001", "1767225600", "1767225600000", "12ms", "6m0s", "9999999h", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z"}
	fields := []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Retry-After", "Retry-After-Ms", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "X-Shopify-Shop-Api-Call-Limit"}
	dates := []string{"Thu, 01 Jan 2026 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "never"}
	synctest.Test(t, func(t *testing.T) {
		in2026(0)
		l := &RateLimit{MaxWait: 24 * 365 * time.Hour, MaxClosed: time.Minute}
		for i := range 7000 {
			a, resp := quotaAttempt(t.Context(), l, http.Header{})
			a.call.config.policy.MaxRetryAfter = -1 // a closing of MaxClosed, and the spread after it, would be beyond
			a.call.scope = strconv.Itoa(i % 7)
			for range rand.N(8) {
				resp.Header.Set(fields[rand.N(len(fields))], numbers[rand.N(len(numbers))])
			}
			resp.Header.Set("Date", dates[rand.N(len(dates))])
			if rand.N(50) == 0 {
				for axis := range 1000 {
					quotaSet(resp.Header, fmt.Sprintf("X-RateLimit-Limit-A%d", axis), int64(math.MaxInt64),
						fmt.Sprintf("X-RateLimit-Remaining-A%d", axis), rand.N(3), fmt.Sprintf("X-RateLimit-Reset-A%d", axis), "1m")
				}
			}
			if rand.N(10) == 0 {
				resp.Header.Set("RateLimit-Policy", `"p";q=9223372036854775807;w=999999999999999`)
				resp.Header.Set("RateLimit", `"p";r=0;t=1`)
			}
			resp.StatusCode = []int{200, 429, 503, 403, 500}[rand.N(5)]
			begun := time.Now()
			_, err := l.enter(a, begun)
			require.Nil(t, err, "%v", err)
			require.LessOrEqual(t, time.Since(begun), time.Minute+3*time.Second)
			time.Sleep(rand.N(3 * time.Second))
			if rand.N(10) == 0 {
				a.record.Response, a.record.Err = nil, context.Canceled
			}
			said := readAnswer(a.record.Response, time.Now())
			a.turn.done(time.Now(), a, &said)
			b := a.turn.bucket
			require.Zero(t, b.inflight.Load())
			require.LessOrEqual(t, len(b.axes), mostAxes)
		}
	})
}

// TestHedgeNeverWaits: neither for a token nor for a quota.
func TestHedgeNeverWaits(t *testing.T) {
	for _, row := range []struct {
		name  string
		limit *RateLimit
	}{
		{"static", &RateLimit{Limit: 0.1, Burst: 1}},
		{"quota", &RateLimit{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newQuotaScript(t, row.limit, faulttest.Script{
					{Route: "/slow", Do: faulttest.Reply{Delay: 3 * time.Second}}, {Do: says(2, 1, time.Minute)},
				})
				if row.limit.Limit == 0 {
					_, _ = s.get(t, "/") // one is left
				}
				s.client.Transport.(*Transport).Hedge = &Hedge{Delay: 100 * time.Millisecond}
				if row.limit.Limit > 0 {
					defer func() {
						a, _ := quotaAttempt(t.Context(), row.limit, http.Header{})
						a.call.scope, a.beside = "mem.test", true
						begun := time.Now()
						_, refused := row.limit.enter(a, begun)
						require.NotNil(t, refused)
						assert.Zero(t, time.Since(begun))
					}()
				}
				before := s.Total()
				took, err := s.get(t, "/slow")
				require.Nil(t, err)
				assert.Equal(t, 3*time.Second, took)
				s.AssertRequests(t, before+1)
			})
		})
	}
}

// TestProbeInLine: a half-open breaker's probe that waits in line longer than its
// lease asks again before it is sent, and its result counts.
func TestProbeInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, &RateLimit{}, faulttest.Sequence(faulttest.Unavailable(10*time.Second, faulttest.Seconds), faulttest.OK("")))
		breaker := &Breaker{MinRequests: 1, Cooldown: time.Second, Probes: 1}
		s.client.Transport.(*Transport).Breaker = breaker
		_, _ = s.get(t, "/")
		require.Equal(t, StateOpen, breaker.State("mem.test"))
		time.Sleep(2 * time.Second)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				_, err := s.get(t, "/")
				if err != nil {
					assert.Equal(t, ErrBreakerOpen, err.Reason, "no place for it while another is the probe")
				}
			})
			time.Sleep(1500 * time.Millisecond) // longer than the lease
		}
		calls.Wait()
		assert.Equal(t, StateClosed, breaker.State("mem.test"))
		assert.Zero(t, s.bucket(t).inflight.Load())
	})
}

// TestEvictedInLine: a call whose bucket is forgotten while it waits has its turn
// all the same.
func TestEvictedInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &RateLimit{}
		l.accounts.Max = 2
		s := newQuotaScript(t, l, says(10, 0, 10*time.Second))
		_, _ = s.get(t, "/")
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() { _, _ = s.get(t, "/") })
		}
		synctest.Wait()
		old := l.accounts.Peek(credential{scope: "mem.test"})
		for i := range 10 {
			a, _ := quotaAttempt(t.Context(), l, http.Header{"Authorization": {strconv.Itoa(i)}})
			_, err := l.enter(a, time.Now())
			require.Nil(t, err)
			a.turn.giveBack(time.Now())
		}
		calls.Wait()
		assert.Zero(t, old.shared.inflight.Load())
		assert.Zero(t, old.shared.len())
	})
}

// TestStaticLimit: a token bucket for each scope, in which retries and hedges
// count.
func TestStaticLimit(t *testing.T) {
	for _, row := range []struct {
		name  string
		limit *RateLimit
		calls int
		took  time.Duration
	}{
		{"burst of one second", &RateLimit{Limit: 10}, 30, 2 * time.Second},
		{"burst of one", &RateLimit{Limit: 10, Burst: 1}, 31, 3 * time.Second},
		{"own burst", &RateLimit{Limit: 10, Burst: 50}, 60, time.Second},
		{"slow", &RateLimit{Limit: 0.1}, 4, 30 * time.Second},
		{"fractional", &RateLimit{Limit: 2.5}, 13, 4 * time.Second},
		{"none", &RateLimit{}, 1000, 0},
		{"infinite", &RateLimit{Limit: rate.Inf}, 1000, 0},
		{"NaN", &RateLimit{Limit: rate.Limit(math.NaN())}, 1000, 0},
		{"negative", &RateLimit{Limit: -1}, 1000, 0},
		{"negative burst", &RateLimit{Limit: 10, Burst: -5}, 20, time.Second},
		{"huge", &RateLimit{Limit: math.MaxFloat64 / 2}, 1000, 0},
		{"without headers", &RateLimit{Limit: 10, IgnoreHeaders: true}, 30, 2 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newQuotaScript(t, row.limit, nil)
				begun := time.Now()
				var calls sync.WaitGroup
				for range row.calls {
					calls.Go(func() {
						_, err := s.get(t, "/")
						assert.Nil(t, err)
					})
				}
				calls.Wait()
				assert.InDelta(t, row.took.Seconds(), time.Since(begun).Seconds(), 0.001)
			})
		})
	}
}

func TestStaticLimitRefuses(t *testing.T) {
	for _, row := range []struct {
		name      string
		limit     *RateLimit
		deadline  time.Duration
		reason    error
		notBefore time.Duration // for the first refused
		served    int           // of ten calls at once
	}{
		{"MaxWait", &RateLimit{Limit: 1, MaxWait: 3 * time.Second}, time.Hour, ErrRateLimited, 4 * time.Second, 4},
		{"MaxWait by default", &RateLimit{Limit: 0.1}, time.Hour, ErrRateLimited, 70 * time.Second, 7},
		{"never wait", &RateLimit{Limit: 1, MaxWait: -1}, time.Hour, ErrRateLimited, time.Second, 1},
		{"deadline", &RateLimit{Limit: 1}, 4500 * time.Millisecond, ErrDeadline, 5 * time.Second, 5},
		{"tiny", &RateLimit{Limit: math.SmallestNonzeroFloat64}, time.Hour, ErrDeadline, 24 * time.Hour, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newQuotaScript(t, row.limit, nil)
				ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
				defer cancel()
				var calls sync.WaitGroup
				var served atomic.Int64
				begun := time.Now()
				for range 10 {
					calls.Go(func() {
						_, err := quotaGet(ctx, s.client, s.URL)
						if err == nil {
							served.Add(1)
							return
						}
						assert.Equal(t, row.reason, err.Reason)
						assert.InDelta(t, row.notBefore.Seconds(), err.NotBefore.Sub(begun).Seconds(), 0.001)
						assert.Zero(t, time.Since(begun))
					})
				}
				calls.Wait()
				assert.EqualValues(t, row.served, served.Load())
			})
		})
	}
}

// TestStaticLimitGivesBack: who leaves the line, is refused further on, or is not
// sent after all, has taken nothing.
func TestStaticLimitGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, &RateLimit{Limit: 1, Burst: 1, MaxWait: time.Hour}, faulttest.Script{
			{Route: "/close", Do: faulttest.Unavailable(20*time.Second, faulttest.Seconds)},
		})
		_, _ = s.get(t, "/")
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				ctx := ctx
				if i%2 == 1 {
					ctx = t.Context()
				}
				_, _ = quotaGet(ctx, s.client, s.URL)
			})
			synctest.Wait() // in this order
		}
		cancel()
		calls.Wait()
		assert.InDelta(t, 10, time.Since(begun).Seconds(), 0.001, "the places of those who left are free")

		// Refused by the server's word, after a token was taken.
		time.Sleep(time.Second)
		_, _ = s.get(t, "/close")
		time.Sleep(time.Second)
		begun = time.Now()
		for range 10 {
			_, err := quotaGet(WithPolicy(t.Context(), Policy{MaxRetryAfter: time.Second}), s.client, s.URL)
			require.NotNil(t, err)
		}
		assert.Zero(t, time.Since(begun), "nobody waited for a token")
		static := s.limiter.statics.Peek("mem.test")
		assert.Equal(t, 1, static.spare)

		// A turn that is not used after all.
		a, _ := quotaAttempt(t.Context(), s.limiter, http.Header{})
		a.call.scope = "mem.test"
		time.Sleep(30 * time.Second)
		for range 3 {
			begun = time.Now()
			_, err := s.limiter.enter(a, begun)
			require.Nil(t, err)
			assert.Zero(t, time.Since(begun))
			a.turn.giveBack(time.Now())
		}

		// A spare token is no more than the burst.
		time.Sleep(30 * time.Second)
		static.giveBack(time.Now())
		assert.Equal(t, 0, max(static.spare-1, 0))
		s.bucket(t)
	})
}

// TestStaticLimitCountsAttempts: retries and hedges take tokens as well.
func TestStaticLimitCountsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, &RateLimit{Limit: 0.5, Burst: 1}, faulttest.Status(http.StatusInternalServerError))
		begun := time.Now()
		_, err := quotaGet(WithPolicy(t.Context(), Policy{MaxAttempts: 3, Backoff: Constant(0)}), s.client, s.URL)
		require.Nil(t, err)
		s.AssertAttempts(t, 3)
		assert.InDelta(t, 4, time.Since(begun).Seconds(), 0.001)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, &RateLimit{Limit: 0.5, Burst: 2}, faulttest.Reply{Delay: time.Second})
		s.client.Transport.(*Transport).Hedge = &Hedge{Delay: 100 * time.Millisecond}
		_, _ = s.get(t, "/")
		require.True(t, s.AssertRequests(t, 2), "a call and its hedge")
		took, err := s.get(t, "/")
		require.Nil(t, err)
		assert.InDelta(t, 1+1, took.Seconds(), 0.001, "the next waits for a token")
	})
}

// TestRateLimitShared: Transports that share a RateLimit share what it knows.
func TestRateLimitShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &RateLimit{}
		s := newQuotaScript(t, l, says(10, 0, 10*time.Second))
		other := quotaClient(s.Transport(), l)
		_, _ = s.get(t, "/")
		begun := time.Now()
		_, err := quotaGet(t.Context(), other, s.URL)
		assert.Nil(t, err)
		assert.GreaterOrEqual(t, time.Since(begun), 10*time.Second)
	})
}
