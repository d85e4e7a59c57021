package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

func (k *kit) setHold(h durable.Hold) {
	require.NoError(k, k.store.SetHold(k.ctx(), h), "%+v", h)
}

func (k *kit) holds() []durable.Hold {
	holds, err := k.again.Holds(k.ctx())
	require.NoError(k, err)
	return holds
}

// byAnn is a person's hold.
func byAnn() durable.Hold { return durable.Hold{Gateway: gateway, By: "ann", Note: "incident"} }

// over is a person's hold that is over.
func (k *kit) over() durable.Hold {
	h := byAnn()
	h.Until = k.now().Add(-time.Second)
	return h
}

// wait holds a scope, or with "" the gateway, because its provider asked to wait.
func (k *kit) wait(scope string, d time.Duration) {
	k.setHold(durable.Hold{Gateway: gateway, Scope: scope, Provider: true, Until: k.now().Add(d), Note: "429"})
}

// testHold (D21) holds a gateway: nothing of it is claimed, and its intents stay as they are.
func (k *kit) testHold() {
	held, beside := k.manyOf(durable.QueueKey{Scope: "a", Gateway: gateway}, 3), k.manyOf(durable.QueueKey{Scope: "a", Gateway: mute}, 2)
	until := k.now().Add(time.Hour)
	for _, invalid := range []durable.Hold{
		{By: "ann"}, {Gateway: gateway}, {Gateway: "\x00", By: "ann"},
		{Gateway: gateway, Provider: true}, {Gateway: gateway, Scope: "a", By: "ann"}, {Gateway: gateway, Scope: "a", ReleasedBy: "ann"},
		{Gateway: gateway, Provider: true, By: "ann", Until: until}, {Gateway: gateway, Provider: true, Scope: "\x00", Until: until},
	} {
		assert.ErrorIs(k, k.store.SetHold(k.ctx(), invalid), durable.ErrInvalid, "%+v", invalid)
	}
	release := durable.Hold{Gateway: gateway, ReleasedBy: "bob"}
	require.ErrorIs(k, k.store.SetHold(k.ctx(), release), durable.ErrNotFound, "it is not held")
	first := byAnn()
	first.Note = "before"
	k.setHold(first)
	since := k.holds()[0].Since
	k.eventually("a later time", func() bool { return k.now().After(since) })
	k.setHold(byAnn())
	want := byAnn()
	want.Since = since
	assert.NotZero(k, since)
	assert.Equal(k, []durable.Hold{want}, k.holds(), "the second replaces the first but for Since")
	assert.Len(k, k.claim(claim("w")), len(beside))
	c := claim("w")
	c.ID = &held[0].ID
	claimed, err := k.store.Claim(k.ctx(), c)
	require.NoError(k, err)
	assert.Empty(k, claimed.Changes, "claimed by its ID")
	assert.Equal(k, []string{gateway}, claimed.Held)
	k.checkStored(&held[0])
	k.setHold(release)
	assert.Empty(k, k.holds())
	k.setHold(k.over())
	assert.Len(k, k.claim(claim("w")), len(held))
	require.ErrorIs(k, k.store.SetHold(k.ctx(), release), durable.ErrNotFound, "it is over")
}

