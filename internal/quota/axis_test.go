package quota

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestQuotaCut: a reset that lies beyond MaxClosed is not waited for; but when
// MaxClosed is over the quota is not whole again, so one goes and asks.
func TestQuotaCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int64
		left.Store(3)
		s := newQuotaScript(t, with(Config{MaxClosed: 10 * time.Second, MaxWait: time.Hour}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		assert.LessOrEqual(t, s.Total(), 1+2+2, "one in MaxClosed\n%s", s.Transcript())
		left.Store(100)
		time.Sleep(25 * time.Second)
		b := s.bucket(t)
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.EqualValues(t, 0, b.len())
	})
}

// TestQuotaLimitChanges: what a server says of its limit is believed, when it
// falls and when it rises.
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
			b := &l.accounts.Peek(credential{scope: "mem.test"}).shared
			server.mu.Lock()
			assert.Zero(t, server.refused, "of %d", limit)
			server.mu.Unlock()
			b.mu.Lock()
			assert.EqualValues(t, limit, b.axes[0].limit)
			b.mu.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// TestQuotaCurt: where a server tells of its quota in refusals only, what it serves
// is counted, and the quota is kept in between (DESIGN §7, row 14).
func TestQuotaCurt(t *testing.T) {
	for kind, most := range map[quotaKind]int{
		aligned:   30, // one in each window, half of which is all that was ever seen of one
		fromFirst: 5,
	} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in2026(300 * time.Millisecond)
				s := &quotaServer{kind: kind, limit: 100, window: 10 * time.Second, dialect: quotaDialectNamed("github"), curt: true}
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
				assert.LessOrEqual(t, s.refused, most, "429s in 27 windows")
				s.mu.Unlock()
				assert.GreaterOrEqual(t, used, 0.9)
				time.Sleep(time.Minute)
			})
		})
	}
}
