package quota

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// A new limit of the server is used, whether it is lower or higher.
func TestQuotaLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &quotaServer{kind: aligned, limit: 50, window: 10 * time.Second, dialect: "delta"}
		l := with(Config{MaxWait: time.Hour})
		c := client(direct{handler: server}, l)
		stop := time.Now().Add(3 * time.Minute)
		keepBusy(t, c, 20, stop)
		for _, limit := range []int{50, 10, 200} {
			server.mu.Lock()
			server.limit = limit
			server.mu.Unlock()
			time.Sleep(25 * time.Second)
			server.measure()
			time.Sleep(30 * time.Second)
			used, _ := server.share()
			assert.GreaterOrEqual(t, used, 0.98, "of %d", limit)
			b := &l.accounts.Peek(accountKey{scope: "mem.test"}).general
			server.mu.Lock()
			assert.Zero(t, server.refused, "of %d", limit)
			server.mu.Unlock()
			b.Mu.Lock()
			assert.EqualValues(t, limit, b.dims[0].limit)
			b.Mu.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// If a server shows its quota in rejections only, the limiter counts the
// served requests and keeps the quota.
func TestQuota_shownInRejectionsOnly(t *testing.T) {
	for _, row := range []struct {
		kind   quotaKind
		window time.Duration
		used   float64 // of the quota, at least
		most   int     // 429s: as many in each window as are in flight
	}{
		{aligned, 10 * time.Second, 0.9, 20 * 27},
		{fromFirst, 10 * time.Second, 0.9, 20 * 27},
		{aligned, time.Second, 0.95, 7 * 270}, // a part of the second is waited
	} {
		bubble.Run(t, fmt.Sprintf("%v, %v", row.kind, row.window), func(t *testing.T) {
			in2026(300 * time.Millisecond)
			s := &quotaServer{kind: row.kind, limit: 100, window: row.window, dialect: "github", curt: true}
			c := client(direct{handler: s, up: 5 * time.Millisecond, down: 5 * time.Millisecond}, with(Config{MaxWait: time.Hour}))
			stop := time.Now().Add(5 * time.Minute)
			keepBusy(t, c, 20, stop)
			time.Sleep(30 * time.Second)
			s.measure()
			time.Sleep(time.Until(stop))
			used, _ := s.share()
			s.mu.Lock()
			assert.LessOrEqual(t, s.refused, row.most, "429s in %v windows", 270*time.Second/row.window)
			s.mu.Unlock()
			assert.GreaterOrEqual(t, used, row.used)
			time.Sleep(time.Minute)
		})
	}
}

// A token bucket of which only rejections tell has more within the second to which its reset is rounded up, also if its
// responses take longer than that.
func TestQuota_bucketShownInRejectionsOnly(t *testing.T) {
	for _, row := range []struct {
		rate, burst float64
		took        time.Duration // by a response
		calls       float64       // per token
		served      float64       // tokens, at least
	}{
		{18, 3, 8300 * time.Millisecond, 1.2, .6},
		{50, 5, 20 * time.Millisecond, 1.2, .6},
		{5, 1, 300 * time.Millisecond, 1.5, .6},
		{2, 2, 100 * time.Millisecond, 1.5, .6},
		{14, 2, 3 * time.Millisecond, 2.4, .8}, // the policy says 14, so the burst of two is a surprise
	} {
		bubble.Run(t, fmt.Sprintf("%v/s of %v, %v", row.rate, row.burst, row.took), func(t *testing.T) {
			tokens, last, served := row.burst, time.Now(), 0
			var mu sync.Mutex
			server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				now := time.Now()
				tokens, last = min(row.burst, tokens+row.rate*now.Sub(last).Seconds()), now
				admitted := tokens >= 1
				if admitted {
					tokens--
					served++
				}
				mu.Unlock()
				if admitted {
					time.Sleep(row.took)
					return
				}
				setFields(w.Header(), "RateLimit-Policy", fmt.Sprintf(`"p";q=%v;w=1`, row.rate), "RateLimit", `"p";r=0;t=1`, "Retry-After", 1)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			c := client(direct{handler: server, up: time.Millisecond}, with(Config{MaxWait: time.Minute}))
			const length = time.Minute
			calls := int(row.calls * row.rate * length.Seconds())
			var all sync.WaitGroup
			for range calls {
				all.Go(func() { _, _ = get(t.Context(), c, "http://mem.test") })
				time.Sleep(length / time.Duration(calls))
			}
			mu.Lock()
			assert.GreaterOrEqual(t, float64(served), row.served*row.rate*length.Seconds())
			mu.Unlock()
			all.Wait()
		})
	}
}

// A sliding window is not a token bucket: its reset moves too, but is always a window away.
func TestDimension_slidingWindow(t *testing.T) {
	for _, row := range []struct {
		name   string
		window time.Duration // that responses show; 0: none
		reset  func(used int64) time.Duration
		wait   time.Duration
	}{
		{"full when the used tokens have come: a token bucket", time.Minute, func(used int64) time.Duration { return time.Duration(used) * 600 * time.Millisecond }, 600 * time.Millisecond},
		{"a window away, however much remains: a sliding window", time.Minute, func(int64) time.Duration { return time.Minute }, time.Minute},
		{"sooner if nothing remains: the next unit of a sliding window", 0, func(used int64) time.Duration {
			if used == 100 {
				return 6 * time.Second
			}
			return time.Minute
		}, 6 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, now := dimension{}, time.Now()
			for used := int64(10); used <= 100; used += 10 {
				now = now.Add(3 * time.Second)
				o := observation{sent: now, now: now, longest: time.Hour, newer: true}
				o.read(&ratelimitheader.Dimension{Limit: 100, Remaining: 100 - used, Reset: row.reset(used), Window: row.window}, nil)
				d.learn(&o)
			}
			opens := d.end.reset
			if d.refill() > 0 {
				opens = d.refilledAt(d.need(0), load{})
			}
			require.Equal(t, row.wait, opens.Sub(now).Round(time.Millisecond))
		})
	}
}

// A reset of a fixed window differs by its unit between two responses, which is no token bucket that refills.
func TestResolution(t *testing.T) {
	for reset, want := range map[string]time.Duration{
		"7s": time.Second, "7.6s": 100 * time.Millisecond, "7.66s": 10 * time.Millisecond, "7.663s": 10 * time.Millisecond, "66ms": 10 * time.Millisecond,
	} {
		left, err := time.ParseDuration(reset)
		require.NoError(t, err)
		require.Equal(t, want, resolution(&ratelimitheader.Dimension{Reset: left}), reset)
	}
}
