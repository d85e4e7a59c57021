package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// attempt is a call that must fail.
type attempt struct {
	name string
	do   func(ctx context.Context) error
}

// invalid returns calls with an invalid argument. lease is right.
func (k *kit) invalid(lease driver.Lease) []attempt {
	const tooLong = 11 * 365 * 24 * time.Hour
	all := k.invalidIDs(lease)
	claim := func(name string, change func(*driver.Claim)) {
		claim := k.claim(lease.ID)
		change(&claim)
		for _, call := range k.claimCalls(claim) {
			all = append(all, attempt{call.name + " with " + name, call.do})
		}
	}
	claim("no owner", func(c *driver.Claim) { c.Owner = "" })
	claim("a NUL in the owner", func(c *driver.Claim) { c.Owner = "a\x00" })
	claim("an owner that is not UTF-8", func(c *driver.Claim) { c.Owner = "\xff" })
	claim("an owner of 513 bytes", func(c *driver.Claim) { c.Owner = strings.Repeat("x", 513) })
	claim("a NUL in the fingerprint", func(c *driver.Claim) { c.Fingerprint = "v1:\x00" })
	claim("a fingerprint that is not UTF-8", func(c *driver.Claim) { c.Fingerprint = "v1:\xff" })
	claim("a fingerprint of 513 bytes", func(c *driver.Claim) { c.Fingerprint = driver.Fingerprint(strings.Repeat("x", 513)) })
	claim("no lease", func(c *driver.Claim) { c.Lease = 0 })
	claim("a negative lease", func(c *driver.Claim) { c.Lease = -time.Second })
	claim("a lease of eleven years", func(c *driver.Claim) { c.Lease = tooLong })
	claim("no TTL", func(c *driver.Claim) { c.TTL = 0 })
	claim("a negative TTL", func(c *driver.Claim) { c.TTL = -time.Second })
	claim("a TTL of eleven years", func(c *driver.Claim) { c.TTL = tooLong })
	claim("an unknown takeover", func(c *driver.Claim) { c.Takeover = 255 })

	for name, d := range map[string]time.Duration{"no lease": 0, "a negative lease": -time.Second, "a lease of eleven years": tooLong} {
		all = append(all, attempt{"Renew with " + name, func(ctx context.Context) error { return k.store.Renew(ctx, lease, d) }})
	}
	for name, outcome := range map[string]driver.Outcome{
		"no status":              {},
		"as in_progress":         {Status: driver.InProgress},
		"as failed_retryable":    {Status: driver.FailedRetryable},
		"as a status of 255":     {Status: 255},
		"with a negative TTL":    {Status: driver.Completed, TTL: -time.Second},
		"with a TTL of 11 years": {Status: driver.Completed, TTL: tooLong},
	} {
		all = append(all, attempt{"Complete " + name, func(ctx context.Context) error { return k.store.Complete(ctx, lease, outcome) }})
	}
	return all
}

func (k *kit) invalidIDs(lease driver.Lease) []attempt {
	var all []attempt
	for _, row := range []struct {
		name   string
		change func(*driver.ID)
	}{
		{"no key", func(id *driver.ID) { id.Key = "" }},
		{"a NUL in the key", func(id *driver.ID) { id.Key += "\x00" }},
		{"a NUL in the operation", func(id *driver.ID) { id.Operation += "\x00" }},
		{"a NUL in the scope", func(id *driver.ID) { id.Scope += "\x00" }},
		{"a key that is not UTF-8", func(id *driver.ID) { id.Key += "\xff" }},
		{"an operation that is not UTF-8", func(id *driver.ID) { id.Operation += "\xc3" }},
		{"a scope that is not UTF-8", func(id *driver.ID) { id.Scope += "\xed\xa0\x80" }},
		{"a key of 513 bytes", func(id *driver.ID) { id.Key = strings.Repeat("x", 513) }},
		{"an operation of 513 bytes", func(id *driver.ID) { id.Operation = strings.Repeat("é", 257) }},
		{"a scope of 513 bytes", func(id *driver.ID) { id.Scope = strings.Repeat("x", 513) }},
		{"a key of a million bytes", func(id *driver.ID) { id.Key = strings.Repeat("x", 1e6) }},
	} {
		wrong := lease
		row.change(&wrong.ID)
		for _, call := range k.calls(wrong) {
			all = append(all, attempt{call.name + " with " + row.name, call.do})
		}
	}
	return all
}

// calls returns a call of each operation that names a record.
func (k *kit) calls(lease driver.Lease) []attempt {
	return append(k.claimCalls(k.claim(lease.ID)), []attempt{
		{"Renew", func(ctx context.Context) error { return k.store.Renew(ctx, lease, time.Minute) }},
		{"Complete", func(ctx context.Context) error {
			return k.store.Complete(ctx, lease, driver.Outcome{Status: driver.Completed, Result: answer()})
		}},
		{"Release", func(ctx context.Context) error { return k.store.Release(ctx, lease) }},
		{"Load", func(ctx context.Context) error {
			_, err := k.store.Load(ctx, lease.ID)
			return err
		}},
	}...)
}

// claimCalls returns a call of each operation that claims.
func (k *kit) claimCalls(claim driver.Claim) []attempt {
	all := []attempt{{"Reserve", func(ctx context.Context) error {
		_, err := k.store.Reserve(ctx, claim)
		return err
	}}}
	if transactor, ok := k.store.(driver.Transactor); ok {
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
func (k *kit) testInvalid(t *testing.T) {
	lease := k.acquire(t, k.short(k.id()))
	k.lapse(t)
	before := k.load(t, lease.ID)
	for _, call := range k.invalid(lease) {
		t.Run(call.name, func(t *testing.T) {
			wantError(t, call.name, call.do(patient(t)), driver.ErrInvalid)
			k.unchanged(t, before, lease.ID)
		})
	}
}

// testCancelled makes calls with a context that has ended. They change nothing.
func (k *kit) testCancelled(t *testing.T) {
	lease := k.acquire(t, k.mortal(k.id()))
	absent := k.claim(k.id())
	expired := k.acquire(t, k.claim(k.id()))
	k.complete(t, expired, driver.Outcome{Status: driver.Completed, TTL: blink})
	k.lapse(t)
	before := k.load(t, lease.ID)

	all := append(k.calls(lease),
		attempt{"Reserve of a new key", func(ctx context.Context) error {
			_, err := k.store.Reserve(ctx, absent)
			return err
		}},
		attempt{"Reap", func(ctx context.Context) error {
			all, err := k.store.Reap(ctx, 1000)
			equal(t, "reaped records", len(all), 0)
			return err
		}},
		attempt{"Sweep", func(ctx context.Context) error {
			n, err := k.store.Sweep(ctx, 1000)
			equal(t, "swept records", n, 0)
			return err
		}})
	for _, call := range all {
		t.Run(call.name, func(t *testing.T) {
			wantError(t, call.name, call.do(ended(t)), context.Canceled)
			k.unchanged(t, before, lease.ID)
			k.unchanged(t, driver.Record{}, absent.ID)
		})
	}
	// An expired record that exists passes on its generation.
	equal(t, "generation after a cancelled Sweep", k.acquire(t, k.claim(expired.ID)).Generation, expired.Generation+1)
}
