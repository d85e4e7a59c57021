package memhttp

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// both runs f in a bubble and in real time.
func both(t *testing.T, f func(t *testing.T)) {
	bubble.Run(t, "bubble", f)
	t.Run("real time", f)
}

// pair returns two ends that are closed with the test.
func pair(t *testing.T) (a, b *Conn) {
	a, b = newConns("a:1", "b:2")
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	n, err := c.Write([]byte(text))
	require.NoError(t, err)
	require.Equal(t, len(text), n)
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.IsType(t, (*net.OpError)(nil), err)
}

func TestConn_deadlines(t *testing.T) {
	long := time.Unix(1, 0)
	read := func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err }
	write := func(c *Conn) error { _, err := c.Write(make([]byte, 1)); return err }
	for _, row := range []struct {
		name string
		set  func(*Conn, time.Time) error
		call func(*Conn) error
	}{
		{"read", (*Conn).SetReadDeadline, read},
		{"write", (*Conn).SetWriteDeadline, write},
		{"both, reading", (*Conn).SetDeadline, read},
		{"both, writing", (*Conn).SetDeadline, write},
	} {
		t.Run(row.name, func(t *testing.T) {
			// start returns an end on which reads and writes block.
			start := func(t *testing.T) *Conn {
				a, _ := pair(t)
				n, err := a.Write(make([]byte, bufferSize))
				require.NoError(t, err)
				require.Equal(t, bufferSize, n)
				return a
			}
			blocked := func(c *Conn) <-chan error {
				done := make(chan error, 1)
				go func() { done <- row.call(c) }()
				return done
			}
			// on runs f in a bubble and in real time, with an end on which reads and writes block.
			on := func(name string, f func(*testing.T, *Conn)) {
				t.Run(name, func(t *testing.T) { both(t, func(t *testing.T) { f(t, start(t)) }) })
			}
			on("past", func(t *testing.T, c *Conn) {
				require.NoError(t, row.set(c, long))
				for range 3 {
					requireTimeout(t, row.call(c))
				}
			})
			on("present", func(t *testing.T, c *Conn) {
				done := blocked(c)
				require.NoError(t, row.set(c, time.Now()))
				requireTimeout(t, <-done)
			})
			on("future", func(t *testing.T, c *Conn) {
				begin := time.Now()
				done := blocked(c)
				require.NoError(t, row.set(c, begin.Add(20*time.Millisecond)))
				requireTimeout(t, <-done)
				require.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)
				requireTimeout(t, row.call(c)) // it stays passed
			})
			bubble.Run(t, "past while blocked", func(t *testing.T) {
				c := start(t)
				first, second := blocked(c), blocked(c)
				synctest.Wait()
				require.NoError(t, row.set(c, long))
				requireTimeout(t, <-first)
				requireTimeout(t, <-second)
			})
			bubble.Run(t, "moved and cleared", func(t *testing.T) {
				c := start(t)
				begin := time.Now()
				done := blocked(c)
				require.NoError(t, row.set(c, begin.Add(time.Hour)))
				require.NoError(t, row.set(c, time.Time{}))
				time.Sleep(2 * time.Hour)
				require.Empty(t, done)
				require.NoError(t, row.set(c, begin.Add(3*time.Hour)))
				require.NoError(t, row.set(c, begin.Add(4*time.Hour)))
				requireTimeout(t, <-done)
				require.Equal(t, 4*time.Hour, time.Since(begin))
			})
			on("close while blocked", func(t *testing.T, c *Conn) {
				require.NoError(t, row.set(c, time.Now().Add(time.Hour)))
				first, second := blocked(c), blocked(c)
				require.NoError(t, c.Close())
				require.ErrorIs(t, <-first, net.ErrClosed)
				require.ErrorIs(t, <-second, net.ErrClosed)
			})
			on("set, moved and cleared at once", func(t *testing.T, c *Conn) {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						for range 100 {
							_ = row.set(c, time.Now().Add(time.Duration(rand.IntN(3)-1)*time.Microsecond))
							_ = row.set(c, time.Time{})
						}
					})
					wg.Go(func() {
						for errors.Is(row.call(c), os.ErrDeadlineExceeded) {
						}
					})
				}
				time.Sleep(5 * time.Millisecond)
				require.NoError(t, c.Close())
				wg.Wait()
			})
		})
	}
}

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
