package idempotency

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// errHandlerOver: a write after the handler's response was taken.
var errHandlerOver = errors.New("idempotency: the response is complete already")

// capture is the http.ResponseWriter of a handler whose response must not leave
// before its record is durable: it keeps all that the handler does, and deliver
// does the same to the real writer, so that the same bytes go out as if the
// handler had written there itself.
//
// What it offers beyond http.ResponseWriter is flushing, which is remembered,
// io.StringWriter, io.ReaderFrom, http.CloseNotifier, and, through
// http.ResponseController, the connection's deadlines. There is no Unwrap, as that would lead a handler around
// it, and no hijacking.
//
// The methods of http.ResponseWriter and those beside it may be called by several
// goroutines, also by those that outlive the handler. The others belong to
// whoever made it.
type capture struct {
	w      http.ResponseWriter // informational responses go there at once
	r      *http.Request       // the handler's
	before http.Header         // what was in w's header when the handler began

	mu       sync.Mutex
	header   http.Header // the handler's; nil until asked for
	snapshot http.Header // header at WriteHeader
	code     int         // 0: not written yet
	implicit bool        // WriteHeader was left to a write, a flush, or the end
	declared int64       // Content-Length, or -1
	written  int64       // what the handler has tried to write
	trailers http.Header // at the handler's end
	log      writeLog
	body     spool
	silent   bool // the handler has written neither header nor body
	over     bool
}

// newCapture keeps up to limit bytes of the body in memory (a negative limit: all
// of them), and what is beyond in a file. w is the real writer.
func newCapture(w http.ResponseWriter, r *http.Request, limit int64) *capture {
	c := &capture{w: w, r: r, declared: -1, body: spool{limit: limit}}
	if h := w.Header(); len(h) > 0 {
		c.before = h.Clone()
	}
	return c
}

// Header starts out as the real one, so that a handler finds what middleware has
// set. The real one stays as it is until deliver: a refusal that is sent instead
// has nothing of the handler's in it.
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

// WriteHeader panics where net/http's own does, and like it ignores all calls but
// the first. Informational responses say nothing of how the work ended and are
// sent at once.
func (c *capture) WriteHeader(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.code != 0 {
		return
	}
	if code < 100 || code > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", code))
	}
	if informational(code) {
		c.inform(code)
		return
	}
	c.writeHeader(code)
}

// informational responses do not end a request. 101 does, in HTTP/1.1.
func informational(code int) bool {
	return code >= 100 && code <= 199 && code != http.StatusSwitchingProtocols
}

// inform lends the handler's header to the real writer for one response.
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
		c.snapshot = c.header.Clone() // the handler may keep the map and go on with it
	}
	if length := c.snapshot.Get("Content-Length"); length != "" {
		// net/http sends no length that it cannot read.
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
	c.log.write(len(p))
	return c.body.Write(p)
}

// WriteString keeps s.
func (c *capture) WriteString(s string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(len(s)); err != nil || s == "" {
		return 0, err
	}
	c.log.writeString(len(s))
	return c.body.WriteString(s)
}

// admit is what net/http does before it takes n bytes of body.
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

// ReadFrom reads src as net/http's own does, where it has one: the first bytes by
// themselves, for sniffing, and a flush behind them. So a response from a file has
// the same framing.
func (c *capture) ReadFrom(src io.Reader) (n int64, err error) {
	if c.readsFrom() {
		if !c.sent() {
			n, err = io.Copy(writerOnly{c}, io.LimitReader(src, sniffed))
			if err != nil || n < sniffed {
				return n, err
			}
		}
		c.Flush()
	}
	more, err := io.Copy(writerOnly{c}, src)
	return n + more, err
}

// readsFrom reports whether the real writer would read by itself: over TLS it has
// the method, but not the use of it.
func (c *capture) readsFrom() bool {
	_, ok := c.w.(io.ReaderFrom)
	return ok && c.r.TLS == nil
}

func (c *capture) sent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.sent
}

// writerOnly hides ReadFrom from io.Copy.
type writerOnly struct{ io.Writer }

// Flush is FlushError, for http.Flusher.
func (c *capture) Flush() { _ = c.FlushError() }

// FlushError remembers that there was a flush here, and sends nothing.
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
	c.log.flush()
	return nil
}

// SetReadDeadline is the connection's: the body has been read, but it also ends
// the watch for a client that goes away.
func (c *capture) SetReadDeadline(t time.Time) error {
	return c.control((*http.ResponseController).SetReadDeadline, t)
}

// SetWriteDeadline is the connection's, and counts when the response is sent.
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

// CloseNotify is for what asserts http.CloseNotifier and panics without it, such as
// gin's Context.Stream. Like the handler's context, it tells that the execution is
// over, and not that the client has gone.
func (c *capture) CloseNotify() <-chan bool {
	over := make(chan bool, 1)
	context.AfterFunc(c.r.Context(), func() { over <- true })
	return over
}

// EnableFullDuplex has nothing to do: the request's body has been read.
func (c *capture) EnableFullDuplex() error { return nil }

// finish ends the handler's part once it has returned: what it leaves behind, and
// still writes, gets an error. To be called before status, result and deliver.
func (c *capture) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.code == 0 {
		c.silent, c.implicit = true, true
		c.writeHeader(http.StatusOK)
	}
	c.takeTrailers()
	c.over = true
}

// abandon is finish for a response that is given up, also while the handler still
// runs: it does not look at what the handler may be changing. Nothing is to be
// asked of c afterwards but close.
func (c *capture) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// status is the response's status code.
func (c *capture) status() int { return c.code }

// tooLarge reports whether the body has more than limit bytes.
func (c *capture) tooLarge() bool { return c.body.beyond }

// err is why the body could not be kept, if so: the file failed. There is nothing
// to deliver then.
func (c *capture) err() error { return c.body.err }

// close frees what a large body took. To be called last, on all paths.
func (c *capture) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.body.close()
}
