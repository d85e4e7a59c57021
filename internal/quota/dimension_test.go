package quota

import (
	"fmt"
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
		assert.EqualValues(t, 0, b.queue(0).Len())
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
			assert.EqualValues(t, limit, b.dims[0].limit)
			b.mu.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// TestQuotaCurt: where a server tells of its quota in refusals only, what it serves
// is counted, and the quota is kept in between (DESIGN §7, row 14).
func TestQuotaCurt(t *testing.T) {
	for _, row := range []struct {
		kind   quotaKind
		window time.Duration
		used   float64 // of the quota, at least
		most   int     // 429s: as many in each window as are in flight
	}{
		{aligned, 10 * time.Second, 0.9, 20 * 27},
		{fromFirst, 10 * time.Second, 0.9, 20 * 27},
		{aligned, time.Second, 0.95, 4 * 270},
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
