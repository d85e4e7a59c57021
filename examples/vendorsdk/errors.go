package vendorsdk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// ErrDeclined says that the card's bank does not want to pay. Asking again does
// not help; another card may.
var ErrDeclined = errors.New("card declined")

// Error is an answer of the API that is not a success: a problem (RFC 9457), or
// what a proxy on the way said instead.
type Error struct {
	Status    int       // of HTTP
	Code      string    // what programs may look at, such as "insufficient_funds"; "" if there was none
	Title     string    // what people may look at
	Detail    string    // about this very case
	RequestID string    // to be quoted to the vendor's support
	Attempts  int       // that were made
	NotBefore time.Time // when to ask again; zero if the API did not say

	mayPass bool // by the Transport's verdict
}

// Error tells what the API said, and the RequestID.
func (e *Error) Error() string {
	text := fmt.Sprintf("vendorsdk: %d %s", e.Status, e.Title)
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	if e.RequestID != "" {
		text += ", request " + e.RequestID
	}
	return text
}

// Is makes errors.Is find ErrDeclined.
func (e *Error) Is(target error) bool {
	return target == ErrDeclined && e.Status == http.StatusPaymentRequired
}

// errUnreadable marks answers of success that could not be read: it was done, but
// what exactly?
var errUnreadable = errors.New("unreadable response")

// AskAgain tells whether the same call, with the same IdempotencyKey, can still
// come to a better end, and if so, not before when (zero: nothing is known). It is
// true for whatever leaves open whether the work was done: a lost or unreadable
// answer, an API that is down or overloaded, a caller who did not wait. It is
// false for what the API has decided, such as ErrDeclined, and for what will fail
// again, such as a bad certificate.
func AskAgain(err error) (notBefore time.Time, worthIt bool) {
	var (
		answered *Error
		failed   *resilienthttp.Error
	)
	switch {
	case errors.As(err, &answered):
		return answered.NotBefore, answered.mayPass
	case errors.As(err, &failed):
		// Without a Reason it failed for good, unless the caller did not wait.
		return failed.NotBefore, failed.Reason != nil || errors.Is(err, context.Canceled)
	}
	return time.Time{}, errors.Is(err, errUnreadable)
}

// problem is what the API says of a failure.
type problem struct{ Title, Code, Detail string }

// problemIn reads a body. What is not to be read is not there: a broken error message must
// not hide the error.
func problemIn(body []byte) (p problem) {
	if json.Unmarshal(body, &p) != nil {
		return problem{}
	}
	return p
}

// byCode is the API's codes that say more than their status; the rest is as the
// Transport's table has it.
func byCode(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	switch problemIn(body).Code {
	case "request_in_progress": // a 409: the first one under this key is still at work
		return resilienthttp.VerdictTransient
	case "monthly_limit": // a 429 that no waiting brings back
		return resilienthttp.VerdictPermanent
	}
	return resilienthttp.VerdictDefault
}

// newError is an answer that is not a success, and what the API says of it.
func newError(resp *http.Response, p problem) *Error {
	e := &Error{
		Status: resp.StatusCode, RequestID: resp.Header.Get("Request-Id"),
		Title: cmp.Or(p.Title, http.StatusText(resp.StatusCode)), Code: p.Code, Detail: p.Detail,
	}
	attempts := resilienthttp.Attempts(resp)
	e.Attempts = len(attempts)
	if n := len(attempts); n > 0 {
		v := attempts[n-1].Verdict
		e.mayPass = v == resilienthttp.VerdictTransient || v == resilienthttp.VerdictThrottled
	}
	e.NotBefore = resilienthttp.NotBefore(resp, nil)
	return e
}
