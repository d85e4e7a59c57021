package idempotency

import (
	"errors"
	"net/http"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// errNoKey means that the request has no key.
var errNoKey = errors.New("idempotency: no key")

// keyError is an invalid key. Its text is sent to the client. It does not contain the
// key, which may be a secret.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

// keyFrom returns the key in a header field. The error is errNoKey or a *keyError. An
// empty field is an error, because the client believes that it sent a key.
func keyFrom(h http.Header, name string) (key string, err error) {
	values := h.Values(name)
	switch len(values) {
	case 0:
		return "", errNoKey
	case 1:
	default:
		// Also if they are equal: a proxy may add one, and another one next time.
		return "", &keyError{name + " is there more than once"}
	}
	key, err = idempotencykey.Parse(values[0])
	if err != nil {
		return "", &keyError{name + " " + err.Error()}
	}
	return key, nil
}
