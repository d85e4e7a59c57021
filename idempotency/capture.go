package idempotency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// errHandlerOver is the error of a write after the handler has returned.
var errHandlerOver = errors.New("idempotency: the response is complete already")

// capture is the http.ResponseWriter of the handler. The response must not be sent before
// its record is durable. So capture keeps the response, and sendResponse sends it whole, as a
// replay does. A client sees the handler's status, header, body and trailers.
//
// It supports flushing (which does nothing), io.StringWriter, http.CloseNotifier, and the
// deadlines of http.ResponseController. It does not support hijacking, and has no Unwrap, which
// would bypass it.
//
// Several goroutines may call the methods of http.ResponseWriter, also after the handler
// has returned. The other methods are for the owner.
type capture struct {
	w      http.ResponseWriter // informational responses go there at once
	r      *http.Request       // the handler's
	before http.Header         // what was in w's header when the handler began

	mu       sync.Mutex
	header   http.Header // the handler's; nil until asked for
	snapshot http.Header // header at WriteHeader
	code     int         // zero means that it is not written yet
	implicit bool        // WriteHeader was left to a write, a flush, or the end
	declared int64       // Content-Length, or -1
	written  int64       // what the handler has tried to write
	trailers http.Header // at the handler's end
	body     spool
	failure  error // why the response cannot be stored; set by finish
	over     bool
}

// newCapture keeps up to limit bytes of the body in memory (negative: all), and the rest
// in a file. w is the real writer.
func newCapture(w http.ResponseWriter, r *http.Request, limit int64) *capture {
	c := &capture{w: w, r: r, declared: -1, body: spool{limit: limit}}
	if h := w.Header(); len(h) > 0 {
		c.before = h.Clone()
	}
	return c
}

// Header is a copy of the real header with the fields of middleware. The real one does
// not change before sendResponse, so a rejection contains nothing of the handler.
func (c *capture) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headerLocked()
}

func (c *capture) headerLocked() http.Header {
	if c.header == nil {
		if c.header = c.before.Clone(); c.header == nil {
			c.header = http.Header{}
		}
	}
	return c.header
}

// WriteHeader panics for invalid codes and ignores all calls but the first, as in
// net/http. Informational responses are sent at once.
func (c *capture) WriteHeader(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.code != 0 {
		return
	}
	if code < 100 || code > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", code))
	}
	if code < 200 && code != http.StatusSwitchingProtocols { // another response follows; 101 is a final one
		c.inform(code)
		return
	}
	c.writeHeader(code)
}

// inform sends an informational response with the handler's header.
func (c *capture) inform(code int) {
	h := c.w.Header()
	kept := maps.Clone(h)
	assign(h, c.headerLocked())
	c.w.WriteHeader(code)
	assign(h, kept)
}

func (c *capture) writeHeader(code int) {
	c.code = code
	if c.snapshot = c.before; c.header != nil {
		c.snapshot = c.header.Clone() // the handler may change the map later
	}
	if length := c.snapshot.Get("Content-Length"); length != "" {
		// net/http does not send an invalid length.
		if n, err := strconv.ParseInt(length, 10, 64); err == nil && n >= 0 {
			c.declared = n
		}
	}
}

// Write keeps p.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	return c.body.Write(p)
}

// WriteString keeps s.
func (c *capture) WriteString(s string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(len(s)); err != nil || s == "" {
		return 0, err
	}
	return c.body.WriteString(s)
}

// admit does what net/http does before it accepts n bytes of body.
func (c *capture) admit(n int) error {
	if c.over {
		return errHandlerOver
	}
	if c.code == 0 {
		c.implicit = n > 0
		c.writeHeader(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !bodyAllowed(c.code):
		return http.ErrBodyNotAllowed
	}
	c.written += int64(n)
	if c.declared >= 0 && c.written > c.declared {
		return http.ErrContentLength
	}
	return nil
}

// bodyAllowed is net/http's bodyAllowedForStatus.
func bodyAllowed(code int) bool {
	return code >= 200 && code != http.StatusNoContent && code != http.StatusNotModified
}

// Flush is FlushError, for http.Flusher.
func (c *capture) Flush() { _ = c.FlushError() }

// FlushError writes the header, and sends nothing.
func (c *capture) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return errHandlerOver
	}
	if c.code == 0 {
		c.implicit = true
		c.writeHeader(http.StatusOK)
	}
	return nil
}

// SetReadDeadline sets that of the connection. It also ends the detection of a client
// that leaves.
func (c *capture) SetReadDeadline(t time.Time) error {
	return c.control((*http.ResponseController).SetReadDeadline, t)
}

// SetWriteDeadline sets that of the connection. It applies when the response is sent.
func (c *capture) SetWriteDeadline(t time.Time) error {
	return c.control((*http.ResponseController).SetWriteDeadline, t)
}

func (c *capture) control(set func(*http.ResponseController, time.Time) error, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return errHandlerOver
	}
	return set(http.NewResponseController(c.w), t)
}

// CloseNotify is for callers that panic without it, such as gin's Context.Stream. It
// signals the end of the execution, not that the client has left.
func (c *capture) CloseNotify() <-chan bool {
	over := make(chan bool, 1)
	context.AfterFunc(c.r.Context(), func() { over <- true })
	return over
}

// EnableFullDuplex does nothing: the request body has been read.
func (c *capture) EnableFullDuplex() error { return nil }

// finish ends the handler's part after it has returned: later writes fail. The owner
// calls it before result and sendResponse.
func (c *capture) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.code == 0:
		c.failure, c.implicit = errSilent, true
		c.writeHeader(http.StatusOK)
	case c.code == http.StatusSwitchingProtocols:
		c.failure = errSwitching
	case c.declared >= 0 && c.written != c.declared && c.body.err == nil && bodyAllowed(c.code) && c.r.Method != http.MethodHead:
		c.failure = fmt.Errorf("idempotency: the handler wrote %d bytes, want %d (Content-Length)", c.written, c.declared)
	}
	c.takeTrailers()
	c.over = true
}

// Why a response is not complete.
var (
	errSilent    = errors.New("idempotency: the handler has written neither header nor body")
	errSwitching = errors.New("idempotency: the handler switched protocols (101)")
)

// close ends the handler's part if it still writes, and removes the file of a large body. The owner
// calls it last, on all paths.
func (c *capture) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.body.close()
}
