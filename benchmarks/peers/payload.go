package peers

import (
	"bytes"
	"io"
	"net/http"
	"slices"
)

// payload is the body of a request that can be rewound, as bytes, for libraries
// that are not given an *http.Request, or that copy every body but one in which
// they can seek. Their users have the bytes, so the bytes of a bytes.Reader are
// taken and not copied. It is nil without a body, and for a body that can be read
// only once.
func payload(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody || req.GetBody == nil {
		return nil, nil
	}
	defer req.Body.Close()
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var taken taker
	if _, err := io.Copy(&taken, body); err != nil {
		return nil, err
	}
	return taken.bytes, nil
}

// taker is a writer that keeps what it is given, uncopied if it comes in one
// piece: a bytes.Reader gives all that it has.
type taker struct{ bytes []byte }

// Write keeps p, which io.Writer forbids, and what payload is about: nobody
// writes to the bytes of a request's body.
func (t *taker) Write(p []byte) (int, error) {
	if t.bytes == nil {
		t.bytes = slices.Clip(p)
	} else {
		t.bytes = append(t.bytes, p...)
	}
	return len(p), nil
}

// seekable is a body in which a library can seek.
type seekable struct{ *bytes.Reader }

// Close implements io.Closer.
func (seekable) Close() error { return nil }
