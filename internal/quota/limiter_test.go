package quota

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
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// No header of a server causes a panic, a hang or a leak, or a wait beyond MaxBlock.
func TestHostileHeaders(t *testing.T) {
	numbers := []string{"0", "1", "-1", "5", "9223372036854775807", "99999999999999999999999", "NaN", "1e308", "0.5", "", "253402300799", "1000000001", "1767225600", "1767225600000", "12ms", "6m0s", "9999999h", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z"}
	fields := []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Retry-After", "Retry-After-Ms", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "X-Shopify-Shop-Api-Call-Limit"}
	dates := []string{"Thu, 01 Jan 2026 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "never"}
	synctest.Test(t, func(t *testing.T) {
		in2026(0)
		l := with(Config{MaxWait: 24 * 365 * time.Hour, MaxBlock: time.Minute})
		for i := range 7000 {
			e := newExchange(t.Context(), l)
			e.MaxBlock = -1 // the longest block, and the release after it, would be beyond it
			e.scope = strconv.Itoa(i % 7)
			for range rand.N(8) {
				e.header.Set(fields[rand.N(len(fields))], numbers[rand.N(len(numbers))])
			}
			e.header.Set("Date", dates[rand.N(len(dates))])
			if rand.N(50) == 0 {
				for axis := range 1000 {
					setFields(e.header, fmt.Sprintf("X-RateLimit-Limit-A%d", axis), int64(math.MaxInt64),
						fmt.Sprintf("X-RateLimit-Remaining-A%d", axis), rand.N(3), fmt.Sprintf("X-RateLimit-Reset-A%d", axis), "1m")
				}
			}
			if rand.N(10) == 0 {
				e.header.Set("RateLimit-Policy", `"p";q=9223372036854775807;w=999999999999999`)
				e.header.Set("RateLimit", `"p";r=0;t=1`)
			}
			e.status = []int{200, 429, 503, 403, 500}[rand.N(5)]
			begun := time.Now()
			require.Nil(t, e.enter())
			require.LessOrEqual(t, time.Since(begun), 90*time.Second+3*time.Second)
			time.Sleep(rand.N(3 * time.Second))
			if rand.N(10) == 0 {
				e.Done(&Response{}, time.Now())
			} else {
				e.done()
			}
			require.Zero(t, e.Permit.bucket.inflight)
			require.LessOrEqual(t, len(e.Permit.bucket.dims), ratelimitheader.MaxDimensions)
		}
	})
}

// Only a response that shows a quota or is a rejection makes a Set active.
func TestSet_active(t *testing.T) {
	const ok, limited = http.StatusOK, http.StatusTooManyRequests
	for _, row := range []struct {
		name   string
		config Config
		ignore bool
		status int
		header http.Header
		before bool
		after  bool
	}{
		{name: "a response without fields: no", status: ok},
		{name: "an error: no", status: http.StatusServiceUnavailable, header: http.Header{"Retry-After": {"20"}}},
		{name: "no response: no"},
		{name: "a quota: yes", status: ok, header: http.Header{"Ratelimit-Remaining": {"9"}, "Ratelimit-Reset": {"9"}}, after: true},
		{name: "a bucket's name: yes", status: ok, header: http.Header{"X-Ratelimit-Bucket": {"b"}}, after: true},
		{name: "a rejection: yes", status: limited, after: true},
		{name: "a fixed limit: from the start", config: Config{Limit: 1}, status: ok, before: true, after: true},
		{name: "a store: from the start", config: Config{Shared: new(quotastore.Memory)}, status: ok, before: true, after: true},
		{name: "headers are ignored: never", ignore: true, status: limited, header: http.Header{"Retry-After": {"20"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := with(row.config)
			l.Follow = !row.ignore
			s, now := l.Set("a"), time.Now()
			require.Equal(t, row.before, s.Active())
			s.Observe(Request{}, answerOf(row.status, row.header, now), now, now, 0)
			require.Equal(t, row.after, s.Active())
			s.Observe(Request{}, answerOf(ok, nil, now), now, now, 0)
			require.Equal(t, row.after, s.Active(), "it stays so")
			require.Same(t, s, l.Set("a"))
			require.NotSame(t, s, l.Set("b"))
		})
	}
}

// §4.17: a failure between rejections shows that the server does not reject all requests.
func TestSet_failuresEndAStreak(t *testing.T) {
	for _, row := range []struct {
		name    string
		between int  // the status of every second response
		another bool // the other responses are of another bucket
		blocked bool
	}{
		{"rejections only: blocked", http.StatusTooManyRequests, false, true},
		{"a 502 between: not blocked", http.StatusBadGateway, false, false},
		{"a 200 between: not blocked", http.StatusOK, false, false},
		{"another bucket's 502 between: blocked", http.StatusBadGateway, true, true},
		{"another bucket's 200 between: not blocked", http.StatusOK, true, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			s := with(Config{}).Set("a")
			for i := range 40 {
				now, status, header := time.Now(), http.StatusTooManyRequests, http.Header{"Retry-After": {"60"}}
				var r Request
				if i%2 == 1 {
					status = row.between
				}
				if i%2 == 1 && row.another {
					r.Path = "/another"
					setFields(header, "X-RateLimit-Bucket", "b")
				}
				s.Observe(r, answerOf(status, header, now), now, now, 0)
				time.Sleep(150 * time.Millisecond)
			}
			require.Equal(t, row.blocked, !s.BlockedUntil(Request{}, time.Now()).IsZero())
		})
	}
}

// TestSet_countsEarlyRequests checks that requests that were sent before a response showed the
// quota count as in flight until their results are observed.
func TestSet_countsEarlyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{MaxWait: time.Minute, MaxBlock: time.Hour, Follow: true}).Set("api.test")
		shows := func(remaining int, inFlight int64) {
			header := http.Header{}
			setFields(header, "RateLimit-Limit", 5, "RateLimit-Remaining", remaining, "RateLimit-Reset", 10)
			now := time.Now()
			s.Observe(Request{}, answerOf(http.StatusOK, header, now), now, now, inFlight)
		}
		admits := func() bool {
			p, rejected := s.Admit(t.Context(), Request{NoWait: true}, time.Now())
			if rejected == nil {
				p.Cancel(time.Now())
			}
			return rejected == nil
		}
		shows(4, 4)
		require.True(t, s.Active())
		require.False(t, admits(), "what remains is in flight")
		for range 2 { // two fail without a response
			s.Observe(Request{}, new(Response), time.Now(), time.Now(), 0)
		}
		p, rejected := s.Admit(t.Context(), Request{}, time.Now())
		require.Nil(t, rejected, "two of four are left")
		p.Cancel(time.Now())
		shows(3, 0)
		shows(2, 0)
		shows(1, 0) // one more than was in flight
		p, rejected = s.Admit(t.Context(), Request{}, time.Now())
		require.Nil(t, rejected)
		p.Cancel(time.Now())
	})
}

