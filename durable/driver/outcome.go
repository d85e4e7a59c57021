package driver

import (
	"errors"
	"net/http"
	"time"
)

// Class is what an Outcome says of the work. Its numbers are stored, and never
// change. The zero value is the one that claims nothing.
type Class uint8

// The classes of outcomes.
const (
	// ClassUnknown: nobody knows whether it was done.
	ClassUnknown Class = iota

	// ClassSucceeded: it was done.
	ClassSucceeded

	// ClassDeclined: it was surely not done, and the other side has said so for good
	// under this key. A Policy may send it again under another.
	ClassDeclined

	// ClassFailed: this attempt has surely done nothing, and the next may succeed. Of
	// attempts before it under the same key it says nothing. A Finder says by it, as by
	// ClassUnknown, that its question was not answered.
	ClassFailed

	// ClassNotFound: the other side knows of no such work. A Finder's word, which
	// counts only once VisibilityDelay has passed since the last send; of a Gateway it
	// counts as ClassUnknown.
	ClassNotFound
)

const classes = int(ClassNotFound) + 1

// String is the name in lower case with underscores.
func (c Class) String() string {
	if int(c) >= classes {
		return "invalid"
	}
	return [classes]string{"unknown", "succeeded", "declined", "failed", "not_found"}[c]
}

// Outcome is how a send or a question ended. The zero value says that nobody
// knows, which is always safe.
type Outcome struct {
	Class Class

	// Code is the other side's word for what it met, "card_declined" or an advice
	// code such as "24"; Declines looks at it. At most 512 bytes are kept.
	Code string

	// Reference is the other side's name of what was done, such as a charge's id. At
	// most 512 bytes are kept.
	Reference string

	// Status is the HTTP status, 0 where there is none.
	Status int

	// Result is what was answered, if it is to be kept. One above 1 MiB is not.
	Result []byte

	// NotBefore is when to try again at the earliest, by this process's clock.
	NotBefore time.Time

	// Err is what went wrong. At most 1 KiB of its text is kept with the attempt; it
	// is never logged. When it has a method NotSent() bool that reports true, as that
	// of a *resilienthttp.Error, and the class is ClassFailed or ClassDeclined, the attempt
	// is not counted, and says nothing of those before it.
	Err error
}

// Unsent reports whether provably nothing was sent: the class is ClassFailed or
// ClassDeclined, and the error says so.
func (o *Outcome) Unsent() bool {
	if !o.undone() {
		return false
	}
	var sender interface{ NotSent() bool }
	return errors.As(o.Err, &sender) && sender.NotSent()
}

// undone reports whether the attempt has surely done nothing.
func (o *Outcome) undone() bool { return o.Class == ClassFailed || o.Class == ClassDeclined }

// keyed reports whether a refusal comes, as far as one can see, from where keys are
// known. What asks who one is, or what one may do, stands before that: 401, 403 and
// 407 say nothing of a send before this one, and 405 does not either.
func (o *Outcome) keyed() bool {
	switch o.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusMethodNotAllowed:
		return false
	default:
		return !o.Unsent()
	}
}

// Fitted is the outcome as it can be stored.
func (o Outcome) Fitted() Outcome {
	if int(o.Class) >= classes {
		o.Class = ClassUnknown
	}
	o.Code = fit(o.Code, longestName)
	o.Reference = fit(o.Reference, longestName)
	if len(o.Result) > LongestPayload {
		o.Result = nil
	}
	return o
}

// text is the error's, as it can be stored.
func (o *Outcome) text() string {
	if o.Err == nil {
		return ""
	}
	return fit(ErrorText(o.Err), longestText)
}

// ErrorText is err.Error(), also where that panics: a nil pointer in an interface
// is somebody's mistake, and must not be what loses an outcome.
func ErrorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "an error whose text cannot be had"
		}
	}()
	return err.Error()
}
