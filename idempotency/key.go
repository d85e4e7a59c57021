package idempotency

import (
	"errors"
	"net/http"
)

// errNoKey: the request bears no key.
var errNoKey = errors.New("idempotency: no key")

// keyError is a key that cannot be used. Its text is fit for the client, and does
// not repeat the key.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

// keyFrom is the key that the header's field of that name bears: errNoKey, or a
// *keyError, if there is none to be used.
func keyFrom(h http.Header, name string) (key string, err error) { panic("not yet") }
