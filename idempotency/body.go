package idempotency

import (
	"errors"
	"net/http"
)

var (
	// errBodyTooLarge: the request's body has more bytes than the limit.
	errBodyTooLarge = errors.New("idempotency: request body too large")

	// errBodyCut: the request's body could not be read to its end. It wraps
	// what net/http says.
	errBodyCut = errors.New("idempotency: request body cut short")
)

// readBody reads the request's body, of at most limit bytes, and leaves an unread
// one in its place. The errors are errBodyTooLarge and errBodyCut (errors.Is).
func readBody(r *http.Request, limit int64) ([]byte, error) { panic("not yet") }
