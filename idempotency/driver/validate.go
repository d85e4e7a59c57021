package driver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxName bounds scope, operation and key in a store, in bytes. Three of
// them fit into an index entry of every database.
const MaxName = 512

// longestLease bounds leases and times to live. It keeps every database's
// calendar from overflowing.
const longestLease = 10 * 365 * 24 * time.Hour

// ErrInvalid is about an argument that no store accepts: an empty key, a name
// that is not UTF-8, a lease that is not positive. Nothing was changed.
var ErrInvalid = errors.New("idempotency: invalid")

// Validate says what is wrong with the id: an empty key, or a name longer than
// 512 bytes, with a NUL, or not UTF-8. The error is an ErrInvalid.
func (id *ID) Validate() error {
	if id.Key == "" {
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	}
	for _, name := range [...]struct{ what, value string }{
		{"scope", id.Scope}, {"operation", id.Operation}, {"key", id.Key},
	} {
		if err := ValidateName(name.what, name.value); err != nil {
			return err
		}
	}
	return nil
}

func ValidateName(what, value string) error {
	switch {
	case len(value) > MaxName:
		return fmt.Errorf("%w: the %s has %d bytes, more than %d", ErrInvalid, what, len(value), MaxName)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, what)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("%w: the %s has a NUL in it", ErrInvalid, what)
	}
	return nil
}

// Validate says what is wrong with the claim. The error is an ErrInvalid.
func (c *Claim) Validate() error {
	if err := c.ID.Validate(); err != nil {
		return err
	}
	if c.Owner == "" {
		return fmt.Errorf("%w: the claim has no owner", ErrInvalid)
	}
	if err := ValidateName("owner", c.Owner); err != nil {
		return err
	}
	if err := ValidateName("fingerprint", string(c.Fingerprint)); err != nil {
		return err
	}
	if err := validDuration("lease", c.Lease); err != nil {
		return err
	}
	if c.Takeover > MarkUnknown {
		return fmt.Errorf("%w: no takeover policy has number %d", ErrInvalid, c.Takeover)
	}
	return validDuration("time to live", c.TTL)
}

// Validate says what is wrong with the outcome. The error is an ErrInvalid.
func (o *Outcome) Validate() error {
	if !o.Status.completable() {
		return fmt.Errorf("%w: an execution does not end as %v", ErrInvalid, o.Status)
	}
	if o.TTL == 0 {
		return nil
	}
	return validDuration("time to live", o.TTL)
}

// ValidLease says what is wrong with d as the length of a lease. The error is an
// ErrInvalid.
func ValidLease(d time.Duration) error { return validDuration("lease", d) }

func validDuration(what string, d time.Duration) error {
	if d <= 0 || d > longestLease {
		return fmt.Errorf("%w: a %s of %v", ErrInvalid, what, d)
	}
	return nil
}

// NewOwner makes an execution's id: 130 random bits.
func NewOwner() string { return rand.Text() }
