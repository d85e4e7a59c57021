package quota

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// §4.17, L4: a single client gets no 429 after the first windows and uses at least 98 % of the
// quota. Calls that cannot be served in time are rejected at once.
func TestQuota(t *testing.T) {
	const s, m, ms = time.Second, time.Minute, time.Millisecond
	for _, row := range []struct {
		quotaRun
		least     float64 // of what the resets allow; 0: 0.98
		most      int     // refused
		afterWait int     // rejected after a wait; 0: a twentieth of those rejected at once
	}{
		// Each dialect.
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, latency: 50 * ms, dialect: "github", skew: 700 * ms, offset: 120 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, latency: 5 * ms, dialect: "epoch ms", skew: -time.Hour, offset: 951 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, latency: 50 * ms, dialect: "delta", skew: time.Hour, offset: 500 * ms, open: true}},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, dialect: "rfc 3339", skew: time.Hour, offset: 30 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, latency: 50 * ms, dialect: "openai", offset: 777 * ms, open: true}},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, latency: 5 * ms, dialect: "ietf", skew: 700 * ms, offset: 330 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, dialect: "discord", skew: -time.Hour, open: true}},
		// Short windows, and long ones.
		{quotaRun: quotaRun{kind: aligned, limit: 5, window: s, latency: 5 * ms, dialect: "delta", offset: 100 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 100, window: s, latency: 50 * ms, dialect: "github", skew: 700 * ms, offset: 300 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 1000, window: s, latency: 5 * ms, dialect: "ietf", offset: 800 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 5, window: m, latency: 50 * ms, dialect: "github", offset: 900 * ms}},
		{quotaRun: quotaRun{kind: aligned, limit: 100, window: m, latency: 5 * ms, dialect: "openai", open: true}},
		// Windows that begin with a request: a round trip of each is lost, because the
		// time of its start is unknown.
		{quotaRun: quotaRun{kind: fromFirst, limit: 5, window: 10 * s, dialect: "epoch ms", offset: 120 * ms}},
		{quotaRun: quotaRun{kind: fromFirst, limit: 100, window: s, latency: 5 * ms, dialect: "openai", offset: 510 * ms, open: true}},
		{quotaRun: quotaRun{kind: fromFirst, limit: 60, window: 10 * s, latency: 50 * ms, dialect: "delta", skew: time.Hour, offset: 480 * ms}},
		{quotaRun: quotaRun{kind: fromFirst, limit: 60, window: 10 * s, latency: 5 * ms, dialect: "discord", offset: 20 * ms, open: true}},
		{quotaRun: quotaRun{kind: fromFirst, limit: 100, window: m, latency: 50 * ms, dialect: "github", skew: -time.Hour, offset: 700 * ms}},
		{quotaRun: quotaRun{kind: fromFirst, limit: 60, window: s, latency: 50 * ms, dialect: "openai", offset: 20 * ms}, least: 0.94},
		// Token buckets.
		{quotaRun: quotaRun{kind: tokenBucket, limit: 5, window: s, latency: 5 * ms, dialect: "openai", offset: 250 * ms}},
		{quotaRun: quotaRun{kind: tokenBucket, limit: 100, window: s, latency: 50 * ms, dialect: "openai", offset: 10 * ms}},
		{quotaRun: quotaRun{kind: tokenBucket, limit: 60, window: 10 * s, latency: 50 * ms, dialect: "delta", offset: 640 * ms}},
		{quotaRun: quotaRun{kind: tokenBucket, limit: 60, window: 10 * s, latency: 5 * ms, dialect: "discord", offset: 990 * ms, open: true}, most: 2, afterWait: 40},
		{quotaRun: quotaRun{kind: tokenBucket, limit: 100, window: m, latency: 50 * ms, dialect: "rfc 3339", skew: time.Hour, offset: 100 * ms}},
		// Resets that are rounded down, which is wrong: one 429 a window.
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, latency: 5 * ms, dialect: "floor", offset: 512 * ms}, most: 6},
		{quotaRun: quotaRun{kind: fromFirst, limit: 60, window: 10 * s, latency: 5 * ms, dialect: "floor", offset: 512 * ms}, most: 6},
		// Responses that arrive in another order.
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, latency: 50 * ms, dialect: "github", offset: 120 * ms, jitter: true}},
		{quotaRun: quotaRun{kind: fromFirst, limit: 100, window: 10 * s, latency: 50 * ms, dialect: "delta", offset: 120 * ms, open: true, jitter: true}},
		{quotaRun: quotaRun{kind: tokenBucket, limit: 1000, window: s, latency: 50 * ms, dialect: "openai", offset: 120 * ms, jitter: true}},
		// Responses that arrive after the end of the window describe the past: only the limit
		// is used.
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: s, latency: 1500 * ms, dialect: "delta", offset: 700 * ms}, least: 0.5, most: 30},
		{quotaRun: quotaRun{kind: aligned, limit: 5, window: 10 * s, latency: 15 * s, dialect: "discord", offset: 20 * ms, open: true}},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: 10 * s, work: 15 * s, dialect: "rfc 3339", offset: 120 * ms, open: true}, least: 0.4, most: 20, afterWait: 600},
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: s, work: 1500 * ms, dialect: "epoch ms", skew: -time.Hour, offset: 120 * ms}, least: 0.95, most: 12},
		{quotaRun: quotaRun{kind: fromFirst, limit: 60, window: 10 * s, latency: 15 * s, dialect: "ietf", offset: 210 * ms}},
		{quotaRun: quotaRun{kind: tokenBucket, limit: 60, window: 10 * s, latency: 15 * s, dialect: "openai", offset: 640 * ms}},
		// If their delays differ too, the remaining count is unknown.
		{quotaRun: quotaRun{kind: aligned, limit: 60, window: s, latency: 1500 * ms, dialect: "github", skew: 700 * ms, jitter: true}, least: 0.5, most: 30},
	} {
		bubble.Run(t, row.String(), func(t *testing.T) {
			got := row.run(t)
			if row.least == 0 {
				row.least = 0.98
			}
			assert.LessOrEqual(t, got.refused, row.most, "429s")
			assert.GreaterOrEqual(t, got.believed, row.least, "share of the quota")
			// If a reset moves to a later time, queued calls are rejected after a wait.
			if row.afterWait == 0 {
				row.afterWait = got.atOnce/20 + 5
			}
			assert.LessOrEqual(t, got.afterWait, row.afterWait, "calls rejected after a wait")
		})
	}
}

