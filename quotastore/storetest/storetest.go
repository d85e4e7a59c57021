package storetest

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Run tests the stores that open returns: each call one that holds none of the keys
// of the others. It goes by the store's own clock, and waits for real, a few
// seconds in all.
func Run(t *testing.T, open func(*testing.T) quotastore.Store) {
	for name, test := range map[string]func(*testing.T, quotastore.Store){
		"Burst": burst, "Wait": wait, "Partial": partial, "Peek": peek, "GiveBack": giveBack, "Keys": keys,
		"Close": closing, "Invalid": invalid, "Cancelled": cancelled, "Exact": exact, "Obeyed": obeyed, "Steady": steady,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// rules are one of each kind, the same numbers otherwise.
func rules(limit int, window time.Duration) map[string]quotastore.Rule {
	return map[string]quotastore.Rule{
		"bucket":  {Limit: limit, Window: window},
		"sliding": {Limit: limit, Window: window, Sliding: true},
	}
}

func each(t *testing.T, limit int, window time.Duration, test func(t *testing.T, r quotastore.Rule)) {
	t.Helper()
	for name, r := range rules(limit, window) {
		t.Run(name, func(t *testing.T) { test(t, r) })
	}
}

func take(t *testing.T, s quotastore.Store, key string, want, least int, r quotastore.Rule) quotastore.Result {
	t.Helper()
	ticket, err := s.Take(context.Background(), key, want, least, r)
	if err != nil {
		t.Fatalf("Take(%q, %d, %d): %v", key, want, least, err)
	}
	check(t, ticket, r)
	return ticket
}

// check is what holds of every ticket.
func check(t *testing.T, ticket quotastore.Result, r quotastore.Rule) {
	t.Helper()
	switch {
	case ticket.Remaining < 0 || ticket.Remaining > r.Capacity(),
		ticket.ResetAfter < 0, ticket.RetryAfter < 0,
		ticket.OK && ticket.RetryAfter != 0, !ticket.OK && (ticket.RetryAfter == 0 || ticket.Allowed != 0):
		t.Fatalf("a ticket that cannot be: %+v", ticket)
	}
}

func want(t *testing.T, got quotastore.Result, ok bool, taken, remaining int) {
	t.Helper()
	if got.OK != ok || got.Allowed != taken || got.Remaining != remaining {
		t.Fatalf("got %+v; want OK %v, Taken %d, Remaining %d", got, ok, taken, remaining)
	}
}

// pass waits.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func burst(t *testing.T, s quotastore.Store) {
	each(t, 3, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		want(t, take(t, s, key, 1, 1, r), true, 1, 2)
		want(t, take(t, s, key, 2, 2, r), true, 2, 0)
		refused := take(t, s, key, 1, 1, r)
		want(t, refused, false, 0, 0)
		if refused.ResetAfter > time.Hour || refused.RetryAfter > refused.ResetAfter {
			t.Fatalf("times that are too long: %+v", refused)
		}
	})
	t.Run("larger than the limit", func(t *testing.T) {
		r := quotastore.Rule{Limit: 1, Window: time.Hour, Burst: 5}
		want(t, take(t, s, t.Name(), 5, 5, r), true, 5, 0)
		want(t, take(t, s, t.Name(), 1, 1, r), false, 0, 0)
	})
	t.Run("smaller than the limit", func(t *testing.T) {
		r := quotastore.Rule{Limit: 10, Window: time.Hour, Burst: 2}
		want(t, take(t, s, t.Name(), 9, 1, r), true, 2, 0)
		want(t, take(t, s, t.Name(), 1, 1, r), false, 0, 0)
	})
}

// wait: RetryAfter and Reset are long enough, to the tick.
func wait(t *testing.T, s quotastore.Store) {
	each(t, 4, 400*time.Millisecond, func(t *testing.T, r quotastore.Rule) {
		for n := 1; n <= 4; n++ {
			take(t, s, t.Name(), 4, 0, r)
			refused := take(t, s, t.Name(), n, n, r)
			if refused.OK {
				continue // on a slow machine it has come back already
			}
			pass(refused.RetryAfter)
			if got := take(t, s, t.Name(), n, n, r); !got.OK {
				t.Fatalf("%d were to be had after %v: %+v", n, refused.RetryAfter, got)
			}
		}
		pass(take(t, s, t.Name(), 0, 0, r).ResetAfter)
		want(t, take(t, s, t.Name(), 0, 0, r), true, 0, 4)
	})
}

