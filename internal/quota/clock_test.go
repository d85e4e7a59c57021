package quota

import (
	"fmt"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
