package quota

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// respond makes a request and reports its response.
func respond(t *testing.T, l *Limiter, path string, status int, header ...string) *waitqueue.Rejection {
	e := newExchange(t.Context(), l)
	e.Path, e.status = path, status
	for i := 0; i < len(header); i += 2 {
		e.header.Set(header[i], header[i+1])
	}
	if refused := e.enter(); refused != nil {
		return refused
	}
	e.done()
	return nil
}

func quotaHeader(limit, remaining, reset int) []string {
	return []string{"RateLimit-Limit", strconv.Itoa(limit), "RateLimit-Remaining", strconv.Itoa(remaining), "RateLimit-Reset", strconv.Itoa(reset)}
}

// A hedge, which may not wait, is sent only while at least half of each quota is left, and not
// within a minute after a 429.
func TestNoWait_spendsNoShortQuota(t *testing.T) {
	for _, row := range []struct {
		name     string
		status   int
		header   []string
		inFlight int
		after    time.Duration
		sent     bool
	}{
		{"nothing is known: sent", 200, nil, 0, 0, true},
		{"half is left: sent", 200, quotaHeader(10, 5, 60), 0, 0, true},
		{"less than half is left: not sent", 200, quotaHeader(10, 4, 60), 0, 0, false},
		{"requests in flight count: not sent", 200, quotaHeader(10, 5, 60), 1, 0, false},
		{"the reset has come: sent", 200, quotaHeader(10, 4, 60), 0, 61 * time.Second, true},
		{"nothing is left: not sent", 200, quotaHeader(10, 0, 30), 0, 0, false},
		{"few tokens are left: not sent", 200, []string{"x-ratelimit-limit-tokens", "1000", "x-ratelimit-remaining-tokens", "400", "x-ratelimit-reset-tokens", "60s"}, 0, 0, false},
		{"a 429: not sent", 429, nil, 0, 0, false},
		{"a 429, 59 s later: not sent", 429, nil, 0, 59 * time.Second, false},
		{"a 429, a minute later: sent", 429, nil, 0, time.Minute + time.Second, true},
		{"a 503: sent", 503, nil, 0, 0, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{})
			require.Nil(t, respond(t, l, "/", row.status, row.header...))
			for range row.inFlight {
				require.Nil(t, newExchange(t.Context(), l).enter())
			}
			time.Sleep(row.after)
			e := newExchange(t.Context(), l)
			e.NoWait = true
			refused := e.enter()
			require.Equal(t, row.sent, refused == nil)
			if !row.sent {
				require.Equal(t, waitqueue.MaxWaitExceeded, refused.Reason)
			}
			e.NoWait = false
			require.Nil(t, e.enter(), "the call itself is sent")
			if !row.sent {
				inFlight := l.accounts.Peek(accountKey{scope: e.scope}).general.inflight
				require.EqualValues(t, row.inFlight+1, inFlight, "the hedge took nothing, and gave nothing back")
			}
		})
	}
}

