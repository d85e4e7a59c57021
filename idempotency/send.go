package idempotency

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// sendResponse sends the response. w has the header that newCapture found there. The error is
// that of the client's connection, or of the file.
func (c *capture) sendResponse(w http.ResponseWriter) error {
	h := w.Header()
	assign(h, c.snapshot)
	c.withoutLength(h)
	if !c.implicit {
		w.WriteHeader(c.code)
	}
	if err := c.body.sendTo(w); err != nil {
		return err
	}
	c.sendTrailers(h)
	return nil
}

// sendTrailers puts the trailers where net/http looks for them after the handler.
func (c *capture) sendTrailers(h http.Header) {
	for name, values := range c.trailers {
		if values == nil {
			delete(h, name)
		} else {
			h[name] = values
		}
	}
}

// takeTrailers keeps the final values of the trailers that were announced, and of those
// with http.TrailerPrefix. nil: no such field.
func (c *capture) takeTrailers() {
	final := c.header
	if final == nil {
		final = c.before // never asked for
	}
	put := func(name string) {
		if c.trailers == nil {
			c.trailers = http.Header{}
		}
		c.trailers[name] = slices.Clone(final[name])
	}
	for name := range listed(c.snapshot["Trailer"]) {
		put(name)
	}
	for _, h := range []http.Header{c.snapshot, final} {
		for name := range h {
			if strings.HasPrefix(name, http.TrailerPrefix) {
				put(name)
			}
		}
	}
}

// assign makes dst equal to src, in place.
func assign(dst, src http.Header) {
	for name := range dst {
		if _, ok := src[name]; !ok {
			delete(dst, name)
		}
	}
	maps.Copy(dst, src)
}
