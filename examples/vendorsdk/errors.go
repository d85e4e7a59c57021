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

// ErrDeclined means that the card's bank declined the payment. A retry does not help. Another card
// may.
var ErrDeclined = errors.New("card declined")

// Error is a response that is not a success: a problem (RFC 9457) of the API, or the response of
// a proxy.
type Error struct {
	Status    int       // HTTP status
	Code      string    // for programs, such as "insufficient_funds"; may be ""
	Title     string    // for people
	Detail    string    // about this request
	RequestID string    // for the vendor's support
	Attempts  int       // number of attempts
	NotBefore time.Time // when to call again; zero if the API did not say

	inDoubt   bool // the charge may be made, by an attempt that has no response
	retryable bool // by the Transport's verdict
}

// Error returns the status, the title, the code and the RequestID.
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

// Is reports whether target is ErrDeclined and the API declined the card. A decline in doubt is none: with
// another card, the customer could pay twice.
func (e *Error) Is(target error) bool {
	return target == ErrDeclined && e.Status == http.StatusPaymentRequired && !e.inDoubt
}

// errUnreadable means that a successful response could not be read.
var errUnreadable = errors.New("unreadable response")

// CallAgain reports whether to repeat the call with the same IdempotencyKey, and when (zero: at any
// time). ok is true if the result is unknown or the failure is transient: a lost or unreadable
// response, an API that is down or overloaded, a canceled call. ok is false if the API has
// decided, for example ErrDeclined, and for permanent failures, for example an invalid certificate.
func CallAgain(err error) (notBefore time.Time, ok bool) {
	var (
		response   *Error
		noResponse *resilienthttp.Error
	)
	switch {
	case errors.As(err, &response):
		return response.NotBefore, response.retryable || response.inDoubt
	case errors.As(err, &noResponse):
		// Without a Reason the failure is permanent, unless the caller canceled the call.
		return noResponse.NotBefore, noResponse.Reason != nil || errors.Is(err, context.Canceled)
	}
	return time.Time{}, errors.Is(err, errUnreadable)
}

// problem is the body of an error.
type problem struct{ Title, Code, Detail string }

// problemIn decodes the body of an error. An invalid body is an empty problem, because it must not
// hide the status.
func problemIn(body []byte) (p problem) {
	if json.Unmarshal(body, &p) != nil {
		return problem{}
	}
	return p
}

// byCode classifies the error codes that mean more than their status.
func byCode(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	switch problemIn(body).Code {
	case "request_in_progress": // 409: the first request with this key is not finished
		return resilienthttp.VerdictTransient
	case "monthly_limit": // 429: a wait does not help
		return resilienthttp.VerdictPermanent
	}
	return resilienthttp.VerdictDefault
}

// newError returns the Error of a response that is not a success.
func newError(resp *http.Response, p problem) *Error {
	e := &Error{
		Status: resp.StatusCode, RequestID: resp.Header.Get("Request-Id"),
		Title: cmp.Or(p.Title, http.StatusText(resp.StatusCode)), Code: p.Code, Detail: p.Detail,
	}
	attempts := resilienthttp.Attempts(resp)
	e.Attempts = len(attempts)
	if n := len(attempts); n > 0 {
		v := attempts[n-1].Verdict
		e.retryable = v == resilienthttp.VerdictTransient || v == resilienthttp.VerdictThrottled
	}
	e.NotBefore = resilienthttp.NotBefore(resp, nil)
	e.inDoubt = resilienthttp.InDoubt(resp, nil)
	return e
}
