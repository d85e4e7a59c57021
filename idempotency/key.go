package idempotency

import (
	"errors"
	"net/http"

	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

// errNoKey: the request bears no key.
var errNoKey = errors.New("idempotency: no key")

// keyError is a key that cannot be used. Its text is fit for the client, and does
// not repeat the key: keys are as good as secrets in a log.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

// keyFrom is the key that the header's field of that name bears: errNoKey, or a
// *keyError, if there is none to be used. A field that is there but empty is a
// mistake of the client's, who thinks that the request is protected.
func keyFrom(h http.Header, name string) (key string, err error) {
	values := h.Values(name)
	switch len(values) {
	case 0:
		return "", errNoKey
	case 1:
	default:
		// Also when they are equal: somebody on the way adds one, and the next time
		// it may be another.
		return "", &keyError{name + " is there more than once"}
	}
	key, err = idempotencykey.Parse(values[0])
	if err != nil {
		return "", &keyError{name + " " + err.Error()}
	}
	return key, nil
}
