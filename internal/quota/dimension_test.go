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
)

// A new limit of the server is used, whether it is lower or higher.
func TestQuotaLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &quotaServer{kind: aligned, limit: 50, window: 10 * time.Second, dialect: quotaDialectNamed("delta")}
		l := with(Config{MaxWait: time.Hour})
		c := client(direct{handler: server}, l)
		stop := time.Now().Add(3 * time.Minute)
		for range 20 {
			go func() {
				for time.Now().Before(stop) {
					_, _ = get(t.Context(), c, "http://mem.test")
				}
			}()
		}
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
		{aligned, time.Second, 0.95, 7 * 270}, // a part of the second is waited: see TestDimension_test
	} {
		t.Run(fmt.Sprintf("%v, %v", row.kind, row.window), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in2026(300 * time.Millisecond)
				s := &quotaServer{kind: row.kind, limit: 100, window: row.window, dialect: quotaDialectNamed("github"), curt: true}
				c := client(direct{handler: s, up: 5 * time.Millisecond, down: 5 * time.Millisecond}, with(Config{MaxWait: time.Hour}))
				stop := time.Now().Add(5 * time.Minute)
				for range 20 {
					go func() {
						for time.Now().Before(stop) {
							_, _ = get(t.Context(), c, "http://mem.test")
						}
					}()
				}
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
	}{
		{18, 3, 8300 * time.Millisecond, 1.2},
		{50, 5, 20 * time.Millisecond, 1.2},
		{5, 1, 300 * time.Millisecond, 1.5},
		{2, 2, 100 * time.Millisecond, 1.5},
	} {
		t.Run(fmt.Sprintf("%v/s of %v, %v", row.rate, row.burst, row.took), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				assert.GreaterOrEqual(t, float64(served), .6*row.rate*length.Seconds())
				mu.Unlock()
				all.Wait()
			})
		})
	}
}

// A quota with a reset that moves away three times is a token bucket: when it is empty, requests are sent one by one as
// it refills. After a rejection a quarter must refill first.
func TestQuota_tokenBucket(t *testing.T) {
	for _, row := range []struct {
		name   string
		moves  int
		status int // of the response that shows 0 left
		wait   time.Duration
	}{
		{"two moves: a window may have begun unseen", 2, http.StatusOK, 40 * time.Second},
		{"three moves: a token bucket", 3, http.StatusOK, 100 * time.Millisecond},
		{"a token bucket after a rejection", 3, http.StatusTooManyRequests, 10 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := with(Config{})
				for i := range row.moves {
					require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(400, 390-10*i, 5+5*i)...))
				}
				require.Nil(t, respond(t, l, "/", row.status, quotaHeader(400, 0, 40)...))
				begun := time.Now()
				require.Nil(t, respond(t, l, "/", http.StatusOK))
				require.InDelta(t, row.wait.Seconds(), time.Since(begun).Seconds(), .05+row.wait.Seconds()/20)
			})
		})
	}
}

// A rejection of the last millisecond of a window that arrives in the next one does not exhaust the next one.
func TestQuota_rejectionOfPreviousWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: -1})
		require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(10, 5, 10)...))
		time.Sleep(10*time.Second - time.Millisecond)
		late := newExchange(t.Context(), l)
		require.Nil(t, late.enter())
		time.Sleep(2 * time.Millisecond)
		require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(10, 9, 10)...))
		late.status = http.StatusTooManyRequests
		setFields(late.header, "RateLimit-Limit", 10, "RateLimit-Remaining", 0, "RateLimit-Reset", 1)
		late.done()
		require.Nil(t, respond(t, l, "/", http.StatusOK))
	})
}

// A sliding window is not a token bucket: its reset moves too, but is always a window away.
func TestQuota_slidingWindow(t *testing.T) {
	for _, row := range []struct {
		name  string
		reset func(used int) int // in seconds
		wait  time.Duration      // when nothing is left
	}{
		{"full when the used tokens have come: a token bucket", func(used int) int { return used * 6 / 10 }, 600 * time.Millisecond},
		{"a window away, however much remains: a sliding window", func(int) int { return 60 }, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := with(Config{MaxWait: -1})
				for used := 10; used <= 100; used += 10 {
					time.Sleep(3 * time.Second)
					e := newExchange(t.Context(), l)
					require.Nil(t, e.enter())
					setFields(e.header, "RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", fmt.Sprintf(`"p";r=%d;t=%d`, 100-used, row.reset(used)))
					e.done()
				}
				rejected := newExchange(t.Context(), l).enter()
				require.NotNil(t, rejected)
				require.InDelta(t, row.wait.Seconds(), time.Until(rejected.NotBefore).Seconds(), 0.5)
			})
		})
	}
}
