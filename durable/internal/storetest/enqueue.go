package storetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func (k *kit) testEnqueue() {
	in := intent("a")
	first := k.apply(enqueue(in))
	if r := first.Receipt(); first.Err != nil || r.Existing || r.State != driver.StatePending || r.ID != in.ID {
		k.Fatalf("a new intent: %+v, %v", r, first.Err)
	}
	again := k.apply(enqueue(in))
	if r := again.Receipt(); again.Err != nil || !r.Existing {
		k.Fatalf("the same again: %+v, %v", r, again.Err)
	}
	other := in
	other.Payload = []byte("another")
	if result := k.apply(enqueue(other)); !errors.Is(result.Err, driver.ErrMismatch) {
		k.Fatalf("another payload: %v, want ErrMismatch", result.Err)
	}
	other = in
	other.Gateway = mute
	if result := k.apply(enqueue(other)); !errors.Is(result.Err, driver.ErrMismatch) {
		k.Fatalf("another gateway: %v, want ErrMismatch", result.Err)
	}

	// The events of a batch are applied in order. An event that fails does not affect the others.
	a, b := intent("b"), intent("b")
	late := intent("b")
	late.Deadline = time.Now().Add(-time.Hour)
	wrong := a
	wrong.Payload = nil
	results, err := k.store.Apply(k.ctx(), []driver.Event{
		enqueue(a), enqueue(a), enqueue(wrong), enqueue(late), enqueue(b), event(driver.EventCancel, b.ID),
		event(driver.EventCancel, late.ID),
	})
	k.fatalIf(err != nil, "Apply: %v", err)
	for i, want := range []struct {
		step driver.Step
		err  error
	}{
		{driver.StepInsert, nil},
		{driver.StepKeep, nil},
		{driver.StepKeep, driver.ErrMismatch},
		{driver.StepKeep, driver.ErrInvalid},
		{driver.StepInsert, nil},
		{driver.StepUpdate, nil},
		{driver.StepKeep, driver.ErrNotFound},
	} {
		if got := results[i]; got.Step != want.step || !errors.Is(got.Err, want.err) {
			k.Errorf("event %d of a batch: step %d, %v, want %d, %v", i, got.Step, got.Err, want.step, want.err)
		}
	}
	if r := k.look(b.ID); r == nil || r.State != driver.StateCanceled {
		k.Errorf("enqueued and canceled in one batch: %+v", r)
	}
	if results, err := k.store.Apply(k.ctx(), nil); len(results) != 0 || err != nil {
		k.Errorf("no events: %v, %v", results, err)
	}
	if _, err := k.store.Find(k.ctx(), late.ID); !errors.Is(err, driver.ErrNotFound) {
		k.Errorf("Find of an absent intent: %v", err)
	}
	if _, err := k.store.Attempts(k.ctx(), late.ID); !errors.Is(err, driver.ErrNotFound) {
		k.Errorf("Attempts of an absent intent: %v", err)
	}
}