// 200 calls a second with deadlines of 30 s on a quota of 100. Calls that cannot be served in
// time are rejected at once. The others are served in order, and are spread after a reset.
func TestQuotaShared(t *testing.T) {
	for _, row := range []struct {
		name    string
		kind    quotaKind
		limit   int
		window  time.Duration
		latency time.Duration
		maxWait time.Duration
		reason  waitqueue.Reason
	}{
		{"deadline, 1 s", aligned, 100, time.Second, 4 * time.Millisecond, time.Hour, waitqueue.DeadlineExceeded},
		{"deadline, 10 s", fromFirst, 1000, 10 * time.Second, 4 * time.Millisecond, time.Hour, waitqueue.DeadlineExceeded},
		{"deadline, 1 s and long ways", fromFirst, 108, time.Second, 80 * time.Millisecond, time.Hour, waitqueue.DeadlineExceeded},
		{"deadline, token bucket", tokenBucket, 100, time.Second, 4 * time.Millisecond, time.Hour, waitqueue.DeadlineExceeded},
		{"MaxWait", aligned, 100, time.Second, 4 * time.Millisecond, 5 * time.Second, waitqueue.MaxWaitExceeded},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			in2026(234 * time.Millisecond)
			s := &quotaServer{kind: row.kind, limit: row.limit, window: row.window, dialect: "openai"}
			c := client(direct{handler: s, up: row.latency / 2, down: row.latency / 2}, with(Config{MaxWait: row.maxWait}))
			const all = 9000
			type call struct{ begun, over time.Time }
			var mu sync.Mutex
			var served []call
			var atOnce, waited int
			var calls sync.WaitGroup
			for range all {
				time.Sleep(5 * time.Millisecond)
				calls.Go(func() {
					o := call{begun: time.Now()}
					ctx, cancel := context.WithDeadline(t.Context(), o.begun.Add(30*time.Second))
					defer cancel()
					_, err := get(ctx, c, "http://mem.test")
					o.over = time.Now()
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						assert.LessOrEqual(t, o.over.Sub(o.begun), 30*time.Second)
						served = append(served, o)
					case o.over.Equal(o.begun):
						atOnce++
						assert.Equal(t, row.reason, err.Reason)
						// The queue was as long as the call could wait.
						ready := min(30*time.Second, row.maxWait)
						assert.InDelta(t, ready.Seconds(), err.NotBefore.Sub(o.begun).Seconds(), ready.Seconds()/10+row.window.Seconds(), "NotBefore")
					default:
						waited++
					}
				})
			}
			calls.Wait()
			assert.LessOrEqual(t, s.refused, 1, "429s") // the first window
			assert.Positive(t, atOnce)
			assert.LessOrEqual(t, waited, all/500, "calls rejected after a wait")
			took := served[len(served)-1].over.Sub(served[0].over).Seconds()
			assert.GreaterOrEqual(t, float64(len(served)), 0.98*took*100, "calls served at 100 a second")
			for i := range served[1:] {
				if served[i].over.Before(served[i+1].over) {
					require.False(t, served[i].begun.After(served[i+1].begun), "first come, first served")
				}
			}
			// They are sent at most at twice the rate of the quota.
			s.mu.Lock()
			defer s.mu.Unlock()
			at := s.arrivals[len(s.arrivals)/2:]
			for i := range at[:len(at)-10] {
				require.Greater(t, at[i+10].Sub(at[i]), 5*time.Millisecond, "ten requests in so short a time")
			}
		})
	}
}

