package storetest

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

func (k *kit) setHold(h driver.Hold) {
	k.Helper()
	if err := k.store.SetHold(k.ctx(), h); err != nil {
		k.Fatalf("SetHold(%+v): %v", h, err)
	}
}

// wait holds a scope, or with "" the gateway, because its provider asked to wait.
func (k *kit) wait(scope string, d time.Duration) {
	k.Helper()
	k.setHold(driver.Hold{Gateway: gateway, Scope: scope, Provider: true, Until: k.now().Add(d), Note: "429"})
}

// testProviderHold (D25): if the provider asked to wait, nothing of its gateway or scope is claimed
// until then. A person's hold and the provider's do not affect each other.
func (k *kit) testProviderHold() {
	a, b, beside := driver.QueueKey{Scope: "a", Gateway: gateway}, driver.QueueKey{Scope: "b", Gateway: gateway},
		driver.QueueKey{Scope: "a", Gateway: mute}
	until := k.now().Add(time.Hour)
	for _, invalid := range []driver.Hold{
		{Gateway: gateway, Provider: true}, {Gateway: gateway, Scope: "a", By: "ann"}, {Gateway: gateway, Scope: "a", ReleasedBy: "ann"},
		{Gateway: gateway, Provider: true, By: "ann", Until: until}, {Gateway: gateway, Provider: true, Scope: "\x00", Until: until},
	} {
		if err := k.store.SetHold(k.ctx(), invalid); !errors.Is(err, driver.ErrInvalid) {
			k.Errorf("SetHold(%+v): got %v, want ErrInvalid", invalid, err)
		}
	}
	for _, row := range []struct {
		name    string
		hold    func(*kit)
		waiting []driver.QueueKey // of the claim
		want    []driver.QueueKey // that are claimed
		holds   int
	}{
		{"the gateway", func(k *kit) { k.wait("", time.Hour) }, nil, []driver.QueueKey{beside}, 1},
		{"a scope", func(k *kit) { k.wait("a", time.Hour) }, nil, []driver.QueueKey{b, beside}, 1},
		{"two scopes", func(k *kit) { k.wait("a", time.Hour); k.wait("b", time.Hour) }, nil, []driver.QueueKey{beside}, 2},
		{"another scope", func(k *kit) { k.wait("c", time.Hour) }, nil, []driver.QueueKey{a, b, beside}, 1},
		{"in the past", func(k *kit) { k.wait("", -time.Second) }, nil, []driver.QueueKey{a, b, beside}, 0},
		{"a shorter wait changes nothing", func(k *kit) { k.wait("", time.Hour); k.wait("", time.Minute) }, nil, []driver.QueueKey{beside}, 1},
		{"a longer wait counts", func(k *kit) { k.wait("", -time.Second); k.wait("", time.Hour) }, nil, []driver.QueueKey{beside}, 1},
		{"a person's hold beside it", func(k *kit) { k.wait("", time.Hour); k.setHold(driver.Hold{Gateway: gateway, By: "ann"}) }, nil, []driver.QueueKey{beside}, 2},
		{"a person's hold ends before it", func(k *kit) {
			k.wait("", time.Hour)
			k.setHold(driver.Hold{Gateway: gateway, By: "ann", Until: k.now().Add(-time.Second)})
		}, nil, []driver.QueueKey{beside}, 1},
		{"released with the person's", func(k *kit) {
			k.wait("", time.Hour)
			k.wait("a", time.Hour)
			k.setHold(driver.Hold{Gateway: gateway, By: "ann"})
			k.setHold(driver.Hold{Gateway: gateway, ReleasedBy: "bob"})
		}, nil, []driver.QueueKey{a, b, beside}, 0},
		{"by the claim, the gateway", func(*kit) {}, []driver.QueueKey{{Gateway: gateway}}, []driver.QueueKey{beside}, 0},
		{"by the claim, a scope, and the other by the store", func(k *kit) { k.wait("b", time.Hour) }, []driver.QueueKey{a}, []driver.QueueKey{beside}, 1},
	} {
		k.T.Run(row.name, func(t *testing.T) {
			k := newKit(t, k.Suite)
			for _, key := range []driver.QueueKey{a, b, beside} {
				k.manyOf(key, 2)
			}
			row.hold(k)
			c := claim("w")
			c.Waiting = make(map[driver.QueueKey]bool)
			for _, key := range row.waiting {
				c.Waiting[key] = true
			}
			claimed, err := k.again.Claim(k.ctx(), c)
			if err != nil {
				k.Fatal(err)
			}
			got, want := make(map[driver.QueueKey]int), make(map[driver.QueueKey]int)
			for i := range claimed.Changes {
				got[driver.QueueKeyOf(&claimed.Changes[i].Record)]++
			}
			for _, key := range row.want {
				want[key] = 2
			}
			k.failIf(!maps.Equal(got, want), "claimed %v, want %v", got, want)
			k.checkWaits(row.holds, claimed.Waiting)
		})
	}
}

