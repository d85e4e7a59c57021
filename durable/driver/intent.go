package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

const (
	// LongestPayload is the most bytes of a payload, and of a result that is kept.
	LongestPayload = 1 << 20

	// longestName bounds names of gateways and batches, codes, references and
	// reasons, in bytes, as package idempotency bounds those of an ID.
	longestName = 512

	// longestText bounds the text of an error that is kept, in bytes.
	longestText = 1024
)

// What callers and stores are told. They are found with errors.Is.
var (
	// ErrInvalid is about an argument that nothing can be made of. Nothing was
	// changed.
	ErrInvalid = errors.New("durable: invalid")

	// ErrMismatch says that the ID is that of another intent: one with another
	// gateway or payload. That one goes on unchanged.
	ErrMismatch = errors.New("durable: the ID is that of another intent")

	// ErrNotFound says that there is no such intent.
	ErrNotFound = errors.New("durable: no such intent")

	// ErrInvalidState says that the intent is in a state in which this cannot be done to
	// it. Nothing was changed.
	ErrInvalidState = errors.New("durable: not possible in this state")

	// ErrFenced says that the intent has passed on: to another claim, a reaper, a
	// person. What an earlier holder writes changes nothing.
	ErrFenced = errors.New("durable: fenced off")

	// ErrStale means that the intent has changed since the person saw it. Nothing was
	// changed. Look again and decide anew.
	ErrStale = errors.New("durable: the intent has changed since it was seen")
)

// Intent is a call that must not be lost: what is to be sent, by which Gateway.
type Intent struct {
	// ID names the intent. Enqueueing it twice is enqueueing it once. Its Scope is
	// the tenant, among whom the senders are shared out evenly.
	idempotency.ID

	// Gateway is the name of the Gateway in Engine.Gateways that sends it.
	Gateway string

	// Payload is what the Gateway makes the request of, at most 1 MiB. It is stored
	// and never logged.
	Payload []byte

	// Fingerprint identifies the payload where its bytes differ each time, as encrypted ones
	// do. Two intents of one ID are the same if gateway and fingerprint are equal. Default:
	// a hash of the payload. At most 512 bytes. The intent of a Record does not have it:
	// see Record.Fingerprint.
	Fingerprint idempotency.Fingerprint

	// NotBefore is when it may be sent first. Zero: at once. It is not kept: a
	// Record has NextAt.
	NotBefore time.Time

	// Deadline is when a send may begin no more: the intent is dead then, unless
	// somebody knows that it was done. Zero: none.
	Deadline time.Time

	// Batch and Row say where the intent came from, for reports: an import's name
	// and the row in it. They are optional.
	Batch string
	Row   int
}

// Validate says what is wrong with the intent, whatever the time is. The error is
// an ErrInvalid.
func (in *Intent) Validate() error {
	if err := in.ID.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch {
	case in.Gateway == "":
		return fmt.Errorf("%w: the intent names no gateway", ErrInvalid)
	case len(in.Payload) > LongestPayload:
		return fmt.Errorf("%w: the payload has %d bytes, more than %d", ErrInvalid, len(in.Payload), LongestPayload)
	case !in.Deadline.IsZero() && !in.NotBefore.IsZero() && !in.NotBefore.Before(in.Deadline):
		return fmt.Errorf("%w: the deadline is not after NotBefore", ErrInvalid)
	}
	for _, at := range [...]time.Time{in.NotBefore, in.Deadline} {
		if err := validTime(at); err != nil {
			return err
		}
	}
	if err := ValidateName("gateway", in.Gateway); err != nil {
		return err
	}
	if err := ValidateName("fingerprint", string(in.Fingerprint)); err != nil {
		return err
	}
	return ValidateName("batch", in.Batch)
}

// FingerprintOf returns the fingerprint that is stored with the intent: a hash of its
// gateway, and of its own Fingerprint or else its payload.
func FingerprintOf(in *Intent) idempotency.Fingerprint {
	if in.Fingerprint != "" {
		return idempotency.NewFingerprint([]byte(in.Gateway), []byte("own"), []byte(in.Fingerprint))
	}
	return idempotency.NewFingerprint([]byte(in.Gateway), in.Payload)
}

// Receipt is what came of enqueueing.
type Receipt struct {
	// ID is the intent's.
	ID idempotency.ID

	// State is where the intent stands.
	State State

	// Existing: it was there before. Another payload is then an ErrMismatch, unless
	// the intent is Revised.
	Existing bool

	// Revised: it was dead by a refusal, and has come back with a payload that was
	// mended. It is sent under a new key.
	Revised bool
}

// validTime returns an ErrInvalid for a time that not all databases can store.
func validTime(at time.Time) error {
	if !at.IsZero() && (at.Year() < 1970 || at.Year() > 9999) {
		return Invalidf("a time in the year %d", at.Year())
	}
	return nil
}

func ValidateName(what, value string) error {
	switch {
	case len(value) > longestName:
		return fmt.Errorf("%w: the name of the %s has %d bytes, more than %d", ErrInvalid, what, len(value), longestName)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: the name of the %s is not UTF-8", ErrInvalid, what)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("%w: the name of the %s has a NUL in it", ErrInvalid, what)
	}
	return nil
}

// Invalidf is an ErrInvalid.
func Invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// fit makes any text one that every database stores: no more than most bytes, UTF-8,
// no NUL. A gateway's words must not be what keeps its outcome from being stored.
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