// If calls would be rejected for an exhaustion that no rejection has proved for their route, the
// second call is sent as a probe.
func TestProbe(t *testing.T) {
	const ok, limited = http.StatusOK, http.StatusTooManyRequests
	type call struct {
		path   string
		status int // of the response; 0: the call is rejected
		header []string
	}
	none := quotaHeader(10, 0, 60)
	global := []string{"X-RateLimit-Global", "true", "X-RateLimit-Remaining", "0", "Retry-After", "60"}
	for _, row := range []struct {
		name  string
		calls []call
	}{
		{"the probe is served: the server was wrong", []call{{"/", ok, none}, {"/", 0, nil}, {"/", ok, none}, {"/", ok, nil}, {"/", ok, nil}}},
		{"the probe is rejected: it was right", []call{{"/", ok, none}, {"/", 0, nil}, {"/", limited, none}, {"/", 0, nil}, {"/", 0, nil}}},
		{"a rejection has shown it: no probe of that route", []call{{"/", limited, none}, {"/", 0, nil}, {"/", 0, nil}, {"/", 0, nil}}},
		{"another route is served: it has a quota of its own", []call{
			{"/", limited, none}, {"/other", ok, quotaHeader(10, 9, 60)}, {"/", limited, none}, {"/", 0, nil}, {"/other", ok, nil},
		}},
		{"another route is rejected too: each is tried once", []call{
			{"/", limited, none}, {"/other", limited, none}, {"/other", 0, nil}, {"/third", limited, none}, {"/third", 0, nil}, {"/other", 0, nil},
		}},
		{"the reset is near: what is served then proves nothing", []call{{"/", limited, quotaHeader(10, 0, 1)}, {"/other", 0, nil}, {"/", 0, nil}}},
		{"a global rejection: no test, and it holds a route of its own too", []call{
			{"/", limited, none}, {"/other", ok, quotaHeader(10, 9, 60)}, {"/", limited, global}, {"/other", 0, nil}, {"/third", 0, nil},
		}},
		{"another ID is served: the wait is over", []call{{"/v/1", limited, none}, {"/v/1", 0, nil}, {"/v/2", ok, nil}, {"/v/1", ok, nil}}},
		{"another ID is rejected too: one probe a window", []call{{"/v/1", limited, none}, {"/v/2", limited, none}, {"/v/3", 0, nil}, {"/v/1", 0, nil}}},
		{"another ID was served: from then on a rejection holds no other call", slices.Concat(
			[]call{{"/v/1", limited, none}, {"/v/1", 0, nil}, {"/v/2", ok, nil}, {"/v/1", limited, none}, {"/v/1", ok, nil}},
			slices.Repeat([]call{{"/v/1", limited, none}}, 20), []call{{"/v/1", ok, nil}},
		)},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			for i, c := range row.calls {
				refused := respond(t, l, c.path, c.status, c.header...)
				require.Equal(t, c.status == 0, refused != nil, "call %d", i)
			}
		})
	}
}

// §4.17: two customers use one route with one credential, and each has a quota. Only the server knows that. What it serves of one while it
// rejects the other shows it, so from then on rejections hold all calls only if nothing else comes back for as long as they ask.
func TestQuota_mixed(t *testing.T) {
	const s = time.Second
	wait, all := []string{"Retry-After", "60"}, func(remaining int) []string { return quotaHeader(100, remaining, 60) }
	for _, row := range []struct {
		name          string
		first, second []string // of a 429, and of the 200 after it
	}{
		{"all responses show counts", all(0), all(90)},
		{"only rejections show them", all(0), nil},
		{"a wait alone", wait, nil},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			require.Nil(t, respond(t, l, "/v/9", http.StatusOK, row.second...))
			time.Sleep(s)
			require.Nil(t, respond(t, l, "/v/1", http.StatusTooManyRequests, row.first...))
			time.Sleep(s)
			for respond(t, l, "/v/2", http.StatusOK, row.second...) != nil { // of the other customer, sooner or later a probe
				time.Sleep(s)
			}
			for range 59 {
				require.Nil(t, respond(t, l, "/v/1", http.StatusTooManyRequests, row.first...), "it holds no other call")
				time.Sleep(s)
			}
			require.Nil(t, respond(t, l, "/v/2", http.StatusOK, row.second...), "the other customer")
			for range 61 {
				require.Nil(t, respond(t, l, "/v/1", http.StatusTooManyRequests, row.first...))
				time.Sleep(s)
			}
			held := 0
			for range 3 {
				if respond(t, l, "/v/1", http.StatusTooManyRequests, row.first...) != nil {
					held++
				}
			}
			require.GreaterOrEqual(t, held, 2, "nothing else has come back for a minute; one may be a probe")
		})
	}
}

// §4.17: what is served of any route during a rejection's wait shows that the rejection does not speak of all calls. So eight of them in
// a row do not hold the others.
func TestQuota_mixedByRoute(t *testing.T) {
	for _, row := range []struct {
		name   string
		served time.Duration // after the first rejection
		held   bool
	}{
		{"during the wait", time.Second, false},
		{"before the wait", -1, true},
		{"in its last second", 59500 * time.Millisecond, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			asks := []string{"Retry-After", "60"}
			if row.served < 0 {
				require.Nil(t, respond(t, l, "/orders", http.StatusOK))
			}
			require.Nil(t, respond(t, l, "/reports", http.StatusTooManyRequests, asks...))
			if row.served > 0 {
				time.Sleep(row.served)
				require.Nil(t, respond(t, l, "/orders", http.StatusOK))
			}
			held := false
			for range minStreak + 1 {
				held = held || respond(t, l, "/reports", http.StatusTooManyRequests, asks...) != nil
				time.Sleep(200 * time.Millisecond)
			}
			require.Equal(t, row.held, held)
		})
	}
}

