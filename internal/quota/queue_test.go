package quota

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/priority"
)

const classField = priority.Header

var classes = []string{"batch", "", "critical"}

// closeClass has a class refused until that closes it, for so long.
func closeClass(t *testing.T, s *quotaScript, class string) (until time.Time) {
	for range 8 {
		_, _ = s.get(t, "/busy", classField, class)
		until = time.Now().Add(busyTime)
		time.Sleep(150 * time.Millisecond)
	}
	return until
}

const busyTime = 30 * time.Second

// busyServer refuses at /busy, says that a quota is used up at /spent, and serves all
// else.
func busyServer(t *testing.T, c Config) *quotaScript {
	return newQuotaScript(t, with(c), faulttest.Script{
		{Route: "/busy", Handler: faulttest.Reply{Status: http.StatusTooManyRequests, RetryAfter: busyTime}},
		{Route: "/spent", Handler: exhausted(busyTime)},
		{Handler: faulttest.OK("")},
	})
}

// A run of refusals closes the priority that it has met, and no other; who waits because
// of that holds up nobody else.
func TestClosingOfOnePriority(t *testing.T) {
	for _, closed := range classes {
		t.Run("of "+closed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := busyServer(t, Config{})
				until := closeClass(t, s, closed)
				var calls sync.WaitGroup
				for _, class := range classes {
					for range 3 {
						calls.Go(func() {
							_, refused := s.get(t, "/", classField, class)
							assert.Nil(t, refused)
							if class == closed {
								assert.False(t, time.Now().Before(until), "held until then")
							} else {
								assert.True(t, time.Now().Before(until), class)
							}
						})
						synctest.Wait()
					}
				}
				b := s.bucket(t)
				require.EqualValues(t, 3, lanesOf(b), "those of the closed priority")
				calls.Wait()
				require.Zero(t, lanesOf(b))
			})
		})
	}
}

func lanesOf(b *bucket) (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		if q != nil {
			n += q.Len()
		}
	}
	return n
}

// What proves that a quota is used up closes it to all priorities, who share it.
func TestClosingOfAllPriorities(t *testing.T) {
	for _, refused := range classes {
		t.Run("refused was "+refused, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := busyServer(t, Config{})
				_, _ = s.get(t, "/spent", classField, refused)
				var calls sync.WaitGroup
				for _, class := range classes {
					calls.Go(func() {
						took, err := s.get(t, "/", classField, class)
						assert.Nil(t, err)
						assert.InDelta(t, busyTime.Seconds(), took.Seconds(), 2)
					})
				}
				calls.Wait()
				s.bucket(t)
			})
		})
	}
}

// A success opens what a run of its own priority has closed.
func TestClosingIsOpenedByItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{})
		refuse := func(class int8, n int) {
			for range n {
				e := newExchange(t.Context(), l)
				e.Class, e.MaxBlock = class, time.Hour
				e.status, e.header = http.StatusTooManyRequests, http.Header{"Retry-After": {"60"}}
				require.Nil(t, e.enter())
				e.done()
				time.Sleep(150 * time.Millisecond)
			}
		}
		served := func(class int8) *exchange {
			e := newExchange(t.Context(), l)
			e.Class = class
			require.Nil(t, e.enter())
			return e
		}
		refuse(priority.Batch, 4)
		served(priority.Default).done() // ends no run of another
		refuse(priority.Batch, 3)
		batch, critical := served(priority.Batch), served(priority.Critical)
		refuse(priority.Batch, 1)
		closed := func(class int8) bool {
			r := newExchange(t.Context(), l).Request
			r.Class = class
			return !l.Set("api.example.com").BlockedUntil(r, time.Now()).IsZero()
		}
		require.True(t, closed(priority.Batch))
		require.False(t, closed(priority.Default))
		require.False(t, closed(priority.Critical))
		critical.done()
		require.True(t, closed(priority.Batch), "another's success says nothing of it")
		batch.done()
		require.True(t, closed(priority.Batch), "nor does one that was sent before")
		time.Sleep(time.Minute)
		require.False(t, closed(priority.Batch))
	})
}

