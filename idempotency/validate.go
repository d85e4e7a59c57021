package idempotency

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxName is the maximum length of a scope, operation or key, in bytes. Three of them
// fit into an index entry of each database.
const MaxName = 512

// maxDuration bounds leases and TTLs, so that no database's calendar overflows.
const maxDuration = 10 * 365 * 24 * time.Hour

// ErrInvalid means that an argument or a configuration is invalid: an empty key, a name that is not
// UTF-8, a lease that is not positive. Nothing was changed.
var ErrInvalid = errors.New("idempotency: invalid")

// Validate checks the names of the ID. The error is an ErrInvalid.
func (id *ID) Validate() error {
	if id.Key == "" {
		return fmt.Errorf("%w: key is empty", ErrInvalid)
	}
	for _, name := range [...]struct{ what, value string }{
		{"scope", id.Scope}, {"operation", id.Operation}, {"key", id.Key},
	} {
		if err := validateName(name.what, name.value); err != nil {
			return err
		}
	}
	return nil
}

// validateName checks that value has at most MaxName bytes, is UTF-8 and has no NUL.
// what names it in the error, which is an ErrInvalid.
func validateName(what, value string) error {
	switch {
	case len(value) > MaxName:
		return fmt.Errorf("%w: %s has %d bytes, want at most %d", ErrInvalid, what, len(value), MaxName)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: %s is not UTF-8", ErrInvalid, what)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("%w: %s contains NUL", ErrInvalid, what)
	}
	return nil
}

// Validate checks the claim. The error is an ErrInvalid.
func (c *Claim) Validate() error {
	if err := c.ID.Validate(); err != nil {
		return err
	}
	if c.Owner == "" {
		return fmt.Errorf("%w: owner is empty", ErrInvalid)
	}
	if err := validateName("owner", c.Owner); err != nil {
		return err
	}
	if err := validateName("fingerprint", string(c.Fingerprint)); err != nil {
		return err
	}
	if err := ValidLease(c.Lease); err != nil {
		return err
	}
	if c.Takeover > MarkUnknown {
		return fmt.Errorf("%w: takeover is %d, want at most %d", ErrInvalid, c.Takeover, MarkUnknown)
	}
	return validateDuration("TTL", c.TTL)
}

// Validate checks the outcome. The error is an ErrInvalid.
func (o *Outcome) Validate() error {
	if !o.Status.Finished() && o.Status != Unknown {
		return fmt.Errorf("%w: an execution cannot end with status %v", ErrInvalid, o.Status)
	}
	if o.TTL == 0 {
		return nil
	}
	return validateDuration("TTL", o.TTL)
}

// ValidLease checks the duration of a lease. The error is an ErrInvalid.
func ValidLease(d time.Duration) error { return validateDuration("lease", d) }

func validateDuration(what string, d time.Duration) error {
	if d <= 0 || d > maxDuration {
		return fmt.Errorf("%w: %s is %v, want a positive duration of at most 10 years", ErrInvalid, what, d)
	}
	return nil
}
