package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// back is how far the tests set the clock back.
const back = time.Hour

// move sets the clock of the store.
func (k *kit) move(by time.Duration) { k.MoveClock(k.T, k.store, by) }

// testClockBack (D30): after the clock was set back, what was due is claimed, with the store's new time, and a backoff is as long
// as it was planned.
func (k *kit) testClockBack() {
	due := k.must(enqueue(intent("a")))
	byID := k.must(enqueue(intent("a")))
	many := k.many("b", 5)
	soon := intent("c")
	soon.NotBefore = k.now().Add(20 * time.Millisecond)
	promoted := k.must(enqueue(soon))
	absolute := k.must(enqueue(inAnHour("d")))
	k.eventually("the first send", func() bool { return !k.now().Before(promoted.NextAt) })
	none := claim("none")
	for name := range none.Gateways {
		none.Gateways[name] = durable.Allowance{PerScope: 1}
	}
	assert.Empty(k, k.claim(none), "it only promotes")
	before := k.now()

	k.move(-back)
	assert.True(k, k.now().Before(before))
	c := claim(worker)
	c.Limit = 4 // so that a second read finds more
	var got []durable.Change
	got = append(got, k.claimID(byID.ID, byID)...)
	for range 4 {
		got = append(got, k.claim(c, append(many, due)...)...)
	}
	require.Len(k, got, 8, "all but the one in an hour")
	for i := range got {
		r := &got[i].Record
		assert.True(k, r.UpdatedAt.Before(before) && r.ClaimedAt.Before(before), "claimed at %v, before the clock was set: %v", r.ClaimedAt, before)
	}
	r := k.must(finish(&got[0].Record, outcome(durable.ClassFailed), durable.Decision{At: k.now().Add(time.Minute)}))
	assert.Empty(k, k.claim(claim(worker)), "the backoff")
	k.move(time.Minute)
	k.eventually("the end of the backoff", func() bool { return len(k.claimID(r.ID, r)) == 1 })
	k.move(back)
	k.eventually("the time that its caller wants", func() bool {
		k.move(time.Minute)
		return len(k.claimID(absolute.ID, absolute)) == 1
	})
}

// testClockBackWaiting (D30): Rebase lets those that wait for a retry wait from now on, for as long as was planned. A time that a
// caller wants stays.
func (k *kit) testClockBackWaiting() {
	var waiting []durable.Record
	for range 3 {
		r := k.claimOne(k.must(enqueue(intent("a"))))
		waiting = append(waiting, k.must(finish(&r, outcome(durable.ClassUnknown), durable.Decision{At: k.now().Add(time.Minute)})))
	}
	r := k.claimOne(k.must(enqueue(intent("a"))))
	waiting = append(waiting, k.must(finish(&r, outcome(durable.ClassFailed), durable.Decision{At: k.now().Add(time.Minute)})))
	absolute := k.must(enqueue(inAnHour("a")))
	rebase := func(limit int) int {
		n, err := k.store.Rebase(k.ctx(), limit)
		require.NoError(k, err)
		return n
	}
	assert.Zero(k, rebase(10), "the clock was not set")
	k.move(-back)
	assert.Equal(k, 3, rebase(3))
	assert.Equal(k, 1, rebase(3))
	assert.Zero(k, rebase(3))
	now := k.now()
	for _, was := range waiting {
		r := k.look(was.ID)
		assert.WithinDuration(k, now.Add(time.Minute), r.NextAt, 5*time.Second)
		assert.WithinDuration(k, now, r.UpdatedAt, 5*time.Second)
		by := was.UpdatedAt.Sub(r.UpdatedAt)
		assert.WithinDuration(k, was.LastSentAt.Add(-by), r.LastSentAt, time.Millisecond)
		assert.WithinDuration(k, was.FirstSentAt.Add(-by), r.FirstSentAt, time.Millisecond)
		assert.WithinDuration(k, was.ClaimedAt.Add(-by), r.ClaimedAt, time.Millisecond)
		assert.WithinDuration(k, was.RetryWindowStart.Add(-by), r.RetryWindowStart, time.Millisecond)
		assert.Equal(k, was.State, r.State)
		assert.Equal(k, was.CreatedAt, r.CreatedAt)
	}
	assert.Equal(k, absolute.NextAt, k.look(absolute.ID).NextAt)
	assert.Empty(k, k.claim(claim(worker)))
	k.move(time.Minute + time.Second)
	assert.Len(k, k.claim(claim(worker)), len(waiting))
}

// testClockBackLeases (D30): after the clock was set back, each lease begins anew. A dead worker is found after it, and one that
// is alive loses nothing.
func (k *kit) testClockBackLeases() {
	k.many("a", 4)
	c := claim("dead")
	c.Limit, c.Lease = 2, time.Minute
	k.claim(c)
	c.Worker = "alive"
	k.claim(c)
	k.move(-back)
	k.beat("alive", time.Minute)
	assert.Empty(k, k.reap(), "the leases begin anew")
	k.move(30 * time.Second)
	assert.Empty(k, k.reap())
	k.beat("alive", time.Minute)
	k.move(31 * time.Second)
	lost := k.reap()
	require.Len(k, lost, 2, "of the dead worker")
	assert.Equal(k, 1, k.stats().Workers)
}

// testClockBackHolds (D30): a provider's hold from before the clock was set back has no effect, and a new one has. A person's hold
// lasts until the time that the person named.
func (k *kit) testClockBackHolds() {
	k.wait("", time.Minute)
	k.move(-back)
	assert.Empty(k, k.holds())
	k.many("a", 2)
	c := claim(worker)
	c.Limit = 1
	assert.Len(k, k.claim(c), 1)
	k.setHold(durable.Hold{Gateway: gateway, Provider: true, Until: k.now().Add(time.Minute), Note: "429"})
	holds := k.holds()
	require.Len(k, holds, 1)
	assert.WithinDuration(k, k.now().Add(time.Minute), holds[0].Until, 5*time.Second)
	assert.WithinDuration(k, k.now(), holds[0].Since, 5*time.Second)
	assert.Empty(k, k.claim(claim(worker)))
	k.move(time.Minute + time.Second)
	assert.Len(k, k.claim(claim(worker)), 1)
	since := k.now()
	k.move(-back)
	k.setHold(durable.Hold{Gateway: gateway, Provider: true, Since: since, Until: since.Add(time.Minute), Note: "429"})
	holds = k.holds()
	require.Len(k, holds, 1)
	assert.WithinDuration(k, k.now().Add(time.Minute), holds[0].Until, 5*time.Second, "an answer to a send from before")
	k.move(time.Minute + time.Second)

	k.setHold(durable.Hold{Gateway: gateway, By: "ann", Until: k.now().Add(time.Minute)})
	k.move(-back)
	k.many("a", 1)
	assert.Empty(k, k.claim(claim(worker)))
}
