package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// attempt is a call that must fail.
type attempt struct {
	name string
	do   func(ctx context.Context) error
}

// invalid returns calls with an invalid argument, one of each kind: package idempotency tests what else is invalid. lease is right.
func (k *kit) invalid(lease idempotency.Lease) []attempt {
	var all []attempt
	add := func(with string, calls []attempt) {
		for _, call := range calls {
			all = append(all, attempt{call.name + " with " + with, call.do})
		}
	}
	for name, change := range map[string]func(*idempotency.Claim){
		"no owner":               func(c *idempotency.Claim) { c.Owner = "" },
		"an owner with NUL":      func(c *idempotency.Claim) { c.Owner = "a\x00" },
		"a fingerprint with NUL": func(c *idempotency.Claim) { c.Fingerprint = "v1:\x00" },
		"an unknown takeover":    func(c *idempotency.Claim) { c.Takeover = 255 },
		"no lease":               func(c *idempotency.Claim) { c.Lease = 0 },
		"a negative TTL":         func(c *idempotency.Claim) { c.TTL = -time.Second },
	} {
		claim := k.claim(lease.ID)
		change(&claim)
		add(name, k.claimCalls(claim))
	}
	for name, id := range map[string]idempotency.ID{
		"no key":                   {Scope: lease.Scope, Operation: lease.Operation},
		"NUL in the scope":         {Scope: "a\x00", Operation: lease.Operation, Key: lease.Key},
		"half a character":         {Scope: lease.Scope, Operation: "a\xc3", Key: lease.Key},
		"a key of 513 bytes":       {Scope: lease.Scope, Operation: lease.Operation, Key: strings.Repeat("x", 513)},
		"a key of a million bytes": {Scope: lease.Scope, Operation: lease.Operation, Key: strings.Repeat("x", 1e6)},
	} {
		wrong := lease
		wrong.ID = id
		add(name, k.calls(wrong))
	}
	const tooLong = 11 * 365 * 24 * time.Hour
	for _, d := range []time.Duration{0, tooLong} {
		add("a lease of "+d.String(), []attempt{{"Renew", func(ctx context.Context) error { return k.store.Renew(ctx, lease, d) }}})
	}
	for name, outcome := range map[string]idempotency.Outcome{
		"in_progress": {Status: idempotency.StatusInProgress}, "a negative TTL": {Status: idempotency.Completed, TTL: -time.Second},
	} {
		add(name, []attempt{{"Complete", func(ctx context.Context) error { return k.store.Complete(ctx, lease, outcome) }}})
	}
	return all
}

// calls returns a call of each operation that names a record.
func (k *kit) calls(lease idempotency.Lease) []attempt {
	all := append(k.claimCalls(k.claim(lease.ID)), attempt{"Load", func(ctx context.Context) error { return ignored(k.store.Load(ctx, lease.ID)) }})
	for _, o := range operations() {
		all = append(all, attempt{o.name, func(ctx context.Context) error { return o.do(ctx, k.store, lease) }})
	}
	return all
}

// claimCalls returns a call of each operation that claims.
func (k *kit) claimCalls(claim idempotency.Claim) []attempt {
	all := []attempt{{"Reserve", func(ctx context.Context) error { return ignored(k.store.Reserve(ctx, claim)) }}}
	if transactor, ok := k.store.(idempotency.Transactor); ok {
		all = append(all, attempt{"Begin", func(ctx context.Context) error {
			_, tx, err := transactor.Begin(ctx, claim, 0)
			if tx != nil {
				_ = tx.Rollback(context.WithoutCancel(ctx))
			}
			return err
		}})
	}
	return all
}

// testInvalid makes calls that change nothing and fail with ErrInvalid. The lease of the
// record is right, and has ended.
func (k *kit) testInvalid() {
	lease := k.begin(blink, time.Hour, idempotency.Reexecute)
	k.lapse()
	before := k.load(lease.ID)
	for _, call := range k.invalid(lease) {
		k.test(call.name, func(k *kit) {
			require.ErrorIs(k, call.do(k.patient()), idempotency.ErrInvalid)
			k.unchanged(before, lease.ID)
		})
	}
}

// testCanceled makes calls with a context that has ended. They change nothing.
func (k *kit) testCanceled() {
	lease, absent := k.begin(blink, time.Hour, 0), k.id()
	expired := k.begin(time.Hour, blink, 0)
	k.release(expired)
	k.lapse()
	before := k.load(lease.ID)
	all := append(k.calls(lease), k.claimCalls(k.claim(absent))...)
	all = append(all,
		attempt{"Reap", func(ctx context.Context) error {
			all, err := k.store.Reap(ctx, 1000)
			assert.Empty(k, all)
			return err
		}},
		attempt{"Sweep", func(ctx context.Context) error {
			n, err := k.store.Sweep(ctx, 1000)
			assert.Zero(k, n)
			return err
		}})
	for _, call := range all {
		k.test(call.name, func(k *kit) {
			require.ErrorIs(k, call.do(k.ended()), context.Canceled)
			k.unchanged(before, lease.ID)
			k.unchanged(idempotency.Record{}, absent)
		})
	}
	// An expired record that exists passes on its generation.
	assert.Equal(k, expired.Generation+1, k.acquire(k.claim(expired.ID)).Generation, "after a canceled Sweep")
}
