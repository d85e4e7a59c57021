package quota

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// TestRefill: a token bucket is told from a window by how its reset moves with
// what remains.
func TestRefill(t *testing.T) {
	for _, row := range []struct {
		kind  quotaKind
		limit int
		known bool
	}{
		{tokenBucket, 100, true},
		{tokenBucket, 5, true},
		{aligned, 100, false},
		{aligned, 5, false},
		{fromFirst, 100, false},
	} {
		for _, d := range quotaDialects()[:7] {
			t.Run(string(row.kind)+"/"+d.name, func(t *testing.T) {
				begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				server := quotaServer{kind: row.kind, limit: row.limit, window: time.Minute, dialect: d}
				q := axis{}
				if !row.known {
					q.refill.moves = fewestMoves // as when windows have begun unseen
				}
				var clock serverClock
				for at := time.Duration(0); at < 5*time.Minute; at += rand.N(90 * time.Second / time.Duration(row.limit)) {
					now := begin.Add(at)
					_, say := server.count(now)
					h := http.Header{"Date": {now.Format(http.TimeFormat)}}
					d.say(h, say)
					state, ok := ratelimitheader.Parse(h, now)
					if !ok {
						continue // full again
					}
					date, err := http.ParseTime(h.Get("Date"))
					require.NoError(t, err)
					require.True(t, clock.observe(date, now, now))
					q.roll(now, 0, false, 0)
					r := reading{longest: time.Hour, sent: now, now: now, newer: true}
					r.read(state.Axes[0], &clock)
					q.learn(r)
				}
				assert.Equal(t, row.known, q.refill.known())
				if row.known {
					speed := float64(row.limit) / 60
					assert.LessOrEqual(t, q.refill.least, speed*1.001)
					assert.GreaterOrEqual(t, q.refill.least, speed*0.7)
				}
			})
		}
	}
}

// TestQuotaFullRefill: a token bucket that is full, but smaller than what is in
// flight, is waited for without haste.
func TestQuotaFullRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{MaxWait: time.Hour}), faulttest.Reply{Delay: time.Minute})
		_, _ = s.get(t, "/")
		b := s.bucket(t)
		b.armed.Store(true)
		b.axes = append(b.axes, axis{
			limit: 2, low: 2, window: time.Hour, reset: time.Now().Add(time.Hour), heard: time.Now(),
			refill: refill{least: 1, most: 1, moves: fewestMoves},
		})
		begun := time.Now()
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { _, _ = s.get(t, "/") })
		}
		calls.Wait()
		assert.InDelta(t, 120, time.Since(begun).Seconds(), 1)
	})
}

// TestRefillBurst: who comes a little too late for a bucket that fills up within a
// minute waits for a token, and not for the minute.
func TestRefillBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in2026(0)
		s := &quotaServer{kind: tokenBucket, limit: 60, window: time.Minute, dialect: quotaDialectNamed("openai")}
		c := client(direct{handler: s, up: 5 * time.Millisecond, down: 5 * time.Millisecond}, with(Config{}))
		begun := time.Now()
		var calls sync.WaitGroup
		for range 70 {
			calls.Go(func() {
				status, refused := get(t.Context(), c, "http://mem.test")
				assert.Nil(t, refused)
				assert.Equal(t, http.StatusOK, status)
			})
			time.Sleep(20 * time.Millisecond)
		}
		calls.Wait()
		assert.Zero(t, s.refused)
		assert.Less(t, time.Since(begun), 15*time.Second)
	})
}
