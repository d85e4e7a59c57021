package durable

import (
	"errors"
	"net/http"
	"time"
)

// Class is what an Outcome says about the work. Its numbers are stored and never change. The
// zero value is ClassUnknown.
type Class uint8

// The classes of outcomes.
const (
	// ClassUnknown means that the result is unknown: the provider may or may not have done the
	// work.
	ClassUnknown Class = iota

	// ClassSucceeded means that the provider did the work.
	ClassSucceeded

	// ClassDeclined means that the provider did not do the work and declines it under this key.
	// A Policy may send it under a new key.
	ClassDeclined

	// ClassFailed means that this attempt had no effect and that the next may succeed. It says
	// nothing about earlier attempts under the same key. From a Finder it means that the status
	// query got no answer.
	ClassFailed

	// ClassNotFound means that the provider knows no such work. It is a Finder's outcome, and
	// counts VisibilityDelay after the last send. From a Gateway it is ClassUnknown.
	ClassNotFound
)

// String returns the name in lower case, with underscores.
func (c Class) String() string {
	return nameOf(c, "unknown", "succeeded", "declined", "failed", "not_found")
}

// Outcome is the result of a send or of a status query. The zero value means that the result is
// unknown, which is always safe.
type Outcome struct {
	Class Class

	// Code is the provider's code, such as "card_declined" or the advice code "24". The Policy
	// Declines uses it. At most 512 bytes are stored.
	Code string

	// Reference is the provider's name of the work, such as the ID of a charge. At most 512
	// bytes are stored.
	Reference string

	// Status is the HTTP status. Zero means none.
	Status int

	// Result is the provider's answer, stored with a success. Above 1 MiB it is not stored.
	Result []byte

	// NotBefore is the earliest time of the next send, by this process's clock. With the Status 429
	// or 503, it is that of all sends of the gateway: see Engine.Holds.
	NotBefore time.Time

	// Err is the error. At most 1 KiB of its text is stored with the attempt. It is never
	// logged. If it has a method NotSent() bool that returns true, as *resilienthttp.Error has,
	// and the class is ClassFailed or ClassDeclined, then the attempt is not counted.
	Err error
}

// Unsent reports whether nothing was sent: the class is ClassFailed or ClassDeclined, and Err
// says so.
func (o *Outcome) Unsent() bool {
	if !o.undone() {
		return false
	}
	var sender interface{ NotSent() bool }
	return errors.As(o.Err, &sender) && sender.NotSent()
}

// undone reports whether the attempt had no effect.
func (o *Outcome) undone() bool { return o.Class == ClassFailed || o.Class == ClassDeclined }

// keyed reports whether a decline comes from the part of the provider that knows keys. 401,
// 403, 405 and 407 come from checks in front of it, and say nothing about an earlier send.
func (o *Outcome) keyed() bool {
	switch o.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusMethodNotAllowed:
		return false
	default:
		return !o.Unsent()
	}
}

// Fitted returns the outcome as it can be stored.
func (o Outcome) Fitted() Outcome {
	if o.Class > ClassNotFound {
		o.Class = ClassUnknown
	}
	o.Code = fit(o.Code, maxName)
	o.Reference = fit(o.Reference, maxName)
	if len(o.Result) > LongestPayload {
		o.Result = nil
	}
	return o
}

// Text returns the text of the error as it can be stored. "" means that there is none.
func (o *Outcome) Text() string {
	if o.Err == nil {
		return ""
	}
	return fit(errorText(o.Err), maxText)
}

// errorText returns err.Error(), and a fixed text if that panics, as with a nil pointer in the
// interface.
func errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "an error; its Error method panicked"
		}
	}()
	return err.Error()
}