// A thousand goroutines use one Limiter with more scopes, credentials, keys, routes and names than its
// maps keep. Some wait, some cancel, some are hedges, some get no response. No permit is lost.
func TestLimiter_thousandGoroutines(t *testing.T) {
	calls := 20
	if testing.Short() {
		calls = 5
	}
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 500, Burst: 50, MaxInFlight: 100, MaxWait: 2 * time.Second})
		l.accounts.Max, l.buckets.Max, l.routes.Max = 16, 16, 32
		var admitted, done atomic.Int64
		var used sync.Map // every bucket that gave a permit, also if it is evicted
		one := func() {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Second))
			defer cancel()
			s := l.Set(fmt.Sprint("scope-", rand.N(4)))
			r := Request{
				Credential: rand.Uint64N(10), Key: fmt.Sprint("key-", rand.N(3)), Path: fmt.Sprintf("/a/%d/b", rand.N(40)),
				NoWait: rand.N(8) == 0, AtOnce: rand.N(8) == 0, MaxBlock: time.Second,
			}
			p, rejected := s.Admit(ctx, r, time.Now())
			if rejected != nil {
				return
			}
			admitted.Add(1)
			defer done.Add(1)
			used.Store(p.bucket, true)
			if rand.N(10) == 0 {
				p.Cancel(time.Now())
				return
			}
			time.Sleep(rand.N(200 * time.Millisecond))
			header, status := http.Header{}, []int{0, 200, 200, 200, 200, 403, 429, 503}[rand.N(8)]
			setFields(header, "X-RateLimit-Limit", 50, "X-RateLimit-Remaining", rand.N(50), "X-RateLimit-Reset", 1+rand.N(3))
			if name := rand.N(30); name > 0 {
				header.Set("X-Ratelimit-Bucket", fmt.Sprint("bucket-", name))
			}
			p.Done(answerOf(status, header, time.Now()), time.Now())
			_ = s.Exhausted(r, time.Now())
			_ = s.BlockedUntil(r, time.Now())
			if rand.N(50) == 0 {
				l.Each(time.Now(), func(string, Quota) {})
			}
		}
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				for range calls {
					one()
				}
			})
		}
		all.Wait()
		require.Equal(t, admitted.Load(), done.Load())
		require.Greater(t, admitted.Load(), int64(100*calls), "many are sent")
		buckets := 0
		used.Range(func(key, _ any) bool {
			b := key.(*bucket)
			b.Mu.Lock()
			defer b.Mu.Unlock()
			buckets++
			require.Zero(t, b.inflight)
			require.Zero(t, b.Len())
			return true
		})
		require.Greater(t, buckets, 100, "many are evicted")
		for i := range 4 {
			s := l.Set(fmt.Sprint("scope-", i))
			require.InDelta(t, s.slots.burst, s.slots.tokens, 0)
			require.Zero(t, s.slots.Len()+s.fixed.Len())
		}
	})
}

