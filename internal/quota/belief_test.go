package quota

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// outcomes is what became of calls to a path.
type outcomes struct{ calls, served, sent, refused int }

// callsFor makes so many calls a second, each with a deadline, to each path in turn, and
// tells what became of them.
func callsFor(t *testing.T, c *http.Client, url string, long, every, deadline time.Duration, paths ...string) map[string]outcomes {
	all := map[string]outcomes{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for i := range int(long / every) {
		path := paths[i%len(paths)]
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			status, err := get(ctx, c, url+path)
			mu.Lock()
			defer mu.Unlock()
			o := all[path]
			o.calls++
			if err == nil {
				o.sent++
			}
			switch status {
			case http.StatusOK:
				o.served++
			case http.StatusTooManyRequests:
				o.refused++
			}
			all[path] = o
		})
		time.Sleep(every)
	}
	calls.Wait()
	return all
}

// TestWrongWords is §4.17 and DESIGN §7, whose first line is that nobody is harmed: that
// nothing remains is believed as far as it has been seen to be true. Where calls are
// served all the same, all but the first that is turned away are.
func TestWrongWords(t *testing.T) {
	anew := func(limit int, least, most time.Duration) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reset := least + rand.N(most-least+1)
			late(50*time.Millisecond, says(limit, 0, reset.Round(time.Second))).ServeHTTP(w, r)
		})
	}
	chance := func(share float64, then, otherwise http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rand.Float64() < share {
				then.ServeHTTP(w, r)
			} else {
				otherwise.ServeHTTP(w, r)
			}
		})
	}
	const s, ms = time.Second, time.Millisecond
	wrong := anew(100, 30*s, 60*s)
	for _, row := range []struct {
		name     string
		server   http.Handler
		every    time.Duration
		deadline time.Duration
	}{
		{"resets at random", wrong, 100 * ms, 10 * s},
		{"few calls", wrong, 3 * s, 10 * s},
		{"many calls", wrong, 10 * ms, 10 * s},
		{"calls that can wait", wrong, 100 * ms, 10 * time.Minute},
		{"the same reset each time, as of a token bucket", anew(100, 45*s, 45*s), 100 * ms, 10 * s},
		{"a large token bucket", anew(3000, 60*s, 60*s), 10 * ms, 10 * s},
		{"a limit of one", anew(1, 30*s, 60*s), 100 * ms, 10 * time.Minute},
		{"no limit at all", anew(0, 30*s, 60*s), 100 * ms, 10 * s},
		{"one answer in ten", chance(0.1, wrong, late(50*ms, faulttest.Reply{})), 100 * ms, 10 * s},
		{"half of the answers say otherwise", chance(0.5, wrong, late(50*ms, says(100, 90, 45*s))), 100 * ms, 10 * s},
		{"and one answer in a hundred is an error", chance(0.01, faulttest.Status(500), wrong), 100 * ms, 10 * s},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuotaScript(t, with(Config{}), row.server)
				got := callsFor(t, q.client, q.URL, 20*time.Second+600*row.every, row.every, row.deadline, "/")["/"]
				q.bucket(t)
				assert.GreaterOrEqual(t, got.sent, got.calls-1, "of %d: one was turned away", got.calls)
			})
		})
	}
}