// quotaScript is a scripted server over net/http, with a client that makes single attempts.
type quotaScript struct {
	*faulttest.Server

	limiter *Limiter
	client  *http.Client
}

func newQuotaScript(t *testing.T, l *Limiter, script http.Handler) *quotaScript {
	s := &quotaScript{Server: &faulttest.Server{Script: script, InMemory: true, Host: "mem.test"}, limiter: l}
	s.Start(t)
	transport := s.Transport()
	transport.DisableKeepAlives = true // net/http retries requests that fail on an idle connection
	s.client = client(transport, l)
	return s
}

// get makes a call and returns its duration.
func (s *quotaScript) get(t *testing.T, path string) (took time.Duration, refused *refusedError) {
	begun := time.Now()
	_, refused = get(t.Context(), s.client, s.URL+path)
	return time.Since(begun), refused
}

// bucket returns the bucket of the server's unnamed quota.
func (s *quotaScript) bucket(t *testing.T) *bucket {
	b := &s.limiter.accounts.Get(accountKey{scope: "mem.test"}).general
	t.Cleanup(func() {
		b.Mu.Lock()
		defer b.Mu.Unlock()
		assert.Zero(t, b.inflight, "in flight")
		assert.Zero(t, b.Len(), "queued")
	})
	return b
}

// says is a response with the state of a quota, in the oldest IETF dialect.
func says(limit, left int, reset time.Duration) faulttest.Reply {
	return faulttest.Reply{RateLimits: []faulttest.RateLimit{{Dialect: faulttest.IETF06, Limit: limit, Remaining: left, Reset: reset}}}
}

// late is a delayed response.
func late(delay time.Duration, answer faulttest.Reply) faulttest.Reply {
	answer.Delay = delay
	return answer
}

// refusing is the response with a status.
func refusing(status int, answer faulttest.Reply) faulttest.Reply {
	answer.Status = status
	return answer
}