// §4.17e: a Retry-After that ends before the reset says when the next request is served.
func TestQuota_retryAfterBeforeReset(t *testing.T) {
	bubble.Run(t, "it is always too short: a doubled wait ends at the reset", func(t *testing.T) {
		const reset = 25 * time.Second
		l := with(Config{MaxWait: time.Hour})
		begun, rejected := time.Now(), 0
		for {
			e := newExchange(t.Context(), l)
			require.Nil(t, e.enter())
			left := reset - time.Since(begun)
			if left <= 0 {
				break
			}
			rejected++
			e.status = http.StatusTooManyRequests
			setFields(e.header, "Retry-After", 4)
			e.shows(10, 0, int((left+time.Second-1)/time.Second))
		}
		require.Less(t, time.Since(begun), reset+2*time.Second)
		require.Equal(t, 3, rejected)
	})
	bubble.Run(t, "what is served after it says nothing of other customers", func(t *testing.T) {
		l := with(Config{MaxWait: -1})
		asks := append(quotaHeader(10, 0, 60), "Retry-After", "10")
		require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, asks...))
		require.NotNil(t, respond(t, l, "/", http.StatusOK))
		time.Sleep(10 * time.Second)
		require.Nil(t, respond(t, l, "/", http.StatusOK))
		require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, asks...))
		require.NotNil(t, respond(t, l, "/", http.StatusOK), "one rejection holds all calls")
	})
}

// §4.17: a call that has waited for a reset, and is served after it, tests nothing. So its route has no quota of its own.
func TestTest_isNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: time.Hour})
		for i := range maxRejectedRoutes {
			require.Nil(t, respond(t, l, fmt.Sprintf("/%c", 'a'+i), http.StatusTooManyRequests, quotaHeader(10, 0, 60)...))
		}
		begun := time.Now()
		e := newExchange(t.Context(), l)
		e.Path, e.status = "/another", http.StatusOK
		require.Nil(t, e.enter())
		require.GreaterOrEqual(t, time.Since(begun), 50*time.Second, "it has waited")
		e.done()
		require.False(t, l.Set(e.set.scope).named.Load(), "no route has a quota of its own")
	})
}

// §4.17: what is served shortly before a reset that is rounded up proves nothing, so one rejection still holds the rest.
func TestProbe_nearTheReset(t *testing.T) {
	for after, doubted := range map[time.Duration]bool{2 * time.Second: true, 9500 * time.Millisecond: false} {
		bubble.Run(t, after.String(), func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, quotaHeader(10, 0, 10)...))
			require.NotNil(t, respond(t, l, "/", http.StatusOK))
			time.Sleep(after)
			require.Nil(t, respond(t, l, "/", http.StatusOK), "a probe")
			require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, quotaHeader(10, 0, 10)...))
			require.Equal(t, doubted, respond(t, l, "/", http.StatusOK) == nil)
		})
	}
}

// §4.17: a quota that is proved has probes at intervals: a second, and eight times as long after each one that
// was rejected. More than twice the limit refutes it.
func TestProbe_intervals(t *testing.T) {
	const ok, limited = http.StatusOK, http.StatusTooManyRequests
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now().Add(61 * time.Second)
		hour := func() []string { return quotaHeader(1, 0, 3600-int(time.Since(begun).Seconds())) }
		l := with(Config{MaxWait: -1})
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(1, 0, 60)...))
		time.Sleep(61 * time.Second)
		require.Nil(t, respond(t, l, "/", ok, hour()...)) // as the reset has said
		probe := func(at, status int) {
			for time.Since(begun) < time.Duration(at)*time.Second {
				require.NotNil(t, respond(t, l, "/", ok), "after %v", time.Since(begun))
				time.Sleep(time.Second)
			}
			require.Nil(t, respond(t, l, "/", status, hour()...), "after %v", time.Since(begun))
		}
		probe(1, limited)
		probe(9, limited)
		probe(73, limited)
		probe(585, ok)
		probe(585+64, ok) // the third of one an hour
		for range 10 {
			require.Nil(t, respond(t, l, "/", ok, hour()...))
		}
	})
}

