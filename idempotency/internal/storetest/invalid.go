package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
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
	for name, value := range map[string]string{"NUL": "v1:\x00", "bytes that are not UTF-8": "v1:\xff", "513 bytes": strings.Repeat("x", 513)} {
		claim("an owner of "+name, func(c *driver.Claim) { c.Owner = value })
		claim("a fingerprint of "+name, func(c *driver.Claim) { c.Fingerprint = driver.Fingerprint(value) })
	}
	claim("an unknown takeover", func(c *driver.Claim) { c.Takeover = 255 })

	for _, d := range []time.Duration{0, -time.Second, tooLong} {
		all = append(all, attempt{"Renew with a lease of " + d.String(), func(ctx context.Context) error { return k.store.Renew(ctx, lease, d) }})
		claim("a lease of "+d.String(), func(c *driver.Claim) { c.Lease = d })
		claim("a TTL of "+d.String(), func(c *driver.Claim) { c.TTL = d })
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
	add := func(name string, id driver.ID) {
		wrong := lease
		wrong.ID = id
		for _, call := range k.calls(wrong) {
			all = append(all, attempt{call.name + " with " + name, call.do})
		}
	}
	add("no key", driver.ID{Scope: lease.Scope, Operation: lease.Operation})
	for name, value := range map[string]string{
		"NUL": "a\x00", "bytes that are not UTF-8": "a\xff", "the beginning of a character": "a\xc3", "a surrogate": "\xed\xa0\x80",
		"513 bytes": strings.Repeat("x", 513), "257 characters of 2 bytes": strings.Repeat("é", 257), "a million bytes": strings.Repeat("x", 1e6),
	} {
		add("a scope of "+name, driver.ID{Scope: value, Operation: lease.Operation, Key: lease.Key})
		add("an operation of "+name, driver.ID{Scope: lease.Scope, Operation: value, Key: lease.Key})
		add("a key of "+name, driver.ID{Scope: lease.Scope, Operation: lease.Operation, Key: value})
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

// testCanceled makes calls with a context that has ended. They change nothing.
func (k *kit) testCanceled(t *testing.T) {
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
	equal(t, "generation after a canceled Sweep", k.acquire(t, k.claim(expired.ID)).Generation, expired.Generation+1)
}
