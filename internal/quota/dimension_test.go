package quota

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// A reset beyond MaxBlock is not waited for. After MaxBlock the quota is not full, so one request
// is sent as a probe.
func TestDimension_resetBeyondMaxBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int64
		left.Store(3)
		s := newQuotaScript(t, with(Config{MaxBlock: 10 * time.Second, MaxWait: time.Hour}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := left.Add(-1)
			answer := says(5000, int(max(n, 0)), 24*time.Hour)
			if n < 0 {
				answer.Status = http.StatusTooManyRequests
			}
			late(100*time.Millisecond, answer).ServeHTTP(w, r)
		}))
		_, _ = s.get(t, "/")
		time.Sleep(11 * time.Second)
		for range 20 {
			go func() { _, _ = s.get(t, "/") }()
		}
		time.Sleep(time.Second)
		s.AssertRequests(t, 1+2) // the two that remained
		time.Sleep(15 * time.Second)
		assert.LessOrEqual(t, s.Total(), 1+2+2, "one in MaxBlock\n%s", s.Transcript())
		left.Store(100)
		time.Sleep(25 * time.Second)
		b := s.bucket(t)
		b.Mu.Lock()
		defer b.Mu.Unlock()
		assert.EqualValues(t, 0, b.Len())
	})
}

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
		{aligned, time.Second, 0.95, 7 * 270}, // a part of the second is waited
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
		served      float64       // tokens, at least
	}{
		{18, 3, 8300 * time.Millisecond, 1.2, .6},
		{50, 5, 20 * time.Millisecond, 1.2, .6},
		{5, 1, 300 * time.Millisecond, 1.5, .6},
		{2, 2, 100 * time.Millisecond, 1.5, .6},
		{14, 2, 3 * time.Millisecond, 2.4, .8}, // the policy says 14, so the burst of two is a surprise
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
				assert.GreaterOrEqual(t, float64(served), row.served*row.rate*length.Seconds())
				mu.Unlock()
				all.Wait()
			})
		})
	}
}

// seen is a quota as a response has it.
func seen(limit, remaining int64, reset time.Duration) ratelimitheader.Dimension {
	return ratelimitheader.Dimension{Limit: limit, Remaining: remaining, Reset: reset}
}

// observe lets the dimension learn from one response, as a bucket does.
func observe(d *dimension, field ratelimitheader.Dimension, sent, now time.Time, rejected bool) {
	o := observation{sent: sent, now: now, longest: time.Hour, newer: true, rejected: rejected}
	o.read(&field, nil)
	current := d.learn(&o)
	a := Response{Status: http.StatusTooManyRequests}
	if rejected && a.exhausts(&field) {
		d.reject(now, current)
	}
}

// opens returns when the dimension has enough for a request.
func (d *dimension) opens(now time.Time) time.Time {
	if d.refill() > 0 {
		return d.refilledAt(d.need(0), 0)
	}
	return d.end.reset
}

// A later reset does not indicate a token bucket if it is that of the next window, begun in the second that
// was rounded up.
func TestDimension_otherMovingResets(t *testing.T) {
	d, now := dimension{}, time.Now()
	for i := range int64(2 * bucketMoves) {
		observe(&d, seen(400, 390-i, time.Minute), now, now, false)
		now = now.Add(59500 * time.Millisecond)
	}
	require.Less(t, d.resetMoves, bucketMoves)
}

// A sliding window is not a token bucket: its reset moves too, but is always a window away.
func TestDimension_slidingWindow(t *testing.T) {
	for _, row := range []struct {
		name  string
		reset func(used int64) time.Duration
		wait  time.Duration
	}{
		{"full when the used tokens have come: a token bucket", func(used int64) time.Duration { return time.Duration(used) * 600 * time.Millisecond }, 600 * time.Millisecond},
		{"a window away, however much remains: a sliding window", func(int64) time.Duration { return time.Minute }, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, now := dimension{}, time.Now()
			for used := int64(10); used <= 100; used += 10 {
				now = now.Add(3 * time.Second)
				field := seen(100, 100-used, row.reset(used))
				field.Window = time.Minute
				observe(&d, field, now, now, false)
			}
			require.Equal(t, row.wait, d.opens(now).Sub(now).Round(time.Millisecond))
		})
	}
}

// An announced exhaustion is confirmed if the reset refills the quota as announced. A token bucket
// refills one by one.
func TestDimension_confirmed(t *testing.T) {
	for _, row := range []struct {
		name          string
		moves         int
		limit, brings int64
		want          bool
	}{
		{"a window, half of the limit", 0, 400, 200, true},
		{"a window, less", 0, 400, 199, false},
		{"a token bucket, one", bucketMoves, 400, 1, true},
		{"two moves, one", bucketMoves - 1, 400, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			now := time.Now()
			d := dimension{resetMoves: row.moves, limit: row.limit, claimed: true}
			observe(&d, seen(row.limit, row.brings, 10*time.Second), now, now, false)
			require.Equal(t, row.want, d.proof != unproven)
		})
	}
}

// A rejection of the last millisecond of a window that arrives in the next one does not exhaust
// the next one.
func TestDimension_rejectionOfPreviousWindow(t *testing.T) {
	for _, row := range []struct {
		name string
		sent time.Duration // after the window began
		want bool
	}{
		{"sent before the window began", -2 * time.Millisecond, false},
		{"sent in the window", time.Millisecond, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			begun := time.Now()
			d := dimension{
				name: "requests", shownOnSuccess: true, limit: 400, remaining: 399, window: 10 * time.Second,
				since: begun, end: end{early: begun.Add(9 * time.Second), reset: begun.Add(10 * time.Second)},
			}
			field := seen(400, 0, 3*time.Millisecond)
			if row.want {
				field.Reset = 9998 * time.Millisecond
			}
			observe(&d, field, begun.Add(row.sent), begun.Add(2*time.Millisecond), true)
			require.Equal(t, row.want, d.exhausted(begun.Add(3*time.Millisecond)))
		})
	}
}
