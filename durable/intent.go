package durable

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

const (
	// LongestPayload is the maximum size of a payload and of a stored result.
	LongestPayload = 1 << 20

	// maxName is the maximum length of the names of gateways and batches, and of codes,
	// references and reasons, in bytes.
	maxName = 512

	// maxText is the maximum length of a stored error text, in bytes.
	maxText = 1024
)

// Errors of stores and Engines. Find them with errors.Is.
var (
	// ErrInvalid means that an argument or the configuration is invalid. Nothing was changed.
	ErrInvalid = errors.New("durable: invalid")

	// ErrMismatch means that the ID belongs to an intent with another gateway or payload, which
	// is unchanged.
	ErrMismatch = errors.New("durable: the ID is that of another intent")

	// ErrNotFound means that there is no such intent, hold or job.
	ErrNotFound = errors.New("durable: not found")

	// ErrInvalidState means that the intent's state does not permit this. Nothing was changed.
	ErrInvalidState = errors.New("durable: not possible in this state")

	// ErrFenced means that another claim, a reaper or a person has the intent now. Nothing was
	// changed.
	ErrFenced = errors.New("durable: another worker or person has the intent")

	// ErrStale means that the intent has changed since the person saw it. Nothing was
	// changed. Look again and decide anew.
	ErrStale = errors.New("durable: the intent has changed since it was seen")
)

// Intent is a call that must not be lost.
type Intent struct {
	// ID identifies the intent: a second Enqueue finds the first. Its Scope is the tenant.
	// Tenants share the workers evenly.
	idempotency.ID

	// Gateway is the name of the Gateway in Engine.Gateways that sends the intent.
	Gateway string

	// Payload is what the Gateway makes the request of, at most 1 MiB. It is stored and never
	// logged.
	Payload []byte

	// Fingerprint identifies the payload where its bytes differ each time, as encrypted ones do.
	// Two intents of one ID are the same if gateway and fingerprint are equal. "" means a hash
	// of the payload. At most 512 bytes. The intent of a Record does not have it: see
	// Record.Fingerprint.
	Fingerprint idempotency.Fingerprint

	// NotBefore is the earliest time of the first send. Zero means at once. A Record does not have
	// it: see Record.NextAt.
	NotBefore time.Time

	// Deadline is the time from which no send may begin. Then the intent is dead, unless a status
	// query finds that the work was done. Zero means none.
	Deadline time.Time

	// Batch and Row say where the intent came from, such as a file and a row in it. They are
	// optional.
	Batch string
	Row   int
}

// ValidID returns an ErrInvalid that says what is wrong with an ID.
func ValidID(id idempotency.ID) error {
	if err := id.Validate(); err != nil {
		return invalidf("%w", err)
	}
	return nil
}

// Validate returns an ErrInvalid that says what is wrong with the intent.
func (in *Intent) Validate() error {
	if err := ValidID(in.ID); err != nil {
		return err
	}
	switch {
	case in.Gateway == "":
		return invalidf("Intent.Gateway is empty")
	case len(in.Payload) > LongestPayload:
		return invalidf("Intent.Payload has %d bytes, want at most %d", len(in.Payload), LongestPayload)
	case !in.Deadline.IsZero() && !in.NotBefore.IsZero() && !in.NotBefore.Before(in.Deadline):
		return invalidf("Intent.Deadline is not after NotBefore")
	}
	for _, at := range [...]time.Time{in.NotBefore, in.Deadline} {
		if err := validTime(at); err != nil {
			return err
		}
	}
	if err := validateName("gateway", in.Gateway); err != nil {
		return err
	}
	if err := validateName("fingerprint", string(in.Fingerprint)); err != nil {
		return err
	}
	return validateName("batch", in.Batch)
}

// FingerprintOf returns the fingerprint that is stored with the intent: a hash of its
// gateway, and of its own Fingerprint or else its payload.
func FingerprintOf(in *Intent) idempotency.Fingerprint {
	if in.Fingerprint != "" {
		return idempotency.NewFingerprint([]byte(in.Gateway), []byte("own"), []byte(in.Fingerprint))
	}
	return idempotency.NewFingerprint([]byte(in.Gateway), in.Payload)
}

// Receipt is the result of Enqueue.
type Receipt struct {
	// ID is that of the intent.
	ID idempotency.ID

	// State is the state of the intent.
	State State

	// Existing means that the intent was enqueued before.
	Existing bool

	// Revised means that the provider had declined the intent, and that it is sent again with
	// this payload, under a new key.
	Revised bool
}

// validTime returns an ErrInvalid for a time that not all databases can store.
func validTime(at time.Time) error {
	if !at.IsZero() && (at.Year() < 1970 || at.Year() > 9999) {
		return invalidf("the year of a time is %d, want 1970 to 9999", at.Year())
	}
	return nil
}

// validateName returns an ErrInvalid if the name cannot be stored: it is longer than 512 bytes,
// not UTF-8, or has a NUL.
func validateName(what, value string) error {
	switch {
	case len(value) > maxName:
		return invalidf("%s has %d bytes, want at most %d", what, len(value), maxName)
	case !utf8.ValidString(value):
		return invalidf("%s is not UTF-8", what)
	case strings.ContainsRune(value, 0):
		return invalidf("%s contains NUL", what)
	}
	return nil
}

// invalidf returns an ErrInvalid.
func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// fit returns the text as every database stores it: at most so many bytes of UTF-8 without NUL.
// A provider's text must not keep an outcome from being stored.
func fit(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return text
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