// testProviderHold (D25): if the provider asked to wait, nothing of its gateway or scope is claimed
// until then. A person's hold and the provider's do not affect each other.
func (k *kit) testProviderHold() {
	a, b, beside := durable.QueueKey{Scope: "a", Gateway: gateway}, durable.QueueKey{Scope: "b", Gateway: gateway},
		durable.QueueKey{Scope: "a", Gateway: mute}
	all := queues{a: 2, b: 2, beside: 2}
	for _, row := range []struct {
		name    string
		hold    func(*kit)
		waiting []durable.QueueKey // of the claim
		want    queues             // that are claimed
		holds   int
	}{
		{"the gateway", func(k *kit) { k.wait("", time.Hour) }, nil, queues{beside: 2}, 1},
		{"a scope", func(k *kit) { k.wait("a", time.Hour) }, nil, queues{b: 2, beside: 2}, 1},
		{"two scopes", func(k *kit) { k.wait("a", time.Hour); k.wait("b", time.Hour) }, nil, queues{beside: 2}, 2},
		{"another scope", func(k *kit) { k.wait("c", time.Hour) }, nil, all, 1},
		{"in the past", func(k *kit) { k.wait("", -time.Second) }, nil, all, 0},
		{"a shorter wait changes nothing", func(k *kit) { k.wait("", time.Hour); k.wait("", time.Minute) }, nil, queues{beside: 2}, 1},
		{"a longer wait counts", func(k *kit) { k.wait("", -time.Second); k.wait("", time.Hour) }, nil, queues{beside: 2}, 1},
		{"a person's hold beside it", func(k *kit) { k.wait("", time.Hour); k.setHold(byAnn()) }, nil, queues{beside: 2}, 2},
		{"a person's hold ends before it", func(k *kit) { k.wait("", time.Hour); k.setHold(k.over()) }, nil, queues{beside: 2}, 1},
		{"released with the person's", func(k *kit) {
			k.wait("", time.Hour)
			k.wait("a", time.Hour)
			k.setHold(byAnn())
			k.setHold(durable.Hold{Gateway: gateway, ReleasedBy: "bob"})
		}, nil, all, 0},
		{"by the claim, the gateway", func(*kit) {}, []durable.QueueKey{{Gateway: gateway}}, queues{beside: 2}, 0},
		{"by the claim, a scope, and the other by the store", func(k *kit) { k.wait("b", time.Hour) }, []durable.QueueKey{a}, queues{beside: 2}, 1},
	} {
		k.T.Run(row.name, func(t *testing.T) {
			k := newKit(t, k.Suite)
			for key := range all {
				k.manyOf(key, 2)
			}
			row.hold(k)
			c := claim("w")
			c.Waiting = make(map[durable.QueueKey]bool)
			for _, key := range row.waiting {
				c.Waiting[key] = true
			}
			claimed, err := k.again.Claim(k.ctx(), c)
			require.NoError(k, err)
			assert.Equal(k, row.want, queuesOf(claimed.Changes))
			holds := k.holds()
			assert.Len(k, holds, row.holds)
			holds = slices.DeleteFunc(holds, func(h durable.Hold) bool { return !h.Provider })
			equalRows(k, holds, claimed.Waiting, "those of the claim")
			for _, h := range holds {
				assert.Equal(k, durable.Hold{Gateway: gateway, Scope: h.Scope, Provider: true, Since: h.Since, Until: h.Until, Note: "429"}, h)
				assert.GreaterOrEqual(k, h.Until.Sub(h.Since), 59*time.Minute)
				assert.Equal(k, time.UTC, h.Since.Location())
			}
		})
	}
}

// testProviderHoldShare (D9, D25): a scope that waits takes no part of a claim, and does not bring its gateway's turn forward.
func (k *kit) testProviderHoldShare() {
	k.many("a", 20)
	k.many("b", 20)
	k.wait("a", time.Hour)
	c := claim("w")
	for _, limit := range []int{10, 8, 2} {
		allow(&c, func(a *durable.Allowance) { a.Limit = limit })
		assert.Equal(k, queues{{Scope: "b", Gateway: gateway}: limit}, queuesOf(k.claim(c)))
	}
	beside := durable.QueueKey{Scope: "c", Gateway: mute}
	k.manyOf(beside, 1)
	k.many("b", 1)
	c.Limit = 1
	assert.Equal(k, queues{beside: 1}, queuesOf(k.claim(c)))
}

// testProviderHoldQueries (D19): while the provider asks to wait, status queries are claimed. A
// person's hold stops them too.
func (k *kit) testProviderHoldQueries() {
	unknown := func(do durable.Action) durable.Record {
		r := k.claimOne(k.must(enqueue(intent("a"))))
		return k.must(finish(&r, outcome(durable.ClassUnknown), durable.Decision{Action: do}))
	}
	queries := []durable.Record{unknown(durable.Query), unknown(durable.Query), unknown(durable.Query)}
	again := unknown(durable.Retry)
	beside := k.manyOf(durable.QueueKey{Scope: "a", Gateway: mute}, 1)
	k.wait("", time.Hour)
	k.wait("a", time.Hour)
	assert.Empty(k, k.claimID(again.ID), "a send")
	assert.Len(k, k.claimID(queries[0].ID, queries[0]), 1)

	c := claim("w")
	k.setHold(byAnn())
	c.Limit = 2
	got := k.claim(c, beside...)
	require.Len(k, got, 1, "while a person holds the gateway")
	assert.Equal(k, beside[0].ID, got[0].Record.ID)
	k.setHold(k.over())
	allow(&c, func(a *durable.Allowance) { a.CanQuery = false })
	assert.Empty(k, k.claim(c), "a worker that cannot query")
	allow(&c, func(a *durable.Allowance) { a.CanQuery, a.Limit = true, 1 })
	for _, want := range []int{1, 1, 0} {
		got := k.claim(c, queries...)
		require.Len(k, got, want)
		for i := range got {
			assert.Equal(k, durable.StateQuerying, got[i].Record.State)
		}
	}
}