// TestWordsSeenTrue is §4.17: where it is true that nothing remains, and calls cannot
// wait for the reset, one request of a route goes and sees, and of a few routes, whatever
// comes after; none where calls heed NotBefore, or a reset has brought what it promised.
func TestWordsSeenTrue(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, row := range []struct {
		name     string
		kind     quotaKind
		limit    int
		window   time.Duration
		every    time.Duration
		deadline time.Duration
		paths    int
		refused  int
	}{
		{"an hour", aligned, 500, time.Hour, s, 10 * s, 1, 1},
		{"an hour, many calls", fromFirst, 1500, time.Hour, s, 10 * s, 1, 1},
		{"a minute", aligned, 20, m, s, 10 * s, 1, 1},
		{"a minute, three routes", fromFirst, 20, m, s, 10 * s, 3, 3},
		{"a minute, forty routes", aligned, 20, m, s, 10 * s, 40, fewRoutes},
		{"calls that can wait", aligned, 20, 10 * s, s / 4, 30 * s, 1, 0},
		{"calls that can wait, forty routes", fromFirst, 20, 10 * s, s / 4, 30 * s, 40, 0},
		{"a token bucket", tokenBucket, 100, m, s / 4, 5 * s, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in2026(0)
				server := &quotaServer{kind: row.kind, limit: row.limit, window: row.window, dialect: quotaDialectNamed("delta")}
				c := client(direct{handler: server, up: 20 * time.Millisecond, down: 20 * time.Millisecond}, with(Config{}))
				var paths []string
				for i := range row.paths {
					paths = append(paths, fmt.Sprintf("/%c%c", 'a'+i%26, 'a'+i/26))
				}
				callsFor(t, c, "http://mem.test", 3*row.window, row.every, row.deadline, paths...)
				server.mu.Lock()
				defer server.mu.Unlock()
				assert.LessOrEqual(t, server.refused, row.refused)
			})
		})
	}
	t.Run("NotBefore is heeded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			in2026(0)
			server := &quotaServer{kind: aligned, limit: 10, window: m, dialect: quotaDialectNamed("delta")}
			c := client(direct{handler: server}, with(Config{}))
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), s)
				if _, err := get(ctx, c, "http://mem.test"); err != nil {
					require.Equal(t, PastDeadline, err.Reason)
					time.Sleep(time.Until(err.NotBefore))
				}
				cancel()
			}
			assert.Zero(t, server.refused)
		})
	})
}

// TestUnnamedQuotas is §4.17 and DESIGN §7: what one endpoint has used up, of a quota of
// its own that nobody names, holds the others up for no longer than one call.
func TestUnnamedQuotas(t *testing.T) {
	const s, m, ms = time.Second, time.Minute, time.Millisecond
	for _, row := range []struct {
		name     string
		limits   []int // of each endpoint, in a minute
		spent    int   // so many of them are used up by others
		every    time.Duration
		deadline time.Duration
	}{
		{"another limit", []int{10, 100_000}, 1, 200 * ms, 10 * s},
		{"another limit, few calls", []int{10, 100_000}, 1, 2 * s, 10 * s},
		{"another limit, calls that can wait", []int{10, 100_000}, 1, 200 * ms, 10 * m},
		{"the same limit", []int{100_000, 100_000}, 1, 200 * ms, 10 * s},
		{"used up by its own calls", []int{10, 100_000}, 0, 200 * ms, 10 * s},
		{"two of the same, used up", []int{10, 10, 100_000}, 2, 200 * ms, 10 * s},
		{"two of the same, used up by their own calls", []int{10, 10, 100_000}, 0, 200 * ms, 10 * s},
		{"three of four the same, used up", []int{50, 50, 100_000, 100_000}, 3, 200 * ms, 10 * s},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in2026(300 * ms)
				servers := map[string]*quotaServer{}
				var paths []string
				for i, limit := range row.limits {
					path := "/" + string(rune('a'+i))
					paths = append(paths, path)
					servers[path] = &quotaServer{kind: fromFirst, limit: limit, window: m, dialect: quotaDialectNamed("delta")}
					if i < row.spent {
						servers[path].begin, servers[path].used = time.Now(), limit
						servers[path].window = time.Hour
					}
				}
				c := client(direct{
					handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { servers[r.URL.Path].ServeHTTP(w, r) }),
					up:      20 * ms, down: 20 * ms,
				}, with(Config{}))
				got := callsFor(t, c, "http://mem.test", 10*m, row.every, row.deadline, paths...)
				free := got[paths[len(paths)-1]]
				assert.GreaterOrEqual(t, free.served, free.calls-1, "of %d", free.calls)
				refused := 0
				for _, server := range servers {
					refused += server.refused
				}
				bare := 0
				for _, path := range paths[:len(paths)-1] {
					bare += got[path].calls
				}
				assert.LessOrEqual(t, refused, bare/10, "429s: they are not asked for nothing")
			})
		})
	}
}

