package storetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func (k *kit) testEnqueue() {
	in := intent("a")
	k.must(enqueue(in))
	other := in
	other.Gateway = mute
	require.ErrorIs(k, k.apply(enqueue(other)).Err, durable.ErrMismatch, "another gateway")

	// The events of a batch are applied in order. An event that fails does not affect the others.
	a, b, late := intent("b"), intent("b"), intent("b")
	late.Deadline = time.Now().Add(-time.Hour)
	wrong := a
	wrong.Payload = nil
	rows := []struct {
		event durable.Event
		step  durable.Step
		err   error
	}{
		{enqueue(a), durable.StepInsert, nil},
		{enqueue(a), durable.StepKeep, nil},
		{enqueue(wrong), durable.StepKeep, durable.ErrMismatch},
		{enqueue(late), durable.StepKeep, durable.ErrInvalid},
		{enqueue(b), durable.StepInsert, nil},
		{event(durable.EventCancel, b.ID), durable.StepUpdate, nil},
		{event(durable.EventCancel, late.ID), durable.StepKeep, durable.ErrNotFound},
	}
	var events []durable.Event
	for _, row := range rows {
		events = append(events, row.event)
	}
	results, err := k.store.Apply(k.ctx(), events)
	require.NoError(k, err)
	for i, row := range rows {
		assert.Equal(k, row.step, results[i].Step, "event %d of a batch", i)
		assert.ErrorIs(k, results[i].Err, row.err, "event %d of a batch", i)
	}
	assert.Equal(k, durable.StateCanceled, k.look(b.ID).State, "enqueued and canceled in one batch")
	results, err = k.store.Apply(k.ctx(), nil)
	require.NoError(k, err)
	assert.Empty(k, results)
	assert.ErrorIs(k, ignored(k.store.Find(k.ctx(), late.ID)), durable.ErrNotFound)
	assert.ErrorIs(k, ignored(k.store.Attempts(k.ctx(), late.ID)), durable.ErrNotFound)
}

// testValues: all values are read as they were written.
func (k *kit) testValues() {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, in := range map[string]durable.Intent{
		"all bytes":       {Payload: all},
		"no payload":      {},
		"empty payload":   {Payload: []byte{}},
		"largest payload": {Payload: bytes.Repeat([]byte{0xFF}, durable.LongestPayload)},
		"far times":       {NotBefore: time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), Deadline: time.Date(9999, 1, 1, 0, 0, 0, 123456789, time.UTC)},
		"row":             {Row: math.MaxInt32, Batch: strings.Repeat("b", 512)},
		"negative row":    {Row: -1},
		"fingerprint":     {Payload: all, Fingerprint: "invoice 1"},
		"names":           {ID: idempotency.ID{Scope: "Ä' \"\\ %_ ", Operation: "a\nb", Key: strings.Repeat("k", 512)}},
	} {
		if in.Key == "" {
			in.ID = intent("values").ID
		}
		in.Gateway = gateway
		k.Log(name)
		k.must(enqueue(in))
	}
	// Names that differ only in case, trailing blanks or Unicode normal form are different. So are IDs with two equal
	// parts, or with equal bytes in total.
	different := []idempotency.ID{
		{Scope: "a", Operation: "b", Key: "c"}, {Scope: "z", Operation: "b", Key: "c"},
		{Scope: "a", Operation: "z", Key: "c"}, {Scope: "a", Operation: "b", Key: "z"},
		{Scope: "ab", Operation: "", Key: "c"}, {Scope: "", Operation: "ab", Key: "c"}, {Scope: "", Operation: "", Key: "abc"},
	}
	for _, key := range []string{"a", "A", "a ", " a", "é", "e\u0301", "ﬀ", "ff"} {
		different = append(different, idempotency.ID{Scope: "names", Key: key})
	}
	for _, id := range different {
		in := intent("")
		in.ID, in.Payload = id, []byte(id.Scope+" "+id.Operation+" "+id.Key)
		assert.Equal(k, durable.StepInsert, k.apply(enqueue(in)).Step, "%v is taken for another", id)
	}
	assert.ErrorIs(k, k.apply(event(durable.EventCancel, idempotency.ID{Scope: "names", Key: "a\x00"})).Err, durable.ErrInvalid)

	// A gateway's texts are stored, even if they are too long or malformed.
	r := k.claimOne(k.must(enqueue(intent("words"))))
	foul := "\x00\xff" + strings.Repeat("é", 2000)
	r = k.must(finish(&r, durable.Outcome{
		Class: durable.ClassFailed, Code: foul, Reference: foul, Status: math.MaxInt32, Err: errors.New(foul), //nolint:err113 // as gateways do
	}, durable.Decision{Reason: foul, Action: durable.Bury}))
	assert.Equal(k, durable.StateDead, r.State)
	r = k.claimOne(k.must(enqueue(intent("words"))))
	r = k.must(finish(&r, durable.Outcome{Class: durable.ClassSucceeded, Code: "ok", Reference: "ch_1", Result: all}, durable.Decision{}))
	assert.Equal(k, all, r.Result)
	assert.Equal(k, "ch_1", r.Reference)
}

