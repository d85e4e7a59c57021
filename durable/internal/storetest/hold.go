package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// testHold (D21) holds a gateway: nothing of it is claimed, and its intents stay as they are.
func (k *kit) testHold() {
	held, beside := k.manyOf(driver.QueueKey{Scope: "a", Gateway: gateway}, 3), k.manyOf(driver.QueueKey{Scope: "a", Gateway: mute}, 2)
	set := func(h driver.Hold) error { return k.store.SetHold(k.ctx(), h) }
	check := func(h driver.Hold) {
		k.Helper()
		if err := set(h); err != nil {
			k.Fatalf("SetHold: %v", err)
		}
	}
	for _, invalid := range []driver.Hold{{By: "ann"}, {Gateway: gateway}, {Gateway: "\x00", By: "ann"}} {
		if err := set(invalid); !errors.Is(err, driver.ErrInvalid) {
			k.Errorf("SetHold(%+v): %v", invalid, err)
		}
	}
	release := driver.Hold{Gateway: gateway, ReleasedBy: "bob"}
	if err := set(release); !errors.Is(err, driver.ErrNotFound) {
		k.Errorf("release of what is not held: %v", err)
	}
	check(driver.Hold{Gateway: gateway, By: "ann", Note: "incident"})
	check(driver.Hold{Gateway: gateway, By: "ann", Note: "incident 7"})
	if holds, err := k.again.Holds(k.ctx()); err != nil || len(holds) != 1 || holds[0].Gateway != gateway || holds[0].By != "ann" ||
		holds[0].Note != "incident 7" || holds[0].Since.IsZero() || !holds[0].Until.IsZero() {
		k.Errorf("Holds: %+v, %v", holds, err)
	}
	c := claim("w")
	if got := k.claim(c); len(got) != len(beside) {
		k.Errorf("%d were claimed, want %d", len(got), len(beside))
	}
	c.ID = &held[0].ID
	if got := k.claim(c); len(got) != 0 {
		k.Errorf("an intent of a held gateway was claimed by its ID")
	}
	claimed, err := k.store.Claim(k.ctx(), c)
	k.failIf(err != nil || !slices.Equal(claimed.Held, []string{gateway}), "held: %v, %v", claimed.Held, err)
	if after := k.look(held[0].ID); diff(after, &held[0]) != "" {
		k.Errorf("the hold changed an intent: %s", diff(after, &held[0]))
	}
	check(release)
	if holds, err := k.store.Holds(k.ctx()); err != nil || len(holds) != 0 {
		k.Errorf("Holds after the release: %+v, %v", holds, err)
	}
	check(driver.Hold{Gateway: gateway, By: "ann", Until: k.now().Add(-time.Second)}) // is over
	if got := k.claim(claim("w")); len(got) != len(held) {
		k.Errorf("%d were claimed after the hold, want %d", len(got), len(held))
	}
	if err := set(release); !errors.Is(err, driver.ErrNotFound) {
		k.Errorf("release of a hold that is over: %v", err)
	}
}
