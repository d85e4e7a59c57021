package vendorsdk

import (
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
		switch status := answered.Status; {
		case status == http.StatusConflict, // the first one is still at work
			status == http.StatusTooManyRequests,
			status >= http.StatusInternalServerError:
			return answered.NotBefore, true
		}
		return time.Time{}, false
	case errors.As(err, &failed):
		// Without a Reason it failed for good, unless the caller did not wait.
		return failed.NotBefore, failed.Reason != nil || errors.Is(err, context.Canceled)
	}
	return time.Time{}, errors.Is(err, errUnreadable)
}

// newError reads a problem. Whatever cannot be read is left out: a broken error
// message must not hide the error.
func newError(resp *http.Response, body []byte) *Error {
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get("Request-Id")}
	var problem struct{ Title, Code, Detail string }
	if json.Unmarshal(body, &problem) == nil {
		e.Title, e.Code, e.Detail = problem.Title, problem.Code, problem.Detail
	}
	if e.Title == "" {
		e.Title = http.StatusText(resp.StatusCode)
	}
	attempts := resilienthttp.Attempts(resp)
	e.Attempts = len(attempts)
	if n := len(attempts); n > 0 {
		if last := attempts[n-1]; last.Wait > 0 { // asked by the API, and not waited for
			e.NotBefore = last.Start.Add(last.Latency + last.Wait)
		}
	}
	return e
}