// Those who wait for the same quota leave in the order in which they came, whatever their
// priority, also where one of them is closed meanwhile.
func TestLanesAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Sequence(
			says(3, 0, 10*time.Second), says(3, 2, 10*time.Second), says(3, 1, 10*time.Second), says(3, 0, 10*time.Second),
			says(3, 2, 10*time.Second), says(3, 1, 10*time.Second), says(3, 0, 10*time.Second),
		))
		_, _ = s.get(t, "/")
		var calls sync.WaitGroup
		var mu sync.Mutex
		var came, served []int
		for i := range 6 {
			time.Sleep(time.Millisecond)
			came = append(came, i)
			calls.Go(func() {
				_, refused := s.get(t, "/", classField, classes[i%3])
				assert.Nil(t, refused)
				mu.Lock()
				defer mu.Unlock()
				served = append(served, i)
			})
		}
		calls.Wait()
		require.Equal(t, came, served)
		s.bucket(t)
	})
}

// Who comes while others leave after a reset stands behind them, whatever his priority.
func TestNobodyPassesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{}), faulttest.Sequence(says(1000, 0, 10*time.Second), says(1000, 900, 10*time.Second)))
		_, _ = s.get(t, "/")
		var calls sync.WaitGroup
		var mu sync.Mutex
		var order []string
		call := func(class string) {
			_, _ = s.get(t, "/", classField, class)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, class)
		}
		for i := range 50 {
			calls.Go(func() { call(classes[i%2]) })
			synctest.Wait()
		}
		time.Sleep(10*time.Second + 50*time.Millisecond)
		require.Positive(t, lanesOf(s.bucket(t)), "they are leaving")
		call("critical")
		calls.Wait()
		require.Len(t, order, 51)
		require.Equal(t, "critical", order[50])
	})
}

// A priority that is closed alone is spread when that is over, as a scope is.
func TestLaneIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := busyServer(t, Config{})
		until := closeClass(t, s, "batch")
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() { _, _ = s.get(t, "/", classField, "batch") })
		}
		calls.Wait()
		s.bucket(t)
		var at []time.Time
		for _, r := range s.Requests() {
			if r.Path == "/" {
				at = append(at, r.ReceivedAt)
			}
		}
		require.Len(t, at, 100)
		require.False(t, at[0].Before(until))
		require.Greater(t, at[99].Sub(at[0]), 9*time.Second, "over half of the block's length, at most 10 s")
		require.Less(t, at[99].Sub(at[0]), 11*time.Second)
	})
}

// Calls of all priorities that come, go, are refused and give up at random leave nothing
// behind.
func TestLanesStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{MaxWait: 20 * time.Second}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(rand.N(50 * time.Millisecond))
			switch rand.N(8) {
			case 0:
				exhausted(time.Second).ServeHTTP(w, nil)
			case 1:
				setFields(w.Header(), "RateLimit-Limit", 50, "RateLimit-Remaining", rand.N(50), "RateLimit-Reset", 1)
			case 2, 3, 4, 5:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		_, _ = s.get(t, "/")
		b := s.bucket(t)
		var callers sync.WaitGroup
		for i := range 90 {
			callers.Go(func() {
				for range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(5*time.Second))
					_, _ = get(ctx, s.client, s.URL, classField, classes[i%3])
					cancel()
				}
			})
		}
		callers.Wait()
		require.Zero(t, lanesOf(b))
		for _, q := range b.queues {
			require.True(t, q == nil || q.Alarm().IsZero())
		}
	})
}

// TestEachPriority: what is closed to one priority alone is told as its own.
func TestEachPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := busyServer(t, Config{})
		until := closeClass(t, s, "batch")
		require.Equal(t, []Status{{Scope: "mem.test", Class: priority.Batch, BlockedUntil: until}}, each(s.limiter))
		_, _ = s.get(t, "/spent", classField, "critical")
		all := each(s.limiter)
		require.Len(t, all, 1, "what is closed to all is told once: %+v", all)
		require.Zero(t, all[0].Class)
		require.True(t, all[0].BlockedUntil.After(until))
	})
}
