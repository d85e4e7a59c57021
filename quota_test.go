package resilienthttp

import (
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// TestReading: whatever the clocks and the way, the reset lies between the bounds
// that a reading gives, if the server tells the truth or rounds up.
func TestReading(t *testing.T) {
	for _, d := range quotaDialects()[:7] {
		t.Run(d.name, func(t *testing.T) {
			for range 400 {
				skew := time.Duration(rand.Int64N(int64(2*time.Hour))) - time.Hour
				begin := time.Date(2026, 1, 1, 0, 0, 0, rand.IntN(1e9), time.UTC) // by the server's clock
				s := quotaSaying{limit: 10, left: 3, window: 10 * time.Second, reset: begin.Add(10 * time.Second)}
				var clock serverClock
				var all []reading
				for at := time.Duration(0); at < 9*time.Second; at += rand.N(3 * time.Second) {
					s.now = begin.Add(at)
					h := http.Header{"Date": {s.now.UTC().Format(http.TimeFormat)}}
					d.say(h, s)
					r := reading{longest: time.Hour, sent: s.now.Add(-skew - rand.N(100*time.Millisecond)), now: s.now.Add(-skew + rand.N(100*time.Millisecond))}
					state, ok := ratelimitheader.Parse(h, r.now)
					require.True(t, ok)
					date, err := http.ParseTime(h.Get("Date"))
					require.NoError(t, err)
					clock.observe(date, r.sent, r.now)
					r.read(state.Axes[0], &clock)
					all = append(all, r)
				}
				reset := s.reset.Add(-skew)
				for _, r := range all {
					require.False(t, r.early.After(reset), "early %v, reset %v", r.early, reset)
					require.False(t, r.reset.Before(reset), "late %v, reset %v", r.reset, reset)
					require.LessOrEqual(t, r.window, 11*time.Second)
				}
			}
		})
	}
}

// TestRefill: a token bucket is told from a window by how its reset moves with
// what remains.
func TestRefill(t *testing.T) {
	for _, row := range []struct {
		kind  quotaKind
		limit int
		known bool
	}{
		{quotaRefill, 100, true},
		{quotaRefill, 5, true},
		{quotaAligned, 100, false},
		{quotaAligned, 5, false},
		{quotaFromFirst, 100, false},
	} {
		for _, d := range quotaDialects()[:7] {
			t.Run(string(row.kind)+"/"+d.name, func(t *testing.T) {
				begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				server := quotaServer{kind: row.kind, limit: row.limit, window: time.Minute, dialect: d}
				q := quota{}
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
					clock.observe(date, now, now)
					q.roll(now, 0, false)
					r := reading{longest: time.Hour, sent: now, now: now, newer: true}
					r.read(state.Axes[0], &clock)
					q.learn(r, 0)
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

// TestPace: never more than the limit in any window; and no less than nearly so
// many if there are more who want to.
func TestPace(t *testing.T) {
	const window = 10 * time.Second
	for _, limit := range []int64{1, 2, 5, 31, 32, 33, 60, 100, 1000, 4999} {
		for _, eager := range []bool{true, false} {
			p := newPace(0, time.Time{})
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			begin := now
			var sent []time.Time
			for range 12*limit + 100 {
				if !eager {
					now = now.Add(rand.N(3 * window / time.Duration(2*limit)))
				}
				if at := p.room(now, window, limit, 0); at.After(now) {
					now = at
					require.False(t, p.room(now, window, limit, 0).After(now), "no time to wait for nothing")
				}
				p.add(now, limit)
				sent = append(sent, now)
			}
			for i := limit; i < int64(len(sent)); i++ {
				require.GreaterOrEqual(t, sent[i].Sub(sent[i-limit]), window, "limit %d", limit)
			}
			if eager {
				took := now.Sub(begin).Seconds() / window.Seconds()
				assert.GreaterOrEqual(t, float64(len(sent)), 0.98*took*float64(limit), "limit %d", limit)
			}
		}
	}
}

// TestPaceForesees: who joins the line is told when its turn will be.
func TestPaceForesees(t *testing.T) {
	const window = 10 * time.Second
	for _, limit := range []int64{1, 5, 60, 100} {
		p := newPace(0, time.Time{})
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range limit / 2 {
			p.add(now, limit)
			now = now.Add(window / time.Duration(limit))
		}
		begin := now
		foreseen := make([]time.Time, 3*limit)
		for ahead := range foreseen {
			foreseen[ahead] = p.room(begin, window, limit, int64(ahead))
		}
		for ahead := range foreseen {
			if at := p.room(now, window, limit, 0); at.After(now) {
				now = at
			}
			p.add(now, limit)
			assert.InDelta(t, now.Sub(begin).Seconds(), foreseen[ahead].Sub(begin).Seconds(), 0.6, "limit %d, %d ahead", limit, ahead)
		}
	}
}

// TestQuotaCut: a reset that lies beyond MaxClosed is not waited for; but when
// MaxClosed is over the quota is not whole again, so one goes and asks.
func TestQuotaCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int64
		left.Store(3)
		s := newQuotaScript(t, &RateLimit{MaxClosed: 10 * time.Second, MaxWait: time.Hour}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		server := &quotaServer{kind: quotaAligned, limit: 50, window: 10 * time.Second, dialect: quotaDialectNamed("delta")}
		l := &RateLimit{MaxWait: time.Hour}
		client := quotaClient(direct{handler: server}, l)
		stop := time.Now().Add(3 * time.Minute)
		for range 20 {
			go func() {
				for time.Now().Before(stop) {
					_, _ = quotaGet(t.Context(), client, "http://mem.test")
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
			assert.Zero(t, server.refused, "of %d", limit)
			assert.EqualValues(t, limit, l.accounts.Peek(credential{scope: "mem.test"}).shared.axes[0].limit)
		}
		time.Sleep(time.Minute)
	})
}

// TestQuotaWindowWidens: a refusal makes the window be taken for longer, up to
// what it can be; and that passes, if nothing confirms it.
func TestQuotaWindowWidens(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	read := func(at time.Duration, refused bool) reading {
		now := begin.Add(at)
		return reading{
			axis: ratelimitheader.Axis{Limit: 10, Remaining: 5, Reset: time.Second}, sent: now.Add(-time.Second), now: now,
			early: now, reset: now.Add(time.Second), most: time.Second, window: time.Second, longest: time.Hour, refused: refused,
		}
	}
	const lag = time.Second
	q := quota{since: begin, limit: 10, refill: refill{never: true}}
	q.learn(read(0, false), lag)
	require.True(t, q.late(lag))
	q.paced(begin, 0)
	for at := range 80 {
		q.learn(read(time.Duration(at)*time.Second, true), lag)
		require.LessOrEqual(t, q.window, 2*time.Second)
	}
	require.Equal(t, 2*time.Second, q.window)
	for at := range 1000 {
		q.learn(read(time.Duration(80+at)*time.Second, false), lag)
	}
	require.Equal(t, time.Second, q.window)
}

// TestRouteKeys: what looks like an id is left out of a route.
func TestRouteKeys(t *testing.T) {
	for segment, id := range map[string]bool{
		"": false, "repos": false, "v10": false, "oauth2": false, "2": true, "123456789012345678": true, "@me": false,
		"deadbeef": false, "deadbeef01": true, "3f2504e0-4f89-11d3-9a0c-0305e82c3301": true, "01ARZ3NDEKTSV4RRFFQ69G5FAV": true,
		"code-scanning": false, "a-very-long-segment-without-any": false,
	} {
		assert.Equal(t, id, looksLikeID(segment), segment)
	}
	l := &RateLimit{}
	l.once.Do(l.settle)
	keys := func(method, path string) routeKeys {
		a, _ := quotaAttempt(t.Context(), l, http.Header{})
		a.call.request.Method, a.call.request.URL.Path = method, path
		return l.routeKeys(a.call.scope, a.call.request)
	}
	one, two := keys("GET", "/api/v10/channels/123/messages"), keys("GET", "/api/v10/channels/456/messages")
	assert.Equal(t, one.keys, two.keys)
	assert.NotEqual(t, one.id, two.id)
	assert.NotEqual(t, one.keys[0], keys("POST", "/api/v10/channels/123/messages").keys[0])
	pins := keys("POST", "/api/v10/channels/123/pins")
	assert.Equal(t, one.keys[1:], pins.keys[1:], "its beginnings are theirs")
	assert.Equal(t, 4, one.n)
	assert.Equal(t, 1, keys("GET", "/").n)
	assert.Equal(t, 1, keys("GET", "").n)
	assert.Equal(t, 2, keys("GET", "/a/b").n)
}