// testValues: all values are read as they were written.
func (k *kit) testValues() {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	big := bytes.Repeat([]byte{0xFF}, driver.LongestPayload)
	for name, in := range map[string]driver.Intent{
		"all bytes":       {Payload: all},
		"no payload":      {},
		"empty payload":   {Payload: []byte{}},
		"largest payload": {Payload: big},
		"far times":       {NotBefore: time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), Deadline: time.Date(9999, 1, 1, 0, 0, 0, 123456789, time.UTC)},
		"row":             {Row: math.MaxInt32, Batch: strings.Repeat("b", 512)},
		"negative row":    {Row: -1},
		"names":           {ID: idempotency.ID{Scope: "Ä' \"\\ %_ ", Operation: "a\nb", Key: strings.Repeat("k", 512)}},
	} {
		if in.Key == "" {
			in.ID = intent("values").ID
		}
		in.Gateway = gateway
		k.Log(name)
		k.must(enqueue(in))
	}
	// Names that differ only in case, trailing blanks or Unicode normal form are different.
	for _, key := range []string{"a", "A", "a ", " a", "é", "e\u0301", "ﬀ", "ff"} {
		in := intent("names")
		in.Key = key
		if result := k.apply(enqueue(in)); result.Step != driver.StepInsert {
			k.Errorf("the key %q is taken for another", key)
		}
	}
	odd := intent("names")
	odd.Key = "a\x00"
	if result := k.apply(event(driver.EventCancel, odd.ID)); !errors.Is(result.Err, driver.ErrInvalid) {
		k.Errorf("the name of %q with a NUL behind it: %v, want ErrInvalid", "a", result.Err)
	}
	// So are IDs with two equal parts, or with equal bytes in total.
	for _, id := range []idempotency.ID{
		{Scope: "a", Operation: "b", Key: "c"}, {Scope: "z", Operation: "b", Key: "c"},
		{Scope: "a", Operation: "z", Key: "c"}, {Scope: "a", Operation: "b", Key: "z"},
		{Scope: "ab", Operation: "", Key: "c"}, {Scope: "", Operation: "ab", Key: "c"}, {Scope: "", Operation: "", Key: "abc"},
	} {
		in := intent("")
		in.ID, in.Payload = id, []byte(id.Scope+" "+id.Operation+" "+id.Key)
		if result := k.apply(enqueue(in)); result.Step != driver.StepInsert {
			k.Errorf("%v is taken for another", id)
		}
	}
	// A gateway's texts are stored, even if they are too long or malformed.
	r := k.claimOne(k.must(enqueue(intent("words"))))
	foul := "\x00\xff" + strings.Repeat("é", 2000)
	r = k.must(finish(&r, driver.Outcome{
		Class: driver.ClassFailed, Code: foul, Reference: foul, Status: math.MaxInt32, Err: errors.New(foul), //nolint:err113 // as gateways do
	}, driver.Decision{Reason: foul, Action: driver.Bury}))
	k.failIf(r.State != driver.StateDead, "it is %v, want dead", r.State)
	r = k.claimOne(k.must(enqueue(intent("words"))))
	r = k.must(finish(&r, driver.Outcome{Class: driver.ClassSucceeded, Code: "ok", Reference: "ch_1", Result: all}, driver.Decision{}))
	k.failIf(!bytes.Equal(r.Result, all) || r.Reference != "ch_1", "the result is %q, the reference %q", r.Result, r.Reference)
}

