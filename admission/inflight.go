package admission

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// inFlightRequest is a request that has a slot. It is the http.ResponseWriter of the
// handler: what the handler does with it shows when the slot is free, and whether its
// latency is a sample.
type inFlightRequest struct {
	w        http.ResponseWriter
	shedder  *Shedder
	r        *http.Request
	key      *keyQueue
	began    time.Duration
	flight   int32
	status   int32
	class    int8
	returned bool
	left     atomic.Bool // the slot was returned
}

// inFlightRequests is a batch of requests, which costs less than single ones. Each is used
// once: a handler may leave a goroutine behind that still writes.
type inFlightRequests struct {
	used int
	all  [32]inFlightRequest
}

func (b *inFlightRequests) next() *inFlightRequest {
	b.used++
	return &b.all[b.used-1]
}

func (b *inFlightRequests) empty() bool { return b == nil || b.used == len(b.all) }

// end returns the slot after the handler has returned, panicked, or ended its goroutine.
func (v *inFlightRequest) end() {
	if v.left.Load() {
		return
	}
	now := v.shedder.now()
	took, late := time.Duration(-1), false
	if v.returned && v.status != http.StatusGatewayTimeout {
		switch err := v.r.Context().Err(); err {
		case nil, context.DeadlineExceeded:
			took, late = now-v.began, err != nil
		}
	}
	v.leave(now, took, late)
}

// leave returns the slot once.
func (v *inFlightRequest) leave(now, took time.Duration, late bool) {
	if !v.left.Swap(true) {
		v.shedder.leave(now, sample{took: took, flight: int(v.flight), late: late}, v.key, int(v.class))
	}
}

// leaveEarly returns the slot when the connection stops being an HTTP request, because it
// may last for days.
func (v *inFlightRequest) leaveEarly() { v.leave(v.shedder.now(), -1, false) }

// writer returns v with the optional interfaces of the server's writer.
// http.ResponseController finds the others.
func (v *inFlightRequest) writer() http.ResponseWriter {
	_, flushes := v.w.(http.Flusher)
	if hijacks(v.w) {
		if _, reads := v.w.(io.ReaderFrom); reads && flushes {
			return connection{hijacker{flusher{v}}}
		}
		return hijacker{flusher{v}}
	}
	if flushes {
		return flusher{v}
	}
	return v
}

// hijacks reports whether the writer, or a writer that it wraps, can be hijacked.
func hijacks(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = inner.Unwrap()
	}
}

// Header implements http.ResponseWriter.
func (v *inFlightRequest) Header() http.Header { return v.w.Header() }

// Write implements http.ResponseWriter.
func (v *inFlightRequest) Write(p []byte) (int, error) { return v.w.Write(p) }

// WriteString implements io.StringWriter.
func (v *inFlightRequest) WriteString(s string) (int, error) { return io.WriteString(v.w, s) }

// WriteHeader implements http.ResponseWriter.
func (v *inFlightRequest) WriteHeader(code int) {
	if v.status == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		v.status = int32(code)
	}
	v.w.WriteHeader(code)
	if code == http.StatusSwitchingProtocols {
		v.leaveEarly()
	}
}

// Unwrap is for http.ResponseController.
func (v *inFlightRequest) Unwrap() http.ResponseWriter { return v.w }

// flusher is an inFlightRequest with a response that can be flushed, as over HTTP/2.
type flusher struct{ *inFlightRequest }

// Flush implements http.Flusher.
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError is for http.ResponseController.
func (f flusher) FlushError() error { return http.NewResponseController(f.w).Flush() }

// hijacker is a flusher with a connection that can be hijacked, behind the writer of
// another middleware.
type hijacker struct{ flusher }

// Hijack implements http.Hijacker.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.w).Hijack()
	if err == nil {
		h.leaveEarly()
	}
	return conn, rw, err
}

// connection is a hijacker over HTTP/1 of net/http's server.
type connection struct{ hijacker }

// ReadFrom implements io.ReaderFrom.
func (c connection) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.w, src) }