// A count that is late shows what was left of the last window. It looks as if others used the quota, so
// calls that would be rejected test it at once, one after another.
func TestProbe_lateCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ok = http.StatusOK
		l := with(Config{MaxWait: -1})
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(3, 2, 600)...))
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(3, 1, 600)...))
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(3, 0, 600)...))
		time.Sleep(601 * time.Second)
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(3, 0, 600)...), "late")
		require.NotNil(t, respond(t, l, "/", ok))
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(3, 1, 600)...), "a probe")
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(3, 0, 600)...))
	})
}

// §4.17: a server that tells the truth is believed: what looks like more than its limit is not.
func TestQuota_truthIsNotRefuted(t *testing.T) {
	const ok, limited = http.StatusOK, http.StatusTooManyRequests
	for _, row := range []struct {
		name   string
		before func(t *testing.T, respond func(path string, status int, header ...string) *waitqueue.Rejection)
	}{
		{"another route is served", func(t *testing.T, respond func(string, int, ...string) *waitqueue.Rejection) {
			require.Nil(t, respond("/", ok, quotaHeader(10, 9, 60)...))
			for range 25 {
				require.Nil(t, respond("/other", ok))
				time.Sleep(time.Second)
			}
		}},
		{"a rejection had a longer reset", func(t *testing.T, respond func(string, int, ...string) *waitqueue.Rejection) {
			require.Nil(t, respond("/", ok, quotaHeader(10, 9, 1)...))
			require.Nil(t, respond("/", limited, quotaHeader(10, 0, 60)...))
			time.Sleep(61 * time.Second)
			for range 5 {
				for left := 9; left >= 0; left-- {
					require.Nil(t, respond("/", ok, quotaHeader(10, left, 1)...))
				}
				require.NotNil(t, respond("/", ok))
				time.Sleep(1100 * time.Millisecond)
			}
		}},
		{"a 304 costs nothing", func(t *testing.T, respond func(string, int, ...string) *waitqueue.Rejection) {
			for range 21 {
				require.Nil(t, respond("/", http.StatusNotModified, quotaHeader(10, 5, 3600)...))
			}
		}},
		{"a window of less than a second", func(t *testing.T, respond func(string, int, ...string) *waitqueue.Rejection) {
			for range 10 {
				for left := 9; left >= 0; left-- {
					fields := []string{"X-RateLimit-Limit-Requests", "10", "X-RateLimit-Remaining-Requests", strconv.Itoa(left), "X-RateLimit-Reset-Requests", "0.2"}
					require.Nil(t, respond("/", ok, fields...))
				}
				require.NotNil(t, respond("/", ok))
				time.Sleep(201 * time.Millisecond)
			}
		}},
		{"the limit falls", func(t *testing.T, respond func(string, int, ...string) *waitqueue.Rejection) {
			for i := range 40 {
				require.Nil(t, respond("/", ok, quotaHeader(100, 99-i, 60)...))
			}
		}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			row.before(t, func(path string, status int, header ...string) *waitqueue.Rejection {
				return respond(t, l, path, status, header...)
			})
			require.Nil(t, respond(t, l, "/", ok, quotaHeader(10, 0, 30)...))
			require.NotNil(t, respond(t, l, "/", ok))
		})
	}
}

// §4.17: probes stay few, whatever their result is, and one that hangs stops no others.
func TestProbe_few(t *testing.T) {
	const ok = http.StatusOK
	days := func(short, day int) []string {
		return []string{
			"RateLimit-Policy", `"short";q=10;w=10, "day";q=1000;w=86400`,
			"RateLimit", fmt.Sprintf(`"short";r=%d;t=10, "day";r=%d;t=80000`, short, day),
		}
	}
	for _, row := range []struct {
		name        string
		status      int
		header      []string
		least, most int // of 300 calls
	}{
		{"the server fails", http.StatusServiceUnavailable, nil, 1, 6},
		{"no response", 0, nil, 1, 6},
		{"others have used up a longer quota", http.StatusTooManyRequests, days(10, 0), 1, 8},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			require.Nil(t, respond(t, l, "/", ok, days(9, 900)...))
			require.Nil(t, respond(t, l, "/", ok, days(8, 0)...))
			sent := 0
			for range 300 { // in less than MaxBlock
				if respond(t, l, "/", row.status, row.header...) == nil {
					sent++
				}
				time.Sleep(11 * time.Second)
			}
			require.GreaterOrEqual(t, sent, row.least)
			require.LessOrEqual(t, sent, row.most)
		})
	}
	bubble.Run(t, "one hangs", func(t *testing.T) {
		l, empty := with(Config{MaxWait: -1}), quotaHeader(100, 0, 600)
		require.Nil(t, respond(t, l, "/", ok, quotaHeader(100, 90, 600)...))
		require.Nil(t, respond(t, l, "/", ok, empty...))
		require.NotNil(t, respond(t, l, "/", ok))
		require.Nil(t, newExchange(t.Context(), l).enter(), "the probe, which never ends")
		served := 0
		for range 360 {
			time.Sleep(20 * time.Second)
			if respond(t, l, "/", ok, empty...) == nil {
				served++
			}
		}
		require.Greater(t, served, 300)
	})
}

