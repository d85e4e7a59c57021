package faulttest

import (
	"bufio"
	"cmp"
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

// exchange is a request in progress that a Log records. Its methods also work on nil, for a
// request without a Log.
type exchange struct {
	log   *Log
	entry *Request // protected by log.mu
	body  *body    // or nil
	years int      // by which its clock is ahead: see adjustClock
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// errClosed is the cause of contexts that a Server's Close ends.
var errClosed = errors.New("faulttest: server closed")

func (x *exchange) update(f func(*Request)) {
	if x == nil {
		return
	}
	x.log.mu.Lock()
	defer x.log.mu.Unlock()
	f(x.entry)
}

// fault records a fault before the client can notice it. ended is true if the fault ends the
// request.
func (x *exchange) fault(f Fault, ended bool) {
	x.update(func(q *Request) {
		q.Fault = f
		if ended && q.EndedAt.IsZero() {
			q.EndedAt = time.Now()
		}
	})
}

// note appends to the request's Note.
func (x *exchange) note(text string) {
	x.update(func(q *Request) { q.annotate(text) })
}

// gone records that the client has canceled, or that the Server closes.
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

// end records that the handler has returned or panicked.
func (x *exchange) end(ctx context.Context, returned bool) {
	if ctx.Err() != nil {
		x.gone(ctx)
	}
	x.update(func(q *Request) {
		if !q.EndedAt.IsZero() {
			return // the fault has set it
		}
		q.EndedAt = time.Now()
		switch {
		case q.closed || !q.CanceledAt.IsZero():
		case returned && q.Status == 0 && !q.hijacked:
			q.Status = http.StatusOK // the status that net/http sends
		case !returned:
			q.annotate("aborted")
		}
	})
}

// beforeReset returns the text to send before a reset. On a reused connection http.Transport
// retries after a reset before the first byte of the response. (With a part of a status line it
// would return an error for a malformed response instead of the reset.)
func (x *exchange) beforeReset() string {
	text := "HTTP/1.1 102 Processing\r\n\r\n"
	x.update(func(q *Request) {
		if !q.Reused {
			text = ""
		}
	})
	return text
}

// clock returns the time of the server's clock at t, for this exchange.
func (x *exchange) clock(t time.Time) time.Time {
	if x == nil {
		return t
	}
	return t.Add(x.log.Skew).AddDate(x.years, 0, 0)
}

// minEpoch is the epoch time (in 2001) from which clients can distinguish epoch seconds from a
// number of seconds.
const minEpoch = 1e9

// adjustClock sets the clock two years ahead if the dialect has epoch seconds and the time is before
// minEpoch. That is so in a bubble of testing/synctest, which starts in the year 2000. adjustClock
// does nothing if there is a Skew.
func (x *exchange) adjustClock(d Dialect) {
	if x != nil && x.log.Skew == 0 && d.hasEpochReset() && time.Now().Unix() < minEpoch {
		x.years = 2
	}
}

// keyHeader returns the field of the idempotency key: own, the Log's, or the default.
func (x *exchange) keyHeader(own string) string {
	if own == "" && x != nil {
		own = x.log.KeyHeader
	}
	return cmp.Or(own, defaultKeyHeader)
}

// life returns a context that ends when the Server closes.
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

// recorder is a ResponseWriter that records the response in its exchange.
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

// Flush is for handlers that use http.Flusher.
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

// EnableFullDuplex records that the handler reads while it writes.
func (w *recorder) EnableFullDuplex() error {
	w.duplex = true
	return http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
}

// finish does what net/http does after the handler has returned, so that it is recorded.
func (w *recorder) finish() {
	w.readRest()
	if !w.wrote && !w.hijacked {
		w.date()
	}
}

// date sets the Date if there is a Skew.
func (w *recorder) date() {
	if h := w.Header(); w.x.log.Skew != 0 && h["Date"] == nil {
		h.Set("Date", w.x.clock(time.Now()).UTC().Format(http.TimeFormat))
	}
}

// maxRest is the number of unread body bytes that net/http reads after a handler.
const maxRest = 256 << 10

// readRest reads the unread part of the body, as net/http would do, so that it is recorded.
func (w *recorder) readRest() {
	b := w.x.body
	if b == nil || w.hijacked || w.duplex || b.http2 || b.continues && !b.begun.Load() || b.busy.Load() > 0 {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(b, maxRest))
}

// body is a request body that records in its exchange what is read.
type body struct {
	io.ReadCloser

	x         *exchange
	http2     bool
	continues bool // the client waits for 100 Continue, which the first read sends
	begun     atomic.Bool
	busy      atomic.Int32 // calls of Read
	sum       hash.Hash    // protected by log.mu
	keep      int          // maximum number of bytes to record; negative: all
}

func newBody(x *exchange, r *http.Request) *body {
	return &body{
		ReadCloser: r.Body, x: x, sum: sha256.New(), keep: cmp.Or(x.log.MaxBody, 16<<10),
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
		kept := n
		if b.keep >= 0 {
			kept = min(n, b.keep-len(q.Body))
		}
		q.Body = append(q.Body, p[:kept]...)
		if errors.Is(err, io.EOF) {
			q.BodyRead = true
			b.sum.Sum(q.sum[:0])
		}
	})
	return n, err
}
