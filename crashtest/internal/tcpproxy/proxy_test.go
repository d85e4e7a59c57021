package tcpproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/tcpproxy"
)

// wire is a proxy between a client and a server.
type wire struct {
	*tcpproxy.Proxy
	accepted chan net.Conn // on the server's side
}

func newWire(t *testing.T) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{accepted: make(chan net.Conn, 64)}
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			w.accepted <- conn
		}
	}()
	w.Proxy, err = tcpproxy.Listen(t.Context(), func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		assert.NoError(t, w.Close())
	})
	return w
}

// dial returns both ends of a new connection, with a deadline that fails the test.
func (w *wire) dial(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	client = w.reach(t)
	server = (<-w.accepted).(*net.TCPConn)
	require.NoError(t, server.SetDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}

func (w *wire) reach(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", w.Addr())
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
}

func receive(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

func TestProxy_forwardsBothDirections(t *testing.T) {
	w := newWire(t)
	client, server := w.dial(t)
	for range 3 {
		send(t, client, "question")
		receive(t, server, "question")
		send(t, server, "answer")
		receive(t, client, "answer")
	}

	// The other direction stays open when one direction ends.
	require.NoError(t, client.CloseWrite())
	rest, err := io.ReadAll(server)
	require.NoError(t, err)
	assert.Empty(t, rest)
	send(t, server, "more")
	require.NoError(t, server.Close())
	all, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "more", string(all))
	assert.Eventually(t, func() bool { return len(w.Conns()) == 0 }, time.Minute, time.Millisecond)
}

func TestConn_endsBothSides(t *testing.T) {
	for _, row := range []struct {
		name  string
		end   func(*wire)
		clean bool
	}{
		{"cut", func(w *wire) { w.Conns()[0].Cut() }, true},
		{"reset", func(w *wire) { w.Conns()[0].Reset() }, false},
		{"closed", func(w *wire) { assert.NoError(t, w.Close()) }, true},
		{"cut while it is halted", func(w *wire) { w.Halt(); w.Conns()[0].Cut() }, true},
		{"cut, and again", func(w *wire) { c := w.Conns()[0]; c.Cut(); c.Reset() }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			client, server := w.dial(t)
			send(t, client, "x")
			receive(t, server, "x")
			row.end(w)
			for _, conn := range []net.Conn{client, server} {
				n, err := conn.Read(make([]byte, 1))
				assert.Zero(t, n)
				assert.Equal(t, row.clean, errors.Is(err, io.EOF), err)
			}
		})
	}
}

// Halted data arrives after Resume, or never if the connection is cut before.
func TestHalt_delaysData(t *testing.T) {
	for _, row := range []struct {
		name         string
		halt, resume func(*wire)
	}{
		{"one connection", func(w *wire) { w.Conns()[0].Halt() }, func(w *wire) { w.Conns()[0].Resume() }},
		{"the wire", func(w *wire) { w.Halt() }, func(w *wire) { w.Resume() }},
		{"twice", func(w *wire) { w.Halt(); w.Halt() }, func(w *wire) { w.Resume(); w.Resume() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			client, server := w.dial(t)
			row.halt(w)
			send(t, client, "held back")
			row.resume(w)
			receive(t, server, "held back")

			row.halt(w)
			send(t, client, "lost")
			w.Conns()[0].Cut()
			got, err := io.ReadAll(server)
			require.NoError(t, err)
			assert.Empty(t, got)
		})
	}
}

// A muted server receives data, and its answer does not arrive.
func TestMute_delaysOnlyTheServersData(t *testing.T) {
	w := newWire(t)
	client, server := w.dial(t)
	w.Conns()[0].Mute()
	send(t, client, "question")
	receive(t, server, "question")
	send(t, server, "answer")
	w.Conns()[0].Resume()
	receive(t, client, "answer")

	w.Conns()[0].Mute()
	send(t, client, "more")
	receive(t, server, "more")
	send(t, server, "lost")
	w.Conns()[0].Cut()
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Empty(t, got)
}

// Halt also delays the end of a connection, and new connections.
func TestHalt_delaysTheEndOfConnections(t *testing.T) {
	w := newWire(t)
	client, server := w.dial(t)
	w.Halt()
	require.NoError(t, client.Close())
	late := w.reach(t)
	send(t, late, "late")
	send(t, server, "lost") // the server does not know that the client has closed
	assert.Empty(t, w.accepted)
	w.Resume()
	rest, err := io.ReadAll(server)
	assert.Empty(t, rest)
	_ = err // EOF, or a reset: both sides sent at the same time
	receive(t, <-w.accepted, "late")
}

func TestDelay_delaysEachChunk(t *testing.T) {
	w := newWire(t)
	client, server := w.dial(t)
	w.Delay(time.Hour)
	send(t, client, "lost")
	w.Conns()[0].Cut()
	got, err := io.ReadAll(server)
	require.NoError(t, err)
	assert.Empty(t, got)

	w.Delay(time.Millisecond)
	client, server = w.dial(t)
	send(t, client, "late")
	receive(t, server, "late")
}

func TestProxy_resetsWhenDialFails(t *testing.T) {
	connected := make(chan struct{})
	p, err := tcpproxy.Listen(t.Context(), func(context.Context) (net.Conn, error) {
		<-connected
		return nil, assert.AnError
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	close(connected)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	assert.NotErrorIs(t, err, io.EOF, "it is reset")
}