// A call that has less time after the reset than a response takes is not sent, even if a proxy has once responded at once.
func TestLimiter_responsesGetSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: time.Hour})
		reset := time.Now().Add(time.Hour)
		left := 400
		respond := func(took time.Duration) {
			e := newExchange(t.Context(), l)
			require.Nil(t, e.enter())
			time.Sleep(took)
			left--
			setFields(e.header, "RateLimit-Limit", 400, "RateLimit-Remaining", left, "RateLimit-Reset", int(time.Until(reset).Seconds()))
			e.done()
		}
		respond(time.Millisecond)
		for left > 0 {
			respond(2 * time.Second)
		}
		late := newExchange(t.Context(), l)
		late.Deadline, late.MaxBlock = reset.Add(500*time.Millisecond), time.Hour
		rejected := late.enter()
		require.NotNil(t, rejected)
		require.Equal(t, waitqueue.DeadlineExceeded, rejected.Reason)
	})
}

// A step of the local clock is not taken for a step of the server's. A step of the server's clock
// affects one window at most.
func TestQuotaClocks(t *testing.T) {
	var c serverClock
	start := time.Date(2026, 1, 1, 0, 0, 0, 300_000_000, time.UTC)
	observe := func(ahead, at time.Duration) {
		written := start.Add(at + ahead).Truncate(time.Second)
		c.observe(written, start.Add(at-20*time.Millisecond), start.Add(at+30*time.Millisecond))
	}
	for at := time.Duration(0); at < 3*time.Second; at += 50 * time.Millisecond {
		observe(time.Hour, at)
		assert.LessOrEqual(t, c.least, time.Hour)
		assert.GreaterOrEqual(t, c.most, time.Hour)
	}
	assert.Less(t, c.most-c.least, 150*time.Millisecond, "it is known quite well by now")
	observe(-time.Minute, 4*time.Second)
	assert.LessOrEqual(t, c.least, -time.Minute, "the server's clock was set back")
	assert.GreaterOrEqual(t, c.most, -time.Minute)
	observe(time.Minute, 5*time.Second)
	assert.LessOrEqual(t, c.least, time.Minute, "and forth")
	assert.GreaterOrEqual(t, c.most, time.Minute)

	// The result of time.Now after the local clock was set an hour ahead: the seconds of
	// its wall clock are the upper bits of its first word.
	l := with(Config{})
	b := &bucket{limiter: l}
	stepped := l.origin.Add(time.Second)
	*(*uint64)(unsafe.Pointer(&stepped)) += 3600 << 30
	require.Equal(t, l.origin.Round(0).Add(time.Hour+time.Second), stepped.Round(0))
	require.Equal(t, time.Second, stepped.Sub(l.origin))
	assert.Equal(t, l.origin.Round(0).Add(time.Second), l.steady(stepped).Round(0))

	// The goroutine that read the clock first may get the lock last.
	assert.Equal(t, b.tick(stepped), b.tick(l.origin))
}

