package faulttest

import (
	"fmt"
	"io"
	"net"
	"net/http"
)

// A Fault is a way in which a request comes to no good end. It is a part of a
// [Reply], and a handler by itself: [ResetAfterRead] as a step of a [Sequence]
// is Reply{Fault: ResetAfterRead}.
//
// Faults that break a connection need one to break: HTTP/1, plain or TLS, on
// any server. The two resets that come before an answer are preceded by an
// informational 102 if the connection has carried a request before: else
// net/http, and not its user, would learn of them (see the package
// documentation). On HTTP/2 they abort the stream instead, as a panic with
// [http.ErrAbortHandler] does, and where there is no server at all, as with an
// [net/http/httptest.ResponseRecorder], they are that panic.
type Fault int

const (
	// NoFault answers in full. It is the zero value.
	NoFault Fault = iota

	// ResetBeforeRead resets the connection when the head of the request has
	// come (the script cannot know the route before), and its body is unread.
	// The client gets ECONNRESET or, if it was still writing, EPIPE, or what
	// net/http makes of that: net.ErrClosed.
	ResetBeforeRead

	// ResetAfterRead reads the whole request, then resets the connection. The
	// client gets ECONNRESET. With [Reply.Handler] the work is done before: the
	// answer is lost. See [Lose].
	ResetAfterRead

	// CloseAfterRead reads the whole request, then closes the connection in good
	// order, as a server does that is being stopped. The client gets io.EOF or, if
	// it had used the connection before, asks again without a word to its user.
	CloseAfterRead

	// ResetMidBody sends the head and a part of the body, then resets the
	// connection. The client gets a response whose body fails with ECONNRESET.
	ResetMidBody

	// Truncated sends the head, with the Content-Length of the whole body, and a
	// part of the body, then closes the connection in good order. The client gets
	// a response whose body fails with io.ErrUnexpectedEOF.
	Truncated

	// Stalled sends the head and a part of the body, and then nothing until the
	// client leaves or the Server closes.
	Stalled

	// Hang reads the request and sends nothing until the client leaves or the
	// Server closes.
	Hang
)

// String returns the fault as it stands in a transcript.
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
	}
	if f < 0 || int(f) >= len(names) {
		return fmt.Sprintf("Fault(%d)", int(f))
	}
	return names[f]
}

// midBody reports whether f sends a part of the body.
func (f Fault) midBody() bool { return f == ResetMidBody || f == Truncated || f == Stalled }

// ServeHTTP serves Reply{Fault: f}.
func (f Fault) ServeHTTP(w http.ResponseWriter, r *http.Request) { Reply{Fault: f}.ServeHTTP(w, r) }

// abort ends a handler without an answer, or in the middle of one.
func abort() { panic(http.ErrAbortHandler) }

// hangUp closes the connection, with a reset if abrupt is true, after the words.
func hangUp(w http.ResponseWriter, abrupt bool, words string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		abort()
	}
	_, _ = io.WriteString(conn, words) // if it fails, there is nobody to be told
	if abrupt {
		// TLS would say goodbye first.
		if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = c.NetConn()
		}
		if c, ok := conn.(interface{ SetLinger(sec int) error }); ok {
			_ = c.SetLinger(0) // fails if the connection is dead already
		}
	}
	_ = conn.Close()
}