// exhausted is a rejection that shows an exhausted quota, with Retry-After as its reset.
func exhausted(retryAfter time.Duration) faulttest.Reply {
	return faulttest.Reply{
		Status: http.StatusTooManyRequests, RetryAfter: retryAfter, Header: http.Header{"Ratelimit-Remaining": {"0"}},
	}
}

// Responses that come in one tick of the clock are ordered by what was known when their requests were sent.
func TestQuota_outOfOrderWithinATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: -1})
		enter := func() (all []*exchange) {
			for range 100 {
				if e := newExchange(t.Context(), l); e.enter() == nil {
					all = append(all, e)
				}
			}
			return all
		}
		first := newExchange(t.Context(), l)
		require.Nil(t, first.enter())
		first.shows(100, 60, 60)
		calls := enter()
		require.Len(t, calls, 60)
		for i := 49; i >= 0; i-- { // 10 are in flight
			calls[i].shows(100, 59-i, 60)
		}
		require.Empty(t, enter(), "10 are left, for those in flight")
	})
}

// The time between the beginning of a call and its queue is no wait in the queue.
func TestQuota_lateEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: 3 * time.Second})
		first := newExchange(t.Context(), l)
		require.Nil(t, first.enter())
		first.shows(1, 0, 7)
		begun := time.Now()
		time.Sleep(5 * time.Second)
		_ = l.Set(first.scope).BlockedUntil(first.Request, time.Now())
		_, rejected := l.Set(first.scope).Admit(t.Context(), first.Request, begun)
		require.Nil(t, rejected, "the reset is 2 s away")
	})
}

// A hedge that is refused, because less than half of the quota is left, takes nothing from a call at the same time.
func TestQuota_refusedHedge(t *testing.T) {
	l := with(Config{MaxWait: -1})
	first := newExchange(t.Context(), l)
	require.Nil(t, first.enter())
	first.shows(10, 1, 3000)
	stop, hedges := make(chan struct{}), sync.WaitGroup{}
	hedges.Go(func() {
		hedge := newExchange(t.Context(), l)
		hedge.NoWait = true
		for {
			select {
			case <-stop:
				return
			default:
				assert.NotNil(t, hedge.enter())
			}
		}
	})
	refused := 0
	for range 20_000 {
		e := newExchange(t.Context(), l)
		if e.enter() != nil {
			refused++
			continue
		}
		e.Permit.Cancel(time.Now())
	}
	close(stop)
	hedges.Wait()
	require.Zero(t, refused)
}

// A quota with a reset later than MaxBlock holds calls for MaxBlock, and then one call tries it. It is full
// again at its own reset. Responses that come in another order do not raise its count.
func TestQuota_longerThanMaxBlock(t *testing.T) {
	for _, kind := range []quotaKind{fromFirst, tokenBucket} {
		bubble.Run(t, string(kind), func(t *testing.T) {
			s := &quotaServer{kind: kind, limit: 10, window: 20 * time.Hour, dialect: "github"}
			c := client(direct{handler: s, up: 10 * time.Millisecond, down: 10 * time.Millisecond, jitter: true}, with(Config{}))
			burst := func(calls int) (served int, sent int) {
				s.measure()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var group sync.WaitGroup
				for range calls {
					group.Go(func() { _, _ = get(ctx, c, "http://quota.test/") })
				}
				group.Wait()
				return s.served, s.served + s.refused
			}
			_, _ = burst(1)
			_, _ = burst(20) // the quota is used up
			time.Sleep(30 * time.Minute)
			_, sent := burst(20)
			require.LessOrEqual(t, sent, 1)
			time.Sleep(time.Hour)
			_, sent = burst(20)
			require.LessOrEqual(t, sent, 1)
			time.Sleep(21 * time.Hour)
			served, sent := burst(20)
			require.Equal(t, 10, served)
			require.LessOrEqual(t, sent, 11)
		})
	}
}