func partial(t *testing.T, s quotastore.Store) {
	each(t, 10, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		want(t, take(t, s, key, 7, 3, r), true, 7, 3)
		want(t, take(t, s, key, 7, 4, r), false, 0, 3)
		want(t, take(t, s, key, 7, 3, r), true, 3, 0)
		want(t, take(t, s, key, 7, 0, r), true, 0, 0)
		want(t, take(t, s, key, 7, -5, r), true, 0, 0)
		want(t, take(t, s, key, math.MaxInt, 1, r), false, 0, 0)
	})
}

func peek(t *testing.T, s quotastore.Store) {
	each(t, 10, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		fresh := take(t, s, key, 0, 0, r)
		want(t, fresh, true, 0, 10)
		if fresh.ResetAfter != 0 {
			t.Fatalf("nothing was taken, and %v are to pass", fresh.ResetAfter)
		}
		take(t, s, key, 4, 4, r)
		want(t, take(t, s, key, 0, 0, r), true, 0, 6)
		want(t, take(t, s, key, 0, 9, r), true, 0, 6) // at least nine of nothing is nothing
	})
}

func giveBack(t *testing.T, s quotastore.Store) {
	each(t, 10, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		want(t, take(t, s, key, -3, 0, r), true, 0, 10) // nothing was taken
		take(t, s, key, 10, 10, r)
		want(t, take(t, s, key, -4, 0, r), true, -4, 4)
		want(t, take(t, s, key, 4, 4, r), true, 4, 0)
		back := take(t, s, key, math.MinInt, 0, r)
		if back.Remaining != 10 || back.Allowed > -9 {
			t.Fatalf("not all of it is back: %+v", back)
		}
		want(t, take(t, s, key, 10, 10, r), true, 10, 0)
	})
}

func keys(t *testing.T, s quotastore.Store) {
	each(t, 1, time.Hour, func(t *testing.T, r quotastore.Rule) {
		long := strings.Repeat("k", 10_000)
		for _, key := range []string{"", "a", "A", "a ", "a\x00", "a\xff", "a:b", "{a}b", "ключ", long, long + "2"} {
			key += t.Name()
			want(t, take(t, s, key, 1, 1, r), true, 1, 0)
			want(t, take(t, s, key, 1, 1, r), false, 0, 0)
		}
	})
	want(t, take(t, s, "", 1, 1, quotastore.Rule{Limit: 1, Window: time.Hour}), true, 1, 0)
}

func closing(t *testing.T, s quotastore.Store) {
	each(t, 5, time.Hour, func(t *testing.T, r quotastore.Rule) {
		for d := 300 * time.Millisecond; !shutFor(t, s, t.Name()+d.String(), r, d); d *= 2 {
			t.Logf("the machine stood still for %v", d)
		}
	})
}

// shutFor has a key closed for so long, and looks what can be had of it. false: it may have
// been open again before that was seen.
func shutFor(t *testing.T, s quotastore.Store, key string, r quotastore.Rule, d time.Duration) bool {
	t.Helper()
	shut := func(d time.Duration) {
		t.Helper()
		if err := s.Block(context.Background(), key, time.Now().Add(d)); err != nil {
			t.Fatal(err)
		}
	}
	take(t, s, key, 1, 1, r)
	shut(-time.Hour)
	want(t, take(t, s, key, 0, 0, r), true, 0, 4)
	began := time.Now()
	shut(d)
	shut(d / 3) // the latest counts
	closed, asked, back := take(t, s, key, 1, 1, r), take(t, s, key, 0, 0, r), take(t, s, key, -1, 0, r)
	if time.Since(began) >= d {
		return false
	}
	want(t, closed, false, 0, 0)
	want(t, asked, true, 0, 0)
	want(t, back, true, -1, 0)
	if closed.RetryAfter > d+100*time.Millisecond || closed.ResetAfter < closed.RetryAfter {
		t.Fatalf("closed for %v, and told %+v", d, closed)
	}
	pass(closed.RetryAfter)
	want(t, take(t, s, key, 5, 5, r), true, 5, 0)
	return true
}