// §4.17: quotas, blocks and all else with a time survive a clock that goes back, as in the next bubble.
// A server that serves is used at once, also for hedges.
func TestLimiter_clockThatGoesBack(t *testing.T) {
	exhausted := quotaHeader(10, 0, 3600)
	bucket := append([]string{"X-RateLimit-Bucket", "b", "Retry-After", "3600"}, exhausted...)
	rejected := func(header ...string) func(*testing.T, *Limiter) {
		return func(t *testing.T, l *Limiter) {
			require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, header...))
		}
	}
	for _, row := range []struct {
		name  string
		first func(*testing.T, *Limiter)
	}{
		{"a reset that a success shows", func(t *testing.T, l *Limiter) { require.Nil(t, respond(t, l, "/", http.StatusOK, exhausted...)) }},
		{"a reset that a rejection shows", rejected(exhausted...)},
		{"a quota with a name", rejected(bucket...)},
		{"a block of all quotas", func(t *testing.T, l *Limiter) {
			require.Nil(t, respond(t, l, "/", http.StatusOK, "X-RateLimit-Bucket", "b"))
			rejected("X-RateLimit-Global", "true", "X-RateLimit-Bucket", "b", "X-RateLimit-Remaining", "0", "Retry-After", "3600")(t, l)
			require.NotNil(t, respond(t, l, "/", http.StatusOK))
			require.NotNil(t, respond(t, l, "/other", http.StatusOK))
		}},
		{"a 429", rejected()},
		{"a streak of rejections", func(t *testing.T, l *Limiter) {
			for range minStreak {
				require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, "Retry-After", "3600"))
				time.Sleep(time.Second)
			}
			require.NotNil(t, respond(t, l, "/", http.StatusOK))
		}},
		{"an exhausted quota without a reset, twice", func(t *testing.T, l *Limiter) {
			header := []string{"Retry-After", "120", "X-RateLimit-Remaining", "0"}
			rejected(header...)(t, l)
			time.Sleep(2 * time.Minute)
			rejected(header...)(t, l)
			require.NotNil(t, respond(t, l, "/", http.StatusOK))
		}},
		{"a first request after a reset, which never returns", func(t *testing.T, l *Limiter) {
			require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(10, 0, 10)...))
			require.Nil(t, newExchange(t.Context(), l).enter())
		}},
		{"a probe that never returns", func(t *testing.T, l *Limiter) {
			require.Nil(t, respond(t, l, "/", http.StatusOK, exhausted...))
			require.NotNil(t, newExchange(t.Context(), l).enter())
			require.Nil(t, newExchange(t.Context(), l).enter())
		}},
		{"a token bucket", func(t *testing.T, l *Limiter) {
			for reset := range 10 {
				require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(10, 9-reset, 360*(reset+1))...))
			}
			require.NotNil(t, respond(t, l, "/", http.StatusOK))
		}},
	} {
		for _, back := range []time.Duration{time.Hour, 26 * 365 * 24 * time.Hour} {
			t.Run(fmt.Sprintf("%s, %v", row.name, back), func(t *testing.T) {
				var l *Limiter
				synctest.Test(t, func(t *testing.T) {
					l = with(Config{})
					time.Sleep(back)
					row.first(t, l)
				})
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					for range 20 {
						require.Nil(t, respond(t, l, "/", http.StatusOK))
						e := newExchange(t.Context(), l)
						e.NoWait = true
						require.Nil(t, e.enter(), "a hedge")
						e.done()
					}
					require.Zero(t, time.Since(begun))
					require.Zero(t, l.Set("api.example.com").BlockedUntil(Request{Path: "/"}, time.Now()))
				})
			})
		}
	}
}

// §4.17: a report that is late, because Classify took long or the process was frozen, is no clock that goes
// back: what is known stays.
func TestBucket_lateReport(t *testing.T) {
	for _, late := range []time.Duration{50 * time.Second, 70 * time.Second, 10 * time.Minute} {
		bubble.Run(t, late.String(), func(t *testing.T) {
			l := with(Config{})
			require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(10, 2, 3000)...))
			slow := newExchange(t.Context(), l)
			require.Nil(t, slow.enter())
			exhausted := append([]string{"Retry-After", "3000"}, quotaHeader(10, 0, 3000)...)
			require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, exhausted...))
			require.NotNil(t, respond(t, l, "/", http.StatusOK))
			read := time.Now()
			time.Sleep(late)
			require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, exhausted...), "a probe")
			slow.Done(answerOf(http.StatusNotFound, http.Header{}, read), read)
			require.NotNil(t, respond(t, l, "/", http.StatusOK), "the quota is still exhausted")
		})
	}
}