func (k *kit) testInvalid() {
	ctx := k.ctx()
	for name, in := range map[string]driver.Intent{
		"no key":          {Gateway: gateway},
		"no gateway":      {ID: intent("a").ID},
		"payload":         {ID: intent("a").ID, Gateway: gateway, Payload: make([]byte, driver.LongestPayload+1)},
		"NUL":             {ID: idempotency.ID{Key: "a\x00"}, Gateway: gateway},
		"batch not UTF-8": {ID: intent("a").ID, Gateway: gateway, Batch: "\xff"},
		"deadline":        {ID: intent("a").ID, Gateway: gateway, Deadline: time.Now().Add(-time.Second)},
		"never due":       {ID: intent("a").ID, Gateway: gateway, NotBefore: time.Now().Add(time.Hour), Deadline: time.Now().Add(time.Minute)},
		"year":            {ID: intent("a").ID, Gateway: gateway, NotBefore: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if result := k.apply(enqueue(in)); !errors.Is(result.Err, driver.ErrInvalid) {
			k.Errorf("%s: %v, want ErrInvalid", name, result.Err)
		}
	}
	for name, err := range map[string]error{
		"Apply of a claim": second(k.store.Apply(ctx, []driver.Event{event(driver.EventClaim, intent("a").ID)})),
		"Apply of nothing": second(k.store.Apply(ctx, []driver.Event{{}})),
		"Claim of nothing": second(k.store.Claim(ctx, driver.Claim{})),
		"Claim, no limit":  second(k.store.Claim(ctx, driver.Claim{Worker: "w", Lease: 1})),
		"Claim, negative": second(k.store.Claim(ctx, driver.Claim{
			Worker: "w", Lease: 1, Limit: 1, Gateways: map[string]driver.Allowance{gateway: {Limit: -1, PerScope: 1}},
		})),
		"Claim, NUL":      second(k.store.Claim(ctx, claim("\x00"))),
		"Beat, no name":   second(k.store.Heartbeat(ctx, "", time.Second)),
		"Beat backwards":  second(k.store.Heartbeat(ctx, "w", -time.Second)),
		"Find of nothing": second(k.store.Find(ctx, idempotency.ID{})),
		"journal":         second(k.store.Attempts(ctx, idempotency.ID{})),
	} {
		k.failIf(!errors.Is(err, driver.ErrInvalid), "%s: %v, want ErrInvalid", name, err)
	}
	if stats, err := k.store.Stats(ctx); err != nil || len(stats.States) != 0 {
		k.Errorf("something was stored: %+v, %v", stats, err)
	}
}

func second[T any](_ T, err error) error { return err }

// testCanceled calls each verb with a context that has ended.
func (k *kit) testCanceled() {
	in := intent("a")
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	for name, err := range map[string]error{
		"Apply":    second(k.store.Apply(ctx, []driver.Event{enqueue(in)})),
		"Claim":    second(k.store.Claim(ctx, claim("w"))),
		"Beat":     second(k.store.Heartbeat(ctx, "w", time.Second)),
		"Reap":     second(k.store.Reap(ctx, 1)),
		"Find":     second(k.store.Find(ctx, in.ID)),
		"Attempts": second(k.store.Attempts(ctx, in.ID)),
		"Letters":  second(k.store.DeadLetters(ctx, driver.Filter{}, nil, 1)),
		"Stats":    second(k.store.Stats(ctx)),
		"Sweep":    second(k.store.Sweep(ctx, 0, 1)),
	} {
		k.failIf(!errors.Is(err, context.Canceled), "%s: %v, want context.Canceled", name, err)
	}
	k.failIf(k.look(in.ID) != nil, "something was stored")
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
		var receipt driver.Receipt
		err := k.Suite.WithTx(k.T, k.store, func(outbox driver.Outbox) (err error) {
			if receipt, err = outbox.Enqueue(k.ctx(), in); err != nil {
				k.Fatalf("Enqueue: %v", err)
			}
			if again, err := outbox.Enqueue(k.ctx(), in); err != nil || !again.Existing {
				k.Errorf("Enqueue again: %+v, %v", again, err)
			}
			wrong := in
			wrong.Payload = nil
			if _, err := outbox.Enqueue(k.ctx(), wrong); !errors.Is(err, driver.ErrMismatch) {
				k.Errorf("Enqueue of another payload: %v", err)
			}
			if _, err := outbox.Enqueue(k.ctx(), driver.Intent{}); !errors.Is(err, driver.ErrInvalid) {
				k.Errorf("Enqueue of nothing: %v", err)
			}
			if err := outbox.Cancel(k.ctx(), old.ID); err != nil {
				k.Errorf("Cancel: %v", err)
			}
			if err := outbox.Cancel(k.ctx(), intent("no").ID); !errors.Is(err, driver.ErrNotFound) {
				k.Errorf("Cancel of nothing: %v", err)
			}
			return fail
		})
		k.fatalIf(!errors.Is(err, fail), "%s: %v", name, err)
		k.failIf(receipt.ID != in.ID || receipt.Existing || receipt.State != driver.StatePending, "%s: the receipt is %+v", name, receipt)
		if there := k.look(in.ID) != nil; there != (fail == nil) {
			k.Errorf("%s: it is there: %v", name, there)
		}
		one := claim(worker)
		one.ID = &in.ID
		if n := len(k.claim(one)); (n == 1) != (fail == nil) {
			k.Errorf("%s: %d were claimed", name, n)
		}
		if canceled := k.look(old.ID).State == driver.StateCanceled; canceled != (fail == nil) {
			k.Errorf("%s: it is canceled: %v", name, canceled)
		}
	}
}
