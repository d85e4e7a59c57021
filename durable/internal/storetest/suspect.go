package storetest

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// lose claims an intent n times, each time by a worker that dies.
func (k *kit) lose(r durable.Record, n int) durable.Record {
	for range n {
		c := claim(worker)
		c.ID, c.Alone = &r.ID, r.Suspect()
		changes := k.claim(c, r)
		require.Len(k, changes, 1, "it lost %d workers, and is due at %v", r.LostLeases, r.NextAt)
		lost := k.leave(worker)
		require.Len(k, lost, 1)
		r = lost[0].Record
	}
	return r
}

// keys are those of the changes.
func keys(changes []durable.Change) []string {
	all := make([]string, len(changes))
	for i := range changes {
		all[i] = changes[i].Record.ID.Key
	}
	return all
}

// testSuspect (D29): an intent that has lost three workers is claimed alone, if the claim permits it, and not among others. After
// a send that ended, it is one like others.
func (k *kit) testSuspect() {
	suspect := k.lose(k.must(enqueue(intent("a"))), 3)
	require.True(k, suspect.Suspect())
	due := func(c durable.Claim) bool {
		claimed, err := k.again.Claim(k.ctx(), c)
		require.NoError(k, err)
		assert.Empty(k, claimed.Changes)
		return claimed.Suspect
	}
	byID := claim(worker)
	byID.ID = &suspect.ID
	assert.True(k, due(claim("w")))
	assert.True(k, due(byID))

	others := k.many("a", 3)
	assert.Len(k, k.claim(claim("w"), others...), 3, "the others")
	k.many("a", 3)
	for name, forbid := range map[string]func(*kit, *durable.Claim){
		"no worker of its gateway is free": func(_ *kit, c *durable.Claim) { allow(c, func(a *durable.Allowance) { a.Limit = 0 }) },
		"the claim waits for its scope": func(_ *kit, c *durable.Claim) {
			c.Waiting = map[durable.QueueKey]bool{durable.QueueKeyOf(&suspect): true}
		},
		"a person holds the gateway":  func(k *kit, _ *durable.Claim) { k.setHold(byAnn()) },
		"the provider asked to wait":  func(k *kit, _ *durable.Claim) { k.wait("", time.Hour) },
		"its scope was asked to wait": func(k *kit, _ *durable.Claim) { k.wait("a", time.Hour) },
	} {
		c := alone()
		forbid(k, &c)
		assert.Empty(k, k.claim(c), name)
		if c.Gateways[gateway].Limit > 0 && len(c.Waiting) == 0 {
			k.setHold(durable.Hold{Gateway: gateway, ReleasedBy: "bob"})
		}
	}

	another := k.lose(k.must(enqueue(intent("b"))), 3)
	first := k.claim(alone(), suspect)
	require.Equal(k, []string{suspect.ID.Key}, keys(first), "one, the longest due")
	r := first[0].Record
	r = k.must(finish(&r, outcome(durable.ClassUnknown), durable.Decision{At: k.now()}))
	require.Zero(k, r.LostLeases)
	assert.Equal(k, []string{another.ID.Key}, keys(k.claim(alone(), another)))
	assert.False(k, due(alone()), "no suspect is left")
	k.eventually("the next send", func() bool { return len(k.claimID(r.ID, r)) == 1 })
}

// testLostLeases (D29): an intent that has lost twelve workers is dead. A redrive sends it again, alone.
func (k *kit) testLostLeases() {
	store := k.store
	r := k.must(enqueue(intent("a")))
	for r.State != durable.StateDead {
		require.Less(k, r.LostLeases, 12)
		assert.Equal(k, 0, k.lettersOf(r.ID))
		k.MoveClock(k.T, store, max(r.NextAt.Sub(k.now()), 0)+time.Millisecond) // SQLite knows no less
		r = k.lose(r, 1)
		assert.Equal(k, "lease_expired "+strconv.Itoa(r.LostLeases), r.Code)
	}
	assert.Equal(k, 12, r.LostLeases)
	assert.Equal(k, durable.ReasonLeaseExpired, r.Reason)
	assert.True(k, r.InDoubt)
	assert.Equal(k, 1, k.lettersOf(r.ID))
	assert.Empty(k, k.claim(alone()), "it is dead")
	r = k.must(event(durable.EventRedrive, r.ID))
	assert.Empty(k, k.claim(claim("w")), "among others")
	assert.Equal(k, []string{r.ID.Key}, keys(k.claim(alone(), r)))
}

// lettersOf is the number of open dead letters of an intent.
func (k *kit) lettersOf(id idempotency.ID) int {
	letters, err := k.again.DeadLetters(k.ctx(), durable.Filter{Scope: id.Scope, Key: id.Key}, nil, 10)
	require.NoError(k, err)
	return len(letters)
}
