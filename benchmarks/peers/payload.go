package peers

import (
	"bytes"
	"io"
	"net/http"
	"slices"
)

// payload returns the bytes of a body with GetBody, for libraries that do not take an
// *http.Request or that copy a body that is not seekable. It does not copy the bytes of a
// bytes.Reader. It returns nil without a body, and for a body without GetBody.
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

// taker is a writer that keeps its input. It does not copy a single Write, which a
// bytes.Reader makes.
type taker struct{ bytes []byte }

// Write keeps p, which io.Writer forbids. The bytes of a request's body do not change.
func (t *taker) Write(p []byte) (int, error) {
	if t.bytes == nil {
		t.bytes = slices.Clip(p)
	} else {
		t.bytes = append(t.bytes, p...)
	}
	return len(p), nil
}

// seekable is a seekable body.
type seekable struct{ *bytes.Reader }

// Close implements io.Closer.
func (seekable) Close() error { return nil }