// §4.17: if a server limits all paths, few calls to other paths than the rejected one test it, however many paths there are.
func TestTest_few(t *testing.T) {
	for i, header := range [][]string{quotaHeader(10, 0, 60), {"X-RateLimit-Remaining", "0", "Retry-After", "60"}, {"Retry-After", "60"}} {
		for _, path := range []string{"/v1/%d", "/a%dx"} {
			bubble.Run(t, fmt.Sprint(header, path), func(t *testing.T) {
				l := with(Config{MaxWait: -1})
				for range minStreak {
					_ = respond(t, l, "/", http.StatusTooManyRequests, header...)
					time.Sleep(200 * time.Millisecond)
				}
				sent := 0
				for n := range 500 { // within 50 s
					if respond(t, l, fmt.Sprintf(path, n), http.StatusTooManyRequests, header...) == nil {
						sent++
					}
					time.Sleep(100 * time.Millisecond)
				}
				most := []int{3, 3, 4}[i] // and probes of the calls that would be rejected, in a block already after a second
				if path != "/v1/%d" {
					most += maxRejectedRoutes // each is another route
				}
				require.GreaterOrEqual(t, sent, 2, "one at once, and one after eight seconds")
				require.LessOrEqual(t, sent, most)
			})
		}
	}
}

// §4.17: the interval of tests outlives the windows of a shorter quota, and tests that are rejected make no token bucket of a window.
func TestTest_fewInManyWindows(t *testing.T) {
	for fields, most := range map[string]int{`"burst";r=0;t=1, "daily";r=0;t=3600`: 15, `"window";r=0;t=5`: 3600/5 + 15} {
		bubble.Run(t, fields, func(t *testing.T) {
			l, sent := with(Config{MaxWait: -1}), 0
			for i := range 5 * 3600 {
				if respond(t, l, fmt.Sprintf("/v/%d", i), http.StatusTooManyRequests, "RateLimit-Policy", `"window";q=10;w=5`, "RateLimit", fields) == nil {
					sent++
				}
				time.Sleep(200 * time.Millisecond)
			}
			require.LessOrEqual(t, sent, most, "in an hour")
		})
	}
}

// §4.17: a path that an earlier streak or window has rejected tests the next one. A hedge, and a request that can go elsewhere, do not.
func TestTest_which(t *testing.T) {
	const limited = http.StatusTooManyRequests
	streak := func(t *testing.T, l *Limiter) {
		for range minStreak {
			_ = respond(t, l, "/", limited, "Retry-After", "600")
			time.Sleep(200 * time.Millisecond)
		}
	}
	for _, row := range []struct {
		name  string
		until func(t *testing.T, l *Limiter)
		set   func(r *Request)
		sent  bool
	}{
		{"rejected in an earlier streak", func(t *testing.T, l *Limiter) {
			require.Nil(t, respond(t, l, "/other", limited, "Retry-After", "600"))
			require.Nil(t, respond(t, l, "/", http.StatusOK))
			time.Sleep(time.Second)
			streak(t, l)
		}, nil, true},
		{"rejected in an earlier window", func(t *testing.T, l *Limiter) {
			require.Nil(t, respond(t, l, "/other", limited, quotaHeader(10, 0, 10)...))
			time.Sleep(11 * time.Second)
			require.Nil(t, respond(t, l, "/", limited, quotaHeader(10, 0, 600)...))
		}, nil, true},
		{"rejected last", func(t *testing.T, l *Limiter) {
			streak(t, l)
			require.Nil(t, respond(t, l, "/other", limited, "Retry-After", "600"))
			time.Sleep(time.Minute) // longer than the pause between two tests
		}, nil, false},
		{"a hedge", func(t *testing.T, l *Limiter) {
			streak(t, l)
			time.Sleep(time.Minute)
		}, func(r *Request) { r.NoWait = true }, false},
		{"it can go elsewhere", streak, func(r *Request) { r.AtOnce = true }, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{MaxWait: -1})
			row.until(t, l)
			e := newExchange(t.Context(), l)
			if e.Path = "/other"; row.set != nil {
				row.set(&e.Request)
			}
			refused := e.enter()
			require.Equal(t, row.sent, refused == nil)
		})
	}
}

