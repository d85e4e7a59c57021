package faulttest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// An exchange is a request that is being served, on behalf of a Log. Its methods
// work on nil too: a request that no Log has seen.
type exchange struct {
	log   *Log
	entry *Request // guarded by log.mu
	body  *body    // or nil
	years int      // by which its clock is ahead: see tells
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// errClosed is why requests end that a Server's Close ends.
var errClosed = errors.New("faulttest: server closed")

func (x *exchange) update(f func(*Request)) {
	if x == nil {
		return
	}
	x.log.mu.Lock()
	defer x.log.mu.Unlock()
	f(x.entry)
}

// fault notes what is being done to the request, and that it is over with that,
// before the client can see it.
func (x *exchange) fault(f Fault, over bool) {
	x.update(func(q *Request) {
		q.Fault = f
		if over && q.EndedAt.IsZero() {
			q.EndedAt = time.Now()
		}
	})
}

// note is said of the request, in addition to what was said before.
func (x *exchange) note(text string) {
	x.update(func(q *Request) { q.annotate(text) })
}

// gone notes that the client has left, or that the Server closes.
func (x *exchange) gone(ctx context.Context) {
	x.update(func(q *Request) {
		switch {
		case !q.EndedAt.IsZero() || q.closed || !q.CanceledAt.IsZero():
		case errors.Is(context.Cause(ctx), errClosed):
			q.closed = true
		default:
			q.CanceledAt = time.Now()
		}
	})
}

// end notes that the handler is done: it has returned, or panicked.
func (x *exchange) end(ctx context.Context, returned bool) {
	if ctx.Err() != nil {
		x.gone(ctx)
	}
	x.update(func(q *Request) {
		if !q.EndedAt.IsZero() {
			return // by its fault
		}
		q.EndedAt = time.Now()
		switch {
		case q.closed || !q.CanceledAt.IsZero():
		case returned && q.Status == 0 && !q.hijacked:
			q.Status = http.StatusOK // that is what net/http makes of it
		case !returned:
			q.annotate("aborted")
		}
	})
}

// begun returns what to send before a reset, so that it reaches the client. The
// http.Transport repeats a request by itself when the connection breaks before
// the first byte of an answer, unless the connection is new. (Half a status line
// would not do: it makes a malformed one of that, and forgets the reset.)
func (x *exchange) begun() string {
	text := "HTTP/1.1 102 Processing\r\n\r\n"
	x.update(func(q *Request) {
		if !q.Reused {
			text = ""
		}
	})
	return text
}

// clock returns what the server's clock shows at the time t, in this exchange.
func (x *exchange) clock(t time.Time) time.Time {
	if x == nil {
		return t
	}
	return t.Add(x.log.Skew).AddDate(x.years, 0, 0)
}

// epochTold is when the seconds since 1970 were a thousand million: clients tell them
// from seconds to go by that.
const epochTold = 1e9

// tells makes the clock one that can tell resets of the dialect. In a bubble of
// testing/synctest, which begins in the year 2000, seconds since 1970 would be taken for
// seconds to go: an answer that has such is of two years later, its Date and all. A Skew
// is done to the letter.
func (x *exchange) tells(d Dialect) {
	if x != nil && x.log.Skew == 0 && d.sinceEpoch() && time.Now().Unix() < epochTold {
		x.years = 2
	}
}

// keyHeader is the field of the idempotency key for a handler that was told own.
func (x *exchange) keyHeader(own string) string {
	switch {
	case own != "":
		return own
	case x != nil && x.log.KeyHeader != "":
		return x.log.KeyHeader
	}
	return defaultKeyHeader
}

// life ends when the Server closes.
func (x *exchange) life() context.Context {
	if x != nil {
		x.log.mu.Lock()
		defer x.log.mu.Unlock()
		if x.log.life != nil {
			return x.log.life
		}
	}
	return context.Background()
}

// A recorder is a ResponseWriter that tells its exchange.
type recorder struct {
	http.ResponseWriter

	x        *exchange
	wrote    bool
	hijacked bool
	duplex   bool
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(code int) {
	if !w.wrote && (code >= 200 || code == http.StatusSwitchingProtocols) {
		w.wrote = true
		w.readRest()
		w.date()
		w.x.update(func(q *Request) { q.Status = code })
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.x.update(func(q *Request) { q.ResponseBytes += int64(n) })
	return n, err
}

// Flush and Hijack are here for handlers that look for them by type.
func (w *recorder) Flush() { _ = w.FlushError() }

func (w *recorder) FlushError() error {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		w.x.update(func(q *Request) {
			q.hijacked = true
			if q.Fault == NoFault {
				q.annotate("hijacked")
			}
		})
	}
	return conn, rw, err
}

// EnableFullDuplex tells that the handler will read while it writes.
func (w *recorder) EnableFullDuplex() error {
	w.duplex = true
	return http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
}

// finish does for a handler that has returned what net/http is about to do.
func (w *recorder) finish() {
	w.readRest()
	if !w.wrote && !w.hijacked {
		w.date()
	}
}

// date sets the Date where net/http would set another.
func (w *recorder) date() {
	if h := w.Header(); w.x.log.Skew != 0 && h["Date"] == nil {
		h.Set("Date", w.x.clock(time.Now()).UTC().Format(http.TimeFormat))
	}
}

// maxRest is how much of a body net/http reads that a handler has left unread.
const maxRest = 256 << 10

// readRest reads what the handler has not, as net/http is about to do, which
// throws it away.
func (w *recorder) readRest() {
	b := w.x.body
	if b == nil || w.hijacked || w.duplex || b.http2 || b.continues && !b.begun.Load() || b.busy.Load() > 0 {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(b, maxRest))
}

// A body tells the exchange what is read of it.
type body struct {
	io.ReadCloser

	x         *exchange
	http2     bool
	continues bool // the client waits for 100 Continue, which the first read sends
	begun     atomic.Bool
	busy      atomic.Int32 // calls of Read
	sum       hash.Hash    // one Read at a time
	most      int          // bytes to keep; negative: all
}

func newBody(x *exchange, r *http.Request) *body {
	most := x.log.MaxBody
	if most == 0 {
		most = 16 << 10
	}
	return &body{
		ReadCloser: r.Body, x: x, sum: sha256.New(), most: most,
		http2:     r.ProtoMajor >= 2,
		continues: strings.EqualFold(r.Header.Get("Expect"), "100-continue"),
	}
}

func (b *body) Read(p []byte) (int, error) {
	b.busy.Add(1)
	defer b.busy.Add(-1)
	b.begun.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.x.update(func(q *Request) {
		if q.BodyRead {
			return
		}
		_, _ = b.sum.Write(p[:n])
		q.BodySize += int64(n)
		keep := n
		if b.most >= 0 {
			keep = min(n, b.most-len(q.Body))
		}
		q.Body = append(q.Body, p[:keep]...)
		if errors.Is(err, io.EOF) {
			q.BodyRead = true
			b.sum.Sum(q.sum[:0])
		}
	})
	return n, err
}
