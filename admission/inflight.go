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

// visit is a request that has a place. It is the http.ResponseWriter that the handler
// gets, for what the handler does with it tells when the place is free, and whether
// the time that it took means anything.
type inFlightRequest struct {
	w        http.ResponseWriter
	shedder  *Shedder
	r        *http.Request
	began    time.Duration
	flight   int32
	status   int32
	returned bool
	left     atomic.Bool // the place was given back
}

// visits are made by the dozen, which costs less, and each is used once: a handler
// may leave somebody behind who still writes.
type inFlightRequests struct {
	used int
	all  [32]inFlightRequest
}

func (v *inFlightRequests) next() *inFlightRequest {
	v.used++
	return &v.all[v.used-1]
}

func (v *inFlightRequests) empty() bool { return v == nil || v.used == len(v.all) }

// end is when the handler is over: it has returned, panicked, or ended its goroutine.
func (v *inFlightRequest) end() {
	if v.left.Load() {
		return
	}
	now := v.shedder.now()
	s := sample{took: -1, flight: int(v.flight)}
	if v.returned && v.status != http.StatusGatewayTimeout {
		switch err := v.r.Context().Err(); err {
		case nil, context.DeadlineExceeded:
			s.took, s.late = now-v.began, err != nil
		}
	}
	v.leave(now, s)
}

// leave gives the place back, once.
func (v *inFlightRequest) leave(now time.Duration, s sample) {
	if !v.left.Swap(true) {
		v.shedder.leave(now, s)
	}
}

// leaveEarly gives the place back when the connection becomes something else than a
// request: it may stay for days.
func (v *inFlightRequest) leaveEarly() {
	v.leave(v.shedder.now(), sample{took: -1, flight: int(v.flight)})
}

// writer is v with the optional interfaces that the server's writer has. What else it
// has, http.ResponseController finds.
func (v *inFlightRequest) writer() http.ResponseWriter {
	_, flushes := v.w.(http.Flusher)
	if hijacks(v.w) {
		if _, reads := v.w.(io.ReaderFrom); reads && flushes {
			return connection{v}
		}
		return hijacker{v}
	}
	if flushes {
		return flusher{v}
	}
	return v
}

// hijacks reports whether the writer, or one that it wraps, can be hijacked.
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

func (v *inFlightRequest) flush() error { return http.NewResponseController(v.w).Flush() }

func (v *inFlightRequest) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(v.w).Hijack()
	if err == nil {
		v.leaveEarly()
	}
	return conn, rw, err
}

// flusher is a visit whose response can be flushed, as over HTTP/2.
type flusher struct{ *inFlightRequest }

// Flush implements http.Flusher.
func (f flusher) Flush() { _ = f.flush() }

// FlushError is for http.ResponseController.
func (f flusher) FlushError() error { return f.flush() }

// hijacker is a visit whose connection can be hijacked, and that is wrapped by
// somebody.
type hijacker struct{ *inFlightRequest }

// Flush implements http.Flusher.
func (h hijacker) Flush() { _ = h.flush() }

// FlushError is for http.ResponseController.
func (h hijacker) FlushError() error { return h.flush() }

// Hijack implements http.Hijacker.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.hijack() }

// connection is a visit over HTTP/1, to net/http's own server.
type connection struct{ *inFlightRequest }

// Flush implements http.Flusher.
func (c connection) Flush() { _ = c.flush() }

// FlushError is for http.ResponseController.
func (c connection) FlushError() error { return c.flush() }

// Hijack implements http.Hijacker.
func (c connection) Hijack() (net.Conn, *bufio.ReadWriter, error) { return c.hijack() }

// ReadFrom implements io.ReaderFrom.
func (c connection) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.w, src) }