func invalid(t *testing.T, s quotastore.Store) {
	for name, r := range map[string]quotastore.Rule{
		"zero": {}, "no limit": {Window: time.Second}, "no window": {Limit: 1}, "negative limit": {Limit: -1, Window: time.Second},
		"negative window": {Limit: 1, Window: -1}, "negative burst": {Limit: 1, Window: 1, Burst: -1},
		"huge": {Limit: math.MaxInt, Window: time.Second}, "for ever": {Limit: 1, Window: math.MaxInt64},
	} {
		if ticket, err := s.Take(context.Background(), t.Name(), 1, 1, r); err == nil || ticket.OK {
			t.Errorf("%s: %+v and no error", name, ticket)
		}
	}
	each(t, 5, time.Hour, func(t *testing.T, r quotastore.Rule) {
		if ticket, err := s.Take(context.Background(), t.Name(), 6, 6, r); err != quotastore.ErrExceedsBurst || ticket.OK { //nolint:errorlint // nothing is to be wrapped around it
			t.Errorf("more than there ever is: %+v, %v", ticket, err)
		}
		want(t, take(t, s, t.Name(), 6, 5, r), true, 5, 0)
	})
}

func cancelled(t *testing.T, s quotastore.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := quotastore.Rule{Limit: 1, Window: time.Hour}
	if ticket, err := s.Take(ctx, t.Name(), 1, 1, r); err == nil || ticket.OK {
		t.Errorf("taken with a context that has ended: %+v", ticket)
	}
	if err := s.Block(ctx, t.Name(), time.Now().Add(time.Hour)); err == nil {
		t.Error("closed with a context that has ended")
	}
	want(t, take(t, s, t.Name(), 1, 1, r), true, 1, 0)
}

// exact: many at once never take more than there is, nor less (A5).
func exact(t *testing.T, s quotastore.Store) {
	each(t, 100, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key, began := t.Name(), time.Now()
		var taken, failed atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for range 5 {
					ticket, err := s.Take(context.Background(), key, 1, 1, r)
					if err != nil {
						failed.Add(1)
					}
					taken.Add(int64(ticket.Allowed))
				}
			})
		}
		all.Wait()
		most := int64(100 + time.Since(began)/(36*time.Second))
		if n := taken.Load(); failed.Load() > 0 || n < 100 || n > most {
			t.Fatalf("%d of 100 were taken; %d errors", n, failed.Load())
		}
	})
}

// obeyed: who has the key to himself, and takes no more than he is told remains, and
// then waits as long as he is told, is never refused (A3).
func obeyed(t *testing.T, s quotastore.Store) {
	each(t, 20, 200*time.Millisecond, func(t *testing.T, r quotastore.Rule) {
		var said quotastore.Result
		for n := range 60 {
			if n > 0 && said.Remaining == 0 {
				pass(said.ResetAfter)
			}
			if said = take(t, s, t.Name(), 1, 1, r); !said.OK {
				t.Fatalf("take %d was refused: %+v", n, said)
			}
		}
	})
}

// steady: over several windows not more is granted than the rule says, nor far less.
func steady(t *testing.T, s quotastore.Store) {
	const windows = 6
	window := 100 * time.Millisecond
	each(t, 50, window, func(t *testing.T, r quotastore.Rule) {
		began, taken := time.Now(), 0
		for time.Since(began) < windows*window {
			if ticket := take(t, s, t.Name(), 1, 1, r); ticket.OK {
				taken++
			} else {
				pass(ticket.RetryAfter)
			}
		}
		most := 50 + int(50*(time.Since(began)/time.Microsecond+1)/(window/time.Microsecond))
		if taken > most {
			t.Fatalf("%d were taken, and at most %d are allowed", taken, most)
		}
	})
}