// Responses without fields delay no call: not in a known window, and not after the server stops
// sending fields.
func TestQuota_responsesWithoutFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Script{
			{Route: "/silent", Handler: faulttest.Reply{Delay: 10 * time.Millisecond}},
			{Handler: late(10*time.Millisecond, says(3, 2, 10*time.Second))},
		})
		_, _ = s.get(t, "/")
		s.bucket(t)
		begun := time.Now()
		for range 50 {
			_, err := s.get(t, "/silent")
			require.Nil(t, err)
		}
		assert.Equal(t, 500*time.Millisecond, time.Since(begun), "one after the other")
		time.Sleep(15 * time.Second)
		_, _ = s.get(t, "/silent") // a new window, and nothing said in it
		begun = time.Now()
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() { _, _ = s.get(t, "/silent") })
		}
		calls.Wait()
		assert.Equal(t, 10*time.Millisecond, time.Since(begun), "all at once")
	})
}

// The tightest of several quotas counts. Of a quota that does not count requests, only exhaustion
// counts.
func TestQuota_severalDimensions(t *testing.T) {
	for _, row := range []struct {
		name             string
		requests, tokens int
		wait             time.Duration // of the third of three calls at once
	}{
		{"plenty", 100, 1000, 0},
		{"no requests", 0, 1000, 20 * time.Second},
		{"no tokens", 100, 0, 40 * time.Second},
		{"few tokens", 100, 1, 0},
		{"neither", 0, 0, 40 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			openAI := func(requests, tokens int) faulttest.Reply {
				return faulttest.Reply{RateLimits: []faulttest.RateLimit{
					{Dialect: faulttest.OpenAI, Name: "requests", Limit: 100, Remaining: requests, Reset: 20 * time.Second},
					{Dialect: faulttest.OpenAI, Name: "tokens", Limit: 1000, Remaining: tokens, Reset: 40 * time.Second},
				}}
			}
			s := newQuotaScript(t, with(Config{}), faulttest.Sequence(openAI(row.requests, row.tokens), openAI(100, 1000)))
			_, _ = s.get(t, "/")
			s.bucket(t)
			var longest atomic.Int64
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					took, err := s.get(t, "/")
					assert.Nil(t, err)
					longest.Store(max(longest.Load(), int64(took)))
				})
				synctest.Wait()
			}
			calls.Wait()
			took := time.Duration(longest.Load())
			assert.GreaterOrEqual(t, took, row.wait)
			assert.Less(t, took, row.wait+2*time.Second)
		})
	}
}

// After a reset one call is sent alone. If it is rejected, there is one 429 and not one for each
// queued call. If it gets no response, the others wait for a short time only.
func TestQuota_firstRequestAfterReset(t *testing.T) {
	for _, row := range []struct {
		name   string
		second http.Handler
		after  time.Duration // for as long it is alone
		window time.Duration // 0: 10 s
	}{
		{"answers", late(100*time.Millisecond, says(100, 99, 10*time.Second)), 100 * time.Millisecond, 0},
		{"is refused", refusing(http.StatusTooManyRequests, says(100, 0, 5*time.Second)), 5 * time.Second, 0},
		{"hangs", faulttest.Reply{Delay: time.Hour}, time.Second, 0},
		{"hangs in a short window", faulttest.Reply{Delay: time.Hour}, 250 * time.Millisecond, 2 * time.Second},
		{"is lost", late(100*time.Millisecond, faulttest.Reply{Fault: faulttest.ResetAfterRead}), 100 * time.Millisecond, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			if row.window == 0 {
				row.window = 10 * time.Second
			}
			s := newQuotaScript(t, with(Config{}), faulttest.Sequence(says(100, 0, row.window), row.second, says(100, 50, row.window)))
			_, _ = s.get(t, "/")
			s.bucket(t)
			var calls sync.WaitGroup
			for range 20 {
				calls.Go(func() { _, _ = s.get(t, "/") })
			}
			calls.Wait()
			require.True(t, s.AssertRequests(t, 21))
			var at []time.Time
			for _, q := range s.Requests() {
				at = append(at, q.ReceivedAt)
			}
			assert.InDelta(t, row.window.Seconds(), at[1].Sub(at[0]).Seconds(), 0.1, "after the reset")
			assert.InDelta(t, row.after.Seconds(), at[2].Sub(at[1]).Seconds(), 0.1, "alone")
			assert.Greater(t, at[20].Sub(at[2]), 100*time.Millisecond, "spread")
			assert.Less(t, at[20].Sub(at[2]), 2*time.Second, "but not for long")
		})
	}
}

