package memhttp

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tcpConn has the methods that *net.TCPConn and *Conn share.
type tcpConn interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// The same steps have the same results in memory and over a loopback socket of Linux. No
// step depends on time: each waits for the effect of the previous one.
func TestConn_behavesLikeTCP(t *testing.T) {
	read := func(want string) func(*testing.T, tcpConn) {
		return func(t *testing.T, c tcpConn) {
			buf := make([]byte, len(want))
			_, err := io.ReadFull(c, buf)
			require.NoError(t, err)
			require.Equal(t, want, string(buf))
		}
	}
	readErr := func(want error) func(*testing.T, tcpConn) {
		return func(t *testing.T, c tcpConn) {
			n, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, want)
			require.Zero(t, n)
			if want != io.EOF {
				require.IsType(t, (*net.OpError)(nil), err)
			}
		}
	}
	send := func(text string) func(*testing.T, tcpConn) {
		return func(t *testing.T, c tcpConn) { write(t, c, text) }
	}
	// Over a socket the error may need several writes to arrive.
	sendErr := func(want error) func(*testing.T, tcpConn) {
		return func(t *testing.T, c tcpConn) {
			for range 1000 {
				if _, err := c.Write([]byte("w")); err != nil {
					require.ErrorIs(t, err, want)
					require.IsType(t, (*net.OpError)(nil), err)
					return
				}
				time.Sleep(time.Millisecond)
			}
			require.Fail(t, "writes go on without an error")
		}
	}
	closeIt := func(t *testing.T, c tcpConn) { require.NoError(t, c.Close()) }
	half := func(t *testing.T, c tcpConn) { require.NoError(t, c.CloseWrite()) }
	halfErr := func(t *testing.T, c tcpConn) {
		require.ErrorIs(t, c.CloseWrite(), syscall.ENOTCONN)
	}
	linger0 := func(t *testing.T, c tcpConn) { require.NoError(t, c.SetLinger(0)) }
	linger1 := func(t *testing.T, c tcpConn) { require.NoError(t, c.SetLinger(1)) }
	empty := func(t *testing.T, c tcpConn) {
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
		n, err := c.Read(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = c.Write(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, c.SetWriteDeadline(time.Unix(1, 0)))
		_, err = c.Write(nil)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}

	type step struct {
		end int
		do  func(*testing.T, tcpConn)
	}
	const a, b = 0, 1
	table := []struct {
		name  string
		steps []step
	}{
		{"close: the rest, then EOF", []step{
			{b, send("part")}, {b, closeIt}, {a, read("part")}, {a, readErr(io.EOF)}, {a, readErr(io.EOF)},
		}},
		{"close: the first write is lost, the next fails", []step{
			{b, closeIt}, {a, readErr(io.EOF)}, {a, send("lost")}, {a, sendErr(syscall.EPIPE)},
			{a, sendErr(syscall.EPIPE)}, {a, readErr(io.EOF)},
		}},
		{"close with unread data: the rest, then reset", []step{
			{b, send("part")}, {a, send("unread")}, {b, read("un")}, {b, closeIt},
			{a, read("part")}, {a, readErr(syscall.ECONNRESET)},
		}},
		{"linger 0: the rest, then reset", []step{
			{b, send("part")}, {b, linger0}, {b, closeIt}, {a, read("part")}, {a, readErr(syscall.ECONNRESET)},
			{a, halfErr}, {a, closeIt},
		}},
		{"linger 1: nothing special", []step{
			{b, linger0}, {b, linger1}, {b, closeIt}, {a, readErr(io.EOF)},
		}},
		{"half-closed: the other way still works", []step{
			{b, send("part")}, {b, half}, {b, half}, {a, read("part")}, {a, readErr(io.EOF)},
			{a, send("answer")}, {b, read("answer")}, {b, sendErr(syscall.EPIPE)}, {a, closeIt}, {b, readErr(io.EOF)},
		}},
		{"half-closed, then reset by the peer", []step{
			{b, half}, {a, readErr(io.EOF)}, {a, linger0}, {a, closeIt}, {b, readErr(syscall.ECONNRESET)}, {b, halfErr},
		}},
		{"reset after a half-close: EOF stays", []step{
			{b, half}, {a, send("unread")}, {b, read("un")}, {b, closeIt},
			{a, sendErr(syscall.EPIPE)}, {a, readErr(io.EOF)},
		}},
		{"empty reads and writes", []step{{a, empty}}},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			run := func(t *testing.T, ends [2]tcpConn) {
				defer func() { _, _ = ends[a].Close(), ends[b].Close() }()
				for _, s := range row.steps {
					s.do(t, ends[s.end])
				}
			}
			t.Run("memory", func(t *testing.T) {
				x, y := pair(t)
				run(t, [2]tcpConn{x, y})
			})
			t.Run("loopback", func(t *testing.T) {
				if runtime.GOOS != "linux" {
					t.Skip("the errors are those of Linux")
				}
				l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "127.0.0.1:0")
				if err != nil {
					t.Skip("no loopback: ", err)
				}
				defer func() { _ = l.Close() }()
				x, err := net.Dial("tcp4", l.Addr().String())
				require.NoError(t, err)
				y, err := l.Accept()
				require.NoError(t, err)
				run(t, [2]tcpConn{x.(tcpConn), y.(tcpConn)})
			})
		})
	}
}