// §4.17: a test that is served ends the wait of those behind it. Then its route has a quota of its own: its calls are not
// tests, of which one is sent at a time.
func TestTest_served(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{})
		enter := func() *exchange {
			e := newExchange(t.Context(), l)
			e.Path, e.MaxBlock = "/other", time.Hour
			require.Nil(t, e.enter())
			return e
		}
		for range minStreak {
			_ = respond(t, l, "/", http.StatusTooManyRequests, "Retry-After", "50")
			time.Sleep(200 * time.Millisecond)
		}
		begun, first := time.Now(), enter()
		time.AfterFunc(time.Second, first.done)
		enter().done()
		require.Less(t, time.Since(begun), 3*time.Second)
		for range minStreak {
			_ = respond(t, l, "/", http.StatusTooManyRequests, "Retry-After", "50")
			time.Sleep(200 * time.Millisecond)
		}
		begun = time.Now()
		first, second := enter(), enter()
		require.Zero(t, time.Since(begun))
		first.done()
		second.done()
	})
}

// §4.17: a probe that waits for a token of the fixed limit is still the only one.
func TestProbe_waitsForAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: 10 * time.Second, Limit: 10, Burst: 1})
		require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(10, 0, 3600)...))
		time.Sleep(2 * time.Second)
		require.NotNil(t, respond(t, l, "/", http.StatusOK))
		time.Sleep(2 * time.Second)
		other := newExchange(t.Context(), l)
		other.Credential = 7
		require.Nil(t, other.enter(), "it takes the token")
		var probes atomic.Int32
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if newExchange(t.Context(), l).enter() == nil {
					probes.Add(1)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		calls.Wait()
		require.EqualValues(t, 1, probes.Load())
	})
}

// A probe of one window is answered in the next one: its 200 does not end the wait that a newer rejection has shown.
func TestProbe_ofEarlierWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{MaxWait: -1, MaxBlock: time.Hour, Follow: true}).Set("api")
		throttled := func(seconds string) *Response {
			r := &Response{Status: http.StatusTooManyRequests}
			r.Quota, _ = ratelimitheader.Parse(http.Header{"Ratelimit-Limit": {"100"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {seconds}}, time.Now())
			return r
		}
		admit := func() (p Permit, rejected bool) {
			p, rejection := s.Admit(t.Context(), Request{Method: http.MethodGet, Path: "/"}, time.Now())
			return p, rejection != nil
		}
		s.Observe(Request{Method: http.MethodGet, Path: "/"}, throttled("10"), time.Now(), time.Now(), 0)
		var probe Permit
		for rejected := true; rejected; probe, rejected = admit() {
			time.Sleep(500 * time.Millisecond)
		}
		require.NotNil(t, probe.probe)
		time.Sleep(20 * time.Second)
		p, rejected := admit()
		require.False(t, rejected)
		p.Done(throttled("600"), time.Now())
		probe.Done(&Response{Status: http.StatusOK}, time.Now())
		_, rejected = admit()
		require.True(t, rejected)
	})
}

// The example of docs/rate-limits.md: a server serves each request, and always says that nothing is left for an hour.
func TestProbe_example(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: 10 * time.Second})
		var sent []bool
		for range 4 {
			sent = append(sent, respond(t, l, "/", http.StatusOK, quotaHeader(100, 0, 3600)...) == nil)
			time.Sleep(time.Second)
		}
		require.Equal(t, []bool{true, false, true, true}, sent, "the second fails, and the third is a probe")
		for range 20 { // at once: only one of them could be a probe
			require.Nil(t, newExchange(t.Context(), l).enter(), "the quota is ignored")
		}
	})
}
