package idempotency

import "net/http"

// capture is the http.ResponseWriter of a handler whose response must not leave
// before its record is durable.
type capture struct{}

// newCapture keeps up to limit bytes of the body in memory, and more of them in a
// file. w is where informational responses go at once.
func newCapture(w http.ResponseWriter, r *http.Request, limit int64) *capture { panic("not yet") }

func (c *capture) Header() http.Header         { panic("not yet") }
func (c *capture) WriteHeader(code int)        { panic("not yet") }
func (c *capture) Write(p []byte) (int, error) { panic("not yet") }

// finish ends the handler's part: whoever writes later gets an error. To be called
// before status, result and deliver. It may be called again.
func (c *capture) finish() { panic("not yet") }

// status is the response's status code.
func (c *capture) status() int { panic("not yet") }

// tooLarge reports whether the body has more than limit bytes: there is no result
// to be stored.
func (c *capture) tooLarge() bool { panic("not yet") }

// err is why the body could not be kept, if so: the file for a large one failed.
// There is nothing to deliver then.
func (c *capture) err() error { panic("not yet") }

// result is what is stored. Not for a response that is tooLarge.
func (c *capture) result() Result { panic("not yet") }

// deliver sends the response as the handler wrote it. The error is the client's
// connection's, or the file's.
func (c *capture) deliver(w http.ResponseWriter) error { panic("not yet") }

// close frees what a large body took. To be called last, on all paths.
func (c *capture) close() { panic("not yet") }

// replay sends a stored result.
func replay(w http.ResponseWriter, r *http.Request, res Result) { panic("not yet") }
