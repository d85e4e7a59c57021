package faulttest

import (
	"fmt"
	"io"
	"net"
	"net/http"
)

// Fault is a failure that a server injects. It is a field of a [Reply], and a handler:
// [ResetAfterRead] in a [Sequence] means Reply{Fault: ResetAfterRead}.
//
// Faults that break a connection work for HTTP/1, plain or TLS, on any server. On HTTP/2 they
// abort the stream, as a panic with [http.ErrAbortHandler] does. Without a server, as with an
// [net/http/httptest.ResponseRecorder], they are that panic. On a reused connection the resets
// before a response send an informational 102 first, because otherwise net/http would retry
// (see the package documentation).
type Fault int

const (
	// NoFault sends the whole response. It is the zero value.
	NoFault Fault = iota

	// ResetBeforeRead resets the connection after the request's header, without reading
	// its body. The client gets ECONNRESET. If it is still writing, it gets EPIPE or
	// net.ErrClosed.
	ResetBeforeRead

	// ResetAfterRead reads the whole request, then resets the connection. The client gets
	// ECONNRESET. [Reply.Handler] is called before the reset: see [LoseResponse].
	ResetAfterRead

	// CloseAfterRead reads the whole request, then closes the connection (FIN), as a server
	// that shuts down. The client gets io.EOF. On a reused connection net/http retries.
	CloseAfterRead

	// ResetMidBody sends the header and a part of the body, then resets the connection. The
	// client gets a response with a body that fails with ECONNRESET.
	ResetMidBody

	// Truncated sends the header, with the Content-Length of the whole body, and a part of
	// the body, then closes the connection (FIN). The client gets a response with a
	// body that fails with io.ErrUnexpectedEOF.
	Truncated

	// Stalled sends the header and a part of the body, and then nothing until the client
	// cancels or the Server closes.
	Stalled

	// Hang reads the request and sends nothing until the client cancels or the Server
	// closes.
	Hang

	// Silent reads the request, and then its connection is silent: it stays open, but no byte
	// and no end of the connection passes, as behind a firewall that has forgotten it. On HTTP/2
	// this affects all requests of the connection, and pings. Without a Server it is Hang. See
	// [Server.Silence].
	Silent
)

// String returns the fault's name in a transcript.
func (f Fault) String() string {
	names := [...]string{
		NoFault:         "no fault",
		ResetBeforeRead: "reset before read",
		ResetAfterRead:  "reset after read",
		CloseAfterRead:  "closed after read",
		ResetMidBody:    "reset in mid-body",
		Truncated:       "truncated",
		Stalled:         "stalled",
		Hang:            "hang",
		Silent:          "silent",
	}
	if f < 0 || int(f) >= len(names) {
		return fmt.Sprintf("Fault(%d)", int(f))
	}
	return names[f]
}

// midBody reports whether f occurs after a part of the body.
func (f Fault) midBody() bool { return f == ResetMidBody || f == Truncated || f == Stalled }

// ServeHTTP serves Reply{Fault: f}.
func (f Fault) ServeHTTP(w http.ResponseWriter, r *http.Request) { Reply{Fault: f}.ServeHTTP(w, r) }

// abort ends a handler without a complete response.
func abort() { panic(http.ErrAbortHandler) }

// closeConn sends text and then closes the connection, with a reset if reset is true.
func closeConn(w http.ResponseWriter, reset bool, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		abort()
	}
	_, _ = io.WriteString(conn, text) // if it fails, the client is gone
	if reset {
		// A close of the tls.Conn would send close_notify first.
		if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = c.NetConn()
		}
		if c, ok := conn.(interface{ SetLinger(sec int) error }); ok {
			_ = c.SetLinger(0) // fails if the connection is closed already
		}
	}
	_ = conn.Close()
}