// testProviderHoldShare (D9, D25): a scope that waits takes no part of a claim.
func (k *kit) testProviderHoldShare() {
	k.many("a", 20)
	k.many("b", 20)
	k.wait("a", time.Hour)
	c := claim("w")
	allow(&c, func(a *driver.Allowance) { a.Limit = 10 })
	if got := scopes(k.claim(c)); !slices.Equal(slices.Compact(got), []string{"b"}) {
		k.Errorf("claimed intents of %q, want b", got)
	}
	allow(&c, func(a *driver.Allowance) { a.Limit = 8 })
	if got := scopes(k.claim(c)); len(got) != 8 {
		k.Errorf("claimed %d, want 8", len(got))
	}
}

// checkWaits compares the provider's holds of a claim with those of Holds.
func (k *kit) checkWaits(want int, waiting []driver.Hold) {
	k.Helper()
	holds, err := k.again.Holds(k.ctx())
	k.failIf(err != nil || len(holds) != want, "Holds: %+v, %v, want %d", holds, err, want)
	holds = slices.DeleteFunc(holds, func(h driver.Hold) bool { return !h.Provider })
	k.failIf(!slices.Equal(holds, waiting), "the claim has the provider's holds %+v, want %+v", waiting, holds)
	for i := range holds {
		if h := &holds[i]; h.Gateway != gateway || h.Note != "429" || h.By != "" || h.Until.Sub(h.Since) < 59*time.Minute || h.Since.Location() != time.UTC {
			k.Errorf("Holds: %+v", *h)
		}
	}
}

// testProviderHoldQueries (D19): while the provider asks to wait, status queries are claimed. A
// person's hold stops them too.
func (k *kit) testProviderHoldQueries() {
	unknown := func(do driver.Action) driver.Record {
		r := k.claimOne(k.must(enqueue(intent("a"))))
		return k.must(finish(&r, outcome(driver.ClassUnknown), driver.Decision{Action: do}))
	}
	queries := []driver.Record{unknown(driver.Query), unknown(driver.Query), unknown(driver.Query)}
	again := unknown(driver.Retry)
	beside := k.manyOf(driver.QueueKey{Scope: "a", Gateway: mute}, 1)
	k.wait("", time.Hour)
	k.wait("a", time.Hour)

	c := claim("w")
	for _, only := range []struct {
		r    *driver.Record
		want int
	}{{&again, 0}, {&queries[0], 1}} {
		c.ID = &only.r.ID
		if got := k.claim(c, *only.r); len(got) != only.want {
			k.Errorf("%d were claimed by their ID, want %d", len(got), only.want)
		}
	}
	c.ID = nil
	k.setHold(driver.Hold{Gateway: gateway, By: "ann"})
	c.Limit = 2
	if got := k.claim(c, beside...); len(got) != 1 || got[0].Record.ID != beside[0].ID {
		k.Errorf("%d were claimed while a person held the gateway, want that of another", len(got))
	}
	k.setHold(driver.Hold{Gateway: gateway, By: "ann", Until: k.now().Add(-time.Second)})
	allow(&c, func(a *driver.Allowance) { a.CanQuery = false })
	if got := k.claim(c); len(got) != 0 {
		k.Errorf("%d were claimed by a worker that cannot query", len(got))
	}
	allow(&c, func(a *driver.Allowance) { a.CanQuery, a.Limit = true, 1 })
	for _, want := range []int{1, 1, 0} {
		got := k.claim(c, queries...)
		k.fatalIf(len(got) != want || want > 0 && got[0].Record.State != driver.StateQuerying, "%d were claimed, want %d status queries", len(got), want)
	}
}

// testInterrupted (D27): if the worker stops before it sends, the intent is due at once, and the
// attempt does not count.
func (k *kit) testInterrupted() {
	first := k.must(enqueue(intent("a")))
	r := k.claimOne(first)
	e := finish(&r, driver.Outcome{Class: driver.ClassFailed, Err: unsent{}}, driver.Decision{})
	e.Interrupted = true
	r = k.must(e)
	if r.Attempts != 0 || r.Claims != 0 || r.State != driver.StateWaiting || r.NextAt.After(k.now()) {
		k.Errorf("not begun: got %v with %d attempts of %d claims, due at %v", r.State, r.Attempts, r.Claims, r.NextAt)
	}
	r = k.claimOne(r)
	e = finish(&r, driver.Outcome{Err: errors.New("cut")}, driver.Decision{})
	e.Interrupted = true
	r = k.must(e)
	if r.Attempts != 1 || r.Claims != 1 || r.State != driver.StateUnknown || !r.InDoubt || r.NextAt.After(k.now()) {
		k.Errorf("cut: got %v with %d attempts of %d claims, due at %v", r.State, r.Attempts, r.Claims, r.NextAt)
	}
}

// unsent is the error of an attempt that sent nothing.
type unsent struct{}

func (unsent) Error() string { return "not sent" }

// NotSent is what Outcome.Unsent calls.
func (unsent) NotSent() bool { return true }