func (k *kit) testInvalid() {
	ctx := k.ctx()
	for name, in := range map[string]durable.Intent{
		"no key":          {Gateway: gateway},
		"no gateway":      {ID: intent("a").ID},
		"payload":         {ID: intent("a").ID, Gateway: gateway, Payload: make([]byte, durable.LongestPayload+1)},
		"NUL":             {ID: idempotency.ID{Key: "a\x00"}, Gateway: gateway},
		"batch not UTF-8": {ID: intent("a").ID, Gateway: gateway, Batch: "\xff"},
		"deadline":        {ID: intent("a").ID, Gateway: gateway, Deadline: time.Now().Add(-time.Second)},
		"never due":       {ID: intent("a").ID, Gateway: gateway, NotBefore: time.Now().Add(time.Hour), Deadline: time.Now().Add(time.Minute)},
		"year":            {ID: intent("a").ID, Gateway: gateway, NotBefore: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		assert.ErrorIs(k, k.apply(enqueue(in)).Err, durable.ErrInvalid, name)
	}
	for name, err := range map[string]error{
		"Apply of a claim": ignored(k.store.Apply(ctx, []durable.Event{event(durable.EventClaim, intent("a").ID)})),
		"Apply of nothing": ignored(k.store.Apply(ctx, []durable.Event{{}})),
		"Claim of nothing": ignored(k.store.Claim(ctx, durable.Claim{})),
		"Claim, no limit":  ignored(k.store.Claim(ctx, durable.Claim{Worker: "w", Lease: 1})),
		"Claim, negative": ignored(k.store.Claim(ctx, durable.Claim{
			Worker: "w", Lease: 1, Limit: 1, Gateways: map[string]durable.Allowance{gateway: {Limit: -1, PerScope: 1}},
		})),
		"Claim, NUL":      ignored(k.store.Claim(ctx, claim("\x00"))),
		"Beat, no name":   ignored(k.store.Heartbeat(ctx, "", time.Second)),
		"Beat backwards":  ignored(k.store.Heartbeat(ctx, "w", -time.Second)),
		"Find of nothing": ignored(k.store.Find(ctx, idempotency.ID{})),
		"journal":         ignored(k.store.Attempts(ctx, idempotency.ID{})),
	} {
		assert.ErrorIs(k, err, durable.ErrInvalid, name)
	}
	assert.Empty(k, k.stats().States)
}

// testCanceled calls each verb with a context that has ended.
func (k *kit) testCanceled() {
	in := intent("a")
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	for name, err := range map[string]error{
		"Apply":    ignored(k.store.Apply(ctx, []durable.Event{enqueue(in)})),
		"Claim":    ignored(k.store.Claim(ctx, claim("w"))),
		"Beat":     ignored(k.store.Heartbeat(ctx, "w", time.Second)),
		"Reap":     ignored(k.store.Reap(ctx, 1)),
		"Find":     ignored(k.store.Find(ctx, in.ID)),
		"Attempts": ignored(k.store.Attempts(ctx, in.ID)),
		"Letters":  ignored(k.store.DeadLetters(ctx, durable.Filter{}, nil, 1)),
		"Stats":    ignored(k.store.Stats(ctx)),
		"Sweep":    ignored(k.store.Sweep(ctx, 0, 1)),
	} {
		assert.ErrorIs(k, err, context.Canceled, name)
	}
	assert.Nil(k, k.look(in.ID))
}

// testWithTx (D6): the events of an outbox commit and roll back with its transaction.
func (k *kit) testWithTx() {
	if k.WithTx == nil {
		k.Log("the store has no transactions")
		return
	}
	for name, fail := range map[string]error{"commit": nil, "rollback": errors.New("no")} { //nolint:err113 // any
		in, old := intent(name), intent(name)
		k.must(enqueue(old))
		err := k.Suite.WithTx(k.T, k.store, func(outbox durable.Outbox) error {
			receipt, err := outbox.Enqueue(k.ctx(), in)
			require.NoError(k, err)
			assert.Equal(k, durable.Receipt{ID: in.ID}, receipt)
			again, err := outbox.Enqueue(k.ctx(), in)
			assert.NoError(k, err)
			assert.True(k, again.Existing)
			wrong := in
			wrong.Payload = nil
			assert.ErrorIs(k, ignored(outbox.Enqueue(k.ctx(), wrong)), durable.ErrMismatch)
			assert.ErrorIs(k, ignored(outbox.Enqueue(k.ctx(), durable.Intent{})), durable.ErrInvalid)
			assert.NoError(k, outbox.Cancel(k.ctx(), old.ID))
			assert.ErrorIs(k, outbox.Cancel(k.ctx(), intent("no").ID), durable.ErrNotFound)
			return fail
		})
		require.ErrorIs(k, err, fail, name)
		committed := fail == nil
		assert.Equal(k, committed, k.look(in.ID) != nil, name)
		assert.Equal(k, committed, len(k.claimID(in.ID)) == 1, name)
		assert.Equal(k, committed, k.look(old.ID).State == durable.StateCanceled, name)
	}
}