// TestScouts: who goes and sees, and what comes of it for the others.
func TestScouts(t *testing.T) {
	const took = 100 * time.Millisecond
	for _, row := range []struct {
		name   string
		scout  faulttest.Reply
		again  bool // another one goes
		others bool // they are sent when the scouts are back
	}{
		{"served, and nothing remains: another sees", says(10, 0, 10*time.Minute), true, true},
		{"served, and something remains", says(10, 9, 10*time.Minute), true, true},
		{"refused: it is true", refusing(http.StatusTooManyRequests, says(10, 0, 10*time.Minute)), false, false},
		{"refused without a word", faulttest.Status(http.StatusTooManyRequests), false, false},
		{"failed: another sees", faulttest.Status(http.StatusInternalServerError), true, true},
		{"lost: another sees", faulttest.Reply{Fault: faulttest.ResetAfterRead}, true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newQuotaScript(t, with(Config{}), faulttest.Sequence(
					says(10, 0, 10*time.Minute), late(took, row.scout), late(took, says(10, 0, 10*time.Minute)),
				))
				_, _ = s.get(t, "/")
				s.bucket(t)
				_, err := s.get(t, "/")
				require.NotNil(t, err)
				require.Equal(t, TooLong, err.Reason, "the first is turned away")
				s.AssertRequests(t, 1)
				begun := time.Now()
				var calls sync.WaitGroup
				for range 8 {
					calls.Go(func() {
						if _, err := s.get(t, "/"); err != nil && err.Reason == TooLong {
							assert.False(t, row.others)
							assert.Equal(t, took, time.Since(begun), "told as soon as it is known")
						}
					})
				}
				synctest.Wait()
				s.AssertRequests(t, 1+1)
				time.Sleep(took + took/2)
				assert.Equal(t, row.again, s.Total() > 1+1, s.Transcript())
				calls.Wait()
				if row.others {
					s.AssertRequests(t, 1+8)
				}
			})
		})
	}
}

// TestScoutHangs: a scout that does not come back is waited for by others no longer than
// they may; and another one goes after a while.
func TestScoutHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Sequence(
			says(10, 0, 10*time.Minute), faulttest.Reply{Delay: time.Hour}, late(50*time.Millisecond, says(10, 0, 10*time.Minute)),
		))
		_, _ = s.get(t, "/")
		_, _ = s.get(t, "/")
		var calls sync.WaitGroup
		for range 2 { // the scout, and one with time
			calls.Go(func() { _, _ = s.get(t, "/") })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := get(ctx, s.client, s.URL)
		require.NotNil(t, err)
		assert.LessOrEqual(t, time.Since(begun), 500*time.Millisecond)
		time.Sleep(2 * time.Second)
		s.AssertRequests(t, 3)
		calls.Wait()
	})
}

// TestBelief: what a word is worth after what has been seen.
func TestBelief(t *testing.T) {
	for _, row := range []struct {
		name  string
		seen  func(*belief)
		holds bool // for the route 1
		wrong bool
	}{
		{"nothing", func(*belief) {}, false, false},
		{"it was refused", func(f *belief) { f.refuse(1) }, true, false},
		{"another was", func(f *belief) { f.refuse(2) }, false, false},
		{"another was, many times", func(f *belief) {
			for range 100 {
				f.refuse(2)
			}
		}, false, false},
		{"a few were", func(f *belief) {
			for route := range uint64(fewRoutes) {
				f.refuse(2 + route)
			}
		}, true, false},
		{"a reset has kept it", func(f *belief) { f.kept = true }, true, false},
		{"and another was refused", func(f *belief) { f.kept = true; f.refuse(2) }, false, false},
		{"one was served", func(f *belief) { f.contradict(0) }, false, false},
		{"two were", func(f *belief) { f.contradict(0); f.contradict(0) }, false, true},
		{"two were, of a bucket that fills up", func(f *belief) { f.contradict(1); f.contradict(1) }, false, false},
		{"wrong once, refused since", func(f *belief) { f.contradict(0); f.contradict(0); f.wrong = false; f.refuse(1) }, false, false},
		{"and again, and again", func(f *belief) {
			f.contradict(0)
			f.contradict(0)
			f.wrong = false
			for range 3 {
				f.refuse(1)
			}
		}, true, false},
		{"which holds until the reset", func(f *belief) {
			f.contradict(0)
			f.contradict(0)
			f.wrong = false
			for range 3 {
				f.refuse(1)
			}
			f.over(10)
		}, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var f belief
			row.seen(&f)
			assert.Equal(t, row.holds, f.holds(1))
			assert.Equal(t, row.wrong, f.wrong)
		})
	}
}
