package idempotency_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

const tenYears = 10 * 365 * 24 * time.Hour

func validClaim() idempotency.Claim {
	return idempotency.Claim{
		ID:          idempotency.ID{Scope: "tenant", Operation: "POST /charges", Key: "k"},
		Fingerprint: "v1:a", Owner: "me", Lease: time.Second, TTL: time.Hour,
	}
}

// invalid checks the text of an error: no error if says is "".
func invalid(t *testing.T, err error, says string) {
	t.Helper()
	if says == "" {
		assert.NoError(t, err)
		return
	}
	assert.ErrorIs(t, err, idempotency.ErrInvalid)
	assert.EqualError(t, err, "idempotency: invalid: "+says)
}

func TestClaimValidate(t *testing.T) {
	x := strings.Repeat("x", 512)
	for _, row := range []struct {
		name   string
		change func(*idempotency.Claim)
		says   string
	}{
		{"as it is", func(*idempotency.Claim) {}, ""},
		{"names of 512 bytes", func(c *idempotency.Claim) {
			c.Scope, c.Operation, c.Key, c.Owner, c.Fingerprint = x, x, x, x, idempotency.Fingerprint(x)
		}, ""},
		{"no scope and no operation", func(c *idempotency.Claim) { c.Scope, c.Operation = "", "" }, ""},
		{"no fingerprint", func(c *idempotency.Claim) { c.Fingerprint = "" }, ""},
		{"control characters", func(c *idempotency.Claim) { c.Key = "\x01\n\x7f\u0080\ufffd" }, ""},
		{"the longest lease and TTL", func(c *idempotency.Claim) { c.Lease, c.TTL = tenYears, tenYears }, ""},
		{"the shortest lease and TTL", func(c *idempotency.Claim) { c.Lease, c.TTL = 1, 1 }, ""},

		{"no key", func(c *idempotency.Claim) { c.Key = "" }, "key is empty"},
		{"key too long", func(c *idempotency.Claim) { c.Key = x + "x" }, "key has 513 bytes, want at most 512"},
		{"operation too long", func(c *idempotency.Claim) { c.Operation = x + "x" }, "operation has 513 bytes, want at most 512"},
		{"scope too long, in bytes", func(c *idempotency.Claim) { c.Scope = strings.Repeat("é", 257) }, "scope has 514 bytes, want at most 512"},
		{"NUL in the key", func(c *idempotency.Claim) { c.Key = "a\x00b" }, "key contains NUL"},
		{"NUL in the operation", func(c *idempotency.Claim) { c.Operation = "\x00" }, "operation contains NUL"},
		{"NUL in the scope", func(c *idempotency.Claim) { c.Scope = "a\x00" }, "scope contains NUL"},
		{"key not UTF-8", func(c *idempotency.Claim) { c.Key = "\xff" }, "key is not UTF-8"},
		{"operation not UTF-8", func(c *idempotency.Claim) { c.Operation = "\xc3" }, "operation is not UTF-8"},
		{"scope of a surrogate", func(c *idempotency.Claim) { c.Scope = "\xed\xa0\x80" }, "scope is not UTF-8"},
		{"no owner", func(c *idempotency.Claim) { c.Owner = "" }, "owner is empty"},
		{"owner too long", func(c *idempotency.Claim) { c.Owner = x + "x" }, "owner has 513 bytes, want at most 512"},
		{"owner not UTF-8", func(c *idempotency.Claim) { c.Owner = "\xff" }, "owner is not UTF-8"},
		{"NUL in the owner", func(c *idempotency.Claim) { c.Owner = "\x00" }, "owner contains NUL"},
		{"fingerprint too long", func(c *idempotency.Claim) { c.Fingerprint = idempotency.Fingerprint(x + "x") }, "fingerprint has 513 bytes, want at most 512"},
		{"fingerprint not UTF-8", func(c *idempotency.Claim) { c.Fingerprint = "\xff" }, "fingerprint is not UTF-8"},
		{"NUL in the fingerprint", func(c *idempotency.Claim) { c.Fingerprint = "\x00" }, "fingerprint contains NUL"},
		{"no lease", func(c *idempotency.Claim) { c.Lease = 0 }, "lease is 0s, want a positive duration of at most 10 years"},
		{"negative lease", func(c *idempotency.Claim) { c.Lease = -1 }, "lease is -1ns, want a positive duration of at most 10 years"},
		{"lease too long", func(c *idempotency.Claim) { c.Lease = tenYears + 1 }, "lease is 87600h0m0.000000001s, want a positive duration of at most 10 years"},
		{"no TTL", func(c *idempotency.Claim) { c.TTL = 0 }, "TTL is 0s, want a positive duration of at most 10 years"},
		{"negative TTL", func(c *idempotency.Claim) { c.TTL = -1 }, "TTL is -1ns, want a positive duration of at most 10 years"},
		{"TTL too long", func(c *idempotency.Claim) { c.TTL = tenYears + 1 }, "TTL is 87600h0m0.000000001s, want a positive duration of at most 10 years"},
		{"no such takeover", func(c *idempotency.Claim) { c.Takeover = idempotency.MarkUnknown + 1 }, "takeover is 4, want at most 3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			claim := validClaim()
			row.change(&claim)
			invalid(t, claim.Validate(), row.says)
		})
	}
}

// TestValidateQuotesNothing: keys may be secrets, and errors are logged.
func TestValidateQuotesNothing(t *testing.T) {
	const secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
	for _, id := range []idempotency.ID{
		{Scope: secret + "\xff", Key: "k"}, {Operation: secret + "\x00", Key: "k"}, {Key: strings.Repeat(secret, 20)},
	} {
		err := id.Validate()
		assert.ErrorIs(t, err, idempotency.ErrInvalid)
		assert.NotContains(t, err.Error(), "sk_live")
	}
}

func TestOutcomeValidate(t *testing.T) {
	for _, row := range []struct {
		name    string
		outcome idempotency.Outcome
		says    string
	}{
		{"completed", idempotency.Outcome{Status: idempotency.Completed}, ""},
		{"failed final", idempotency.Outcome{Status: idempotency.FailedFinal, TTL: tenYears}, ""},
		{"completed unreplayable", idempotency.Outcome{Status: idempotency.CompletedUnreplayable, TTL: 1}, ""},
		{"unknown", idempotency.Outcome{Status: idempotency.Unknown}, ""},
		{"no status", idempotency.Outcome{}, "an execution cannot end with status invalid"},
		{"in progress", idempotency.Outcome{Status: idempotency.StatusInProgress}, "an execution cannot end with status in_progress"},
		{"failed retryable", idempotency.Outcome{Status: idempotency.FailedRetryable}, "an execution cannot end with status failed_retryable"},
		{"no such status", idempotency.Outcome{Status: idempotency.Unknown + 1}, "an execution cannot end with status invalid"},
		{"negative TTL", idempotency.Outcome{Status: idempotency.Completed, TTL: -1}, "TTL is -1ns, want a positive duration of at most 10 years"},
		{"TTL too long", idempotency.Outcome{Status: idempotency.Completed, TTL: tenYears + 1}, "TTL is 87600h0m0.000000001s, want a positive duration of at most 10 years"},
	} {
		t.Run(row.name, func(t *testing.T) { invalid(t, row.outcome.Validate(), row.says) })
	}
}