// permitOf takes a permit of the bucket.
func permitOf(b *bucket) Permit {
	p := Permit{bucket: b}
	b.use(&p.flight, time.Now())
	return p
}

// newBucket returns a bucket without a key.
func newBucket() *bucket { return &with(Config{}).accounts.Get(accountKey{}).general }

// If the request that is sent alone after a reset is not sent, the next one is sent alone instead. The response of a
// request that was sent before the wait is not its response.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		waits := func() bool { o := b.opening(time.Now(), 0); return !o.recheck.IsZero() }
		earlier := permitOf(b)
		time.Sleep(time.Second)
		b.after = release{alone: time.Now().Add(time.Second), since: time.Now()}
		first := permitOf(b)
		require.True(t, waits())
		b.finish(&earlier.flight, true)
		require.True(t, waits(), "others still wait for the first")
		first.Cancel(time.Now())
		require.False(t, waits(), "the next one may be sent")
		second := permitOf(b)
		require.True(t, waits(), "it goes alone")
		b.finish(&second.flight, true)
		require.False(t, waits())
	})
}

// beginning is a Waiter: what happens while a call begins to wait.
type beginning func()

func (b beginning) WaitBegins(time.Time, bool) { b() }
func (beginning) WaitEnds()                    {}

// A call that is canceled at the time of its permit has either the permit or the cancellation. The permit is not lost.
func TestQuota_cancelWithPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.block.reject(rejection{time.Now(), time.Now(), time.Second, true, false, false}, time.Hour, 1)
		seen := map[bool]bool{}
		for range 64 {
			ctx, cancel := context.WithCancel(t.Context())
			granted := beginning(func() {
				b.Mu.Lock()
				defer b.Mu.Unlock()
				b.Grant(b.First(), permitOf(b).flight)
				cancel()
			})
			b.Mu.Lock()
			e := &waitqueue.Entry[flight]{Limits: waitqueue.Limits{Ctx: ctx, MaxWait: time.Hour, Waiter: granted}}
			require.Nil(t, b.Join(time.Now(), e))
			b.Mu.Unlock()
			refused := b.Wait(e)
			seen[refused == nil] = true
			if refused == nil {
				require.EqualValues(t, 1, b.inflight)
				b.Cancel(e.Permit, time.Now())
			}
			require.Zero(t, b.inflight)
		}
		assert.Len(t, seen, 2)
	})
}

// Requests that are in flight when the first response with a quota arrives are counted, and their
// results wake others.
func TestSet_firstResponse(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	for range rounds {
		l := with(Config{MaxWait: 20 * time.Second}) // as long as a lost wake-up would take
		begun := time.Now()
		var calls sync.WaitGroup
		for i := range 4 {
			calls.Go(func() {
				e := newExchange(t.Context(), l)
				if i == 0 {
					e.header = http.Header{"Ratelimit-Limit": {"3"}, "Ratelimit-Remaining": {"1"}, "Ratelimit-Reset": {"3600"}}
				}
				for range 3 {
					if e.enter() != nil {
						return // the last of the quota is taken
					}
					if i == 3 {
						e.Cancel(time.Now())
					} else {
						e.done()
					}
				}
			})
		}
		calls.Wait()
		require.Less(t, time.Since(begun), 15*time.Second)
		b := &l.accounts.Peek(accountKey{scope: "api.example.com"}).general
		require.Zero(t, b.inflight)
		require.Zero(t, b.Len())
	}
}

// A quota is used up when responses begin to take longer than its window: the requests in flight
// then say nothing about the next window.
func TestQuota_serverThatBecomesSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in2026(300 * time.Millisecond)
		server := &quotaServer{kind: aligned, limit: 60, window: time.Second, dialect: "delta"}
		var work atomic.Int64
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			server.ServeHTTP(w, r)
			time.Sleep(time.Duration(work.Load()))
		})
		c := client(direct{handler: handler, up: time.Millisecond, down: time.Millisecond}, with(Config{MaxWait: time.Hour}))
		stop := time.Now().Add(5 * time.Minute)
		keepBusy(t, c, 200, stop)
		time.Sleep(30 * time.Second)
		work.Store(int64(1500 * time.Millisecond))
		time.Sleep(90 * time.Second)
		server.measure()
		time.Sleep(time.Until(stop))
		used, _ := server.share()
		assert.GreaterOrEqual(t, used, 0.9)
		time.Sleep(time.Minute)
	})
}

// A queued call is rejected as soon as its permit would be too late, and leaves the queue.
func TestQuota_rejectsQueuedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{MaxWait: time.Hour}), faulttest.Sequence(
			says(1, 0, 10*time.Second), exhausted(40*time.Second), faulttest.OK(""),
		))
		_, _ = s.get(t, "/")
		s.bucket(t)
		begun := time.Now()
		nearest5 := func(d time.Duration) int { return int(d.Round(5 * time.Second).Seconds()) }
		var calls sync.WaitGroup
		for _, row := range []struct {
			patience, maxClosed time.Duration
			want                string
		}{
			{time.Hour, time.Hour, "sent after 10"},
			{30 * time.Second, time.Hour, "past deadline after 10, not before 50"},
			{time.Hour, 25 * time.Second, "too long after 10, not before 50"},
			{time.Hour, time.Hour, "sent after 50"},
		} {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), row.patience)
				defer cancel()
				c := client(s.client.Transport.(*paced).base, s.limiter)
				c.Transport.(*paced).maxClosed = row.maxClosed
				_, err := get(ctx, c, s.URL)
				got := fmt.Sprintf("sent after %d", nearest5(time.Since(begun)))
				if err != nil {
					reason := [...]string{"too long", "past deadline"}[err.Reason]
					got = fmt.Sprintf("%s after %d, not before %d", reason, nearest5(time.Since(begun)), nearest5(err.NotBefore.Sub(begun)))
				}
				assert.Equal(t, row.want, got)
			})
			synctest.Wait() // in this order
		}
		calls.Wait()
	})
}

func queued(b *bucket) int64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Len()
}

// Calls that are sent, rejected, lost and canceled at random leave no request in flight, no queued call and no timer.
func TestBucket_stress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{Limit: 400, MaxWait: 20 * time.Second}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(rand.N(50 * time.Millisecond))
			switch rand.N(10) {
			case 0:
				exhausted(time.Second).ServeHTTP(w, r)
			case 1, 2:
				setFields(w.Header(), "RateLimit-Limit", 50, "RateLimit-Remaining", rand.N(50), "RateLimit-Reset", (rand.N(500*time.Millisecond) + time.Millisecond).Seconds())
			case 3, 4, 5, 6:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			case 7:
				faulttest.ResetAfterRead.ServeHTTP(w, r)
			}
		}))
		_, _ = s.get(t, "/")
		b := s.bucket(t)
		var callers sync.WaitGroup
		for range 90 {
			callers.Go(func() {
				for range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(5*time.Second))
					_, _ = get(ctx, s.client, s.URL)
					cancel()
				}
			})
		}
		callers.Wait()
		fixed := s.limiter.Set("mem.test").fixed
		require.Zero(t, queued(b)+fixed.Len())
		require.True(t, b.Alarm().IsZero())
		require.True(t, fixed.Alarm().IsZero())
	})
}
