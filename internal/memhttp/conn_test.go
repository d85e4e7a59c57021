package memhttp

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// fill writes to c until it blocks.
func fill(t *testing.T, c *Conn) {
	t.Helper()
	n, err := c.Write(make([]byte, bufferSize))
	require.NoError(t, err)
	require.Equal(t, bufferSize, n)
}

// Both ends send more than the buffers hold at the same time.
func TestConn_transfersMoreThanItsBuffer(t *testing.T) {
	for _, row := range []struct {
		name string
		size int
	}{
		{"nothing", 0},
		{"a byte", 1},
		{"a buffer", bufferSize},
		{"many buffers", 1 << 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				a, b := pair(t)
				var wg sync.WaitGroup
				for _, c := range []*Conn{a, b} {
					sent := make([]byte, row.size)
					for i := range sent {
						sent[i] = byte(rand.Uint32())
					}
					wg.Go(func() {
						for rest := sent; len(rest) > 0; {
							k := min(len(rest), 1+rand.IntN(100_000))
							n, err := c.Write(rest[:k])
							assert.NoError(t, err)
							assert.Equal(t, k, n)
							rest = rest[k:]
						}
						assert.NoError(t, c.CloseWrite())
					})
					peer := map[*Conn]*Conn{a: b, b: a}[c]
					wg.Go(func() {
						got, err := io.ReadAll(uneven{peer})
						assert.NoError(t, err)
						assert.True(t, bytes.Equal(sent, got))
					})
				}
				wg.Wait()
			})
		})
	}
}

// uneven reads chunks of changing size.
type uneven struct{ r io.Reader }

func (s uneven) Read(p []byte) (int, error) {
	return s.r.Read(p[:min(len(p), 1+rand.IntN(10_000))])
}

// All methods run concurrently, for the race detector.
func TestConn_race(t *testing.T) {
	both(t, func(t *testing.T) {
		a, b := pair(t)
		var wg sync.WaitGroup
		for _, c := range []*Conn{a, b} {
			for _, f := range []func(){
				func() { _, _ = c.Read(make([]byte, 100)) },
				func() { _, _ = c.Write(make([]byte, 1000)) },
				func() { _ = c.SetDeadline(time.Now().Add(10 * time.Microsecond)) },
				func() { _ = c.SetReadDeadline(time.Now().Add(20 * time.Microsecond)) },
				func() { _ = c.SetWriteDeadline(time.Now().Add(20 * time.Microsecond)) },
				func() { _, _ = c.LocalAddr(), c.RemoteAddr() },
				func() { _ = c.SetLinger(1) },
			} {
				for range 3 {
					wg.Go(func() {
						for range 100 {
							f()
						}
					})
				}
			}
		}
		wg.Wait()
		for range 3 {
			wg.Go(func() { _ = a.Close() })
			wg.Go(func() { _ = b.CloseWrite() })
			wg.Go(func() { Reset(b) })
		}
		wg.Wait()
	})
}

func TestConn_useAfterClose(t *testing.T) {
	for _, row := range []struct {
		name string
		call func(*Conn) error
	}{
		{"read", func(c *Conn) error { _, err := c.Read(nil); return err }},
		{"write", func(c *Conn) error { _, err := c.Write(nil); return err }},
		{"close", (*Conn).Close},
		{"close write", (*Conn).CloseWrite},
		{"set", func(c *Conn) error { return c.SetDeadline(time.Time{}) }},
		{"set", func(c *Conn) error { return c.SetReadDeadline(time.Time{}) }},
		{"set", func(c *Conn) error { return c.SetWriteDeadline(time.Time{}) }},
		{"set", func(c *Conn) error { return c.SetLinger(0) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, _ := pair(t)
			require.NoError(t, a.Close())
			err := row.call(a)
			require.ErrorIs(t, err, net.ErrClosed)
			require.IsType(t, (*net.OpError)(nil), err)
		})
	}
}

func TestConn_errorText(t *testing.T) {
	a, b := pair(t)
	Reset(b)
	_, err := a.Read(make([]byte, 1))
	require.EqualError(t, err, "read tcp a:1->b:2: read: connection reset by peer")
}

// Unlike TCP, all later calls return the reset.
func TestConn_resetStays(t *testing.T) {
	a, b := pair(t)
	Reset(b)
	for range 3 {
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = a.Write(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	Reset(b) // again: nothing
}

func TestConn_firstErrorStays(t *testing.T) {
	a, b := pair(t)
	require.NoError(t, b.Close())
	write(t, a, "lost")
	a.abort()
	_, err := a.Write(make([]byte, 1))
	require.ErrorIs(t, err, syscall.EPIPE)
	_, err = a.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// Close ends each blocked call of the peer.
func TestConn_closeUnblocksPeer(t *testing.T) {
	for _, row := range []struct {
		name  string
		close func(*Conn)
		read  error
		write error
	}{
		{"close", func(c *Conn) { _ = c.Close() }, syscall.ECONNRESET, syscall.ECONNRESET}, // what filled the buffer was unread
		{"reset", func(c *Conn) { Reset(c) }, syscall.ECONNRESET, syscall.ECONNRESET},
		{"abort", (*Conn).abort, syscall.ECONNRESET, syscall.ECONNRESET},
		{"half-close, then close", func(c *Conn) { _, _ = c.CloseWrite(), c.Close() }, io.EOF, syscall.EPIPE},
	} {
		t.Run(row.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				a, b := pair(t)
				fill(t, a)
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := a.Read(make([]byte, 1))
					assert.ErrorIs(t, err, row.read)
				})
				wg.Go(func() {
					_, err := a.Write(make([]byte, 1))
					assert.ErrorIs(t, err, row.write)
				})
				time.Sleep(time.Millisecond)
				row.close(b)
				wg.Wait()
			})
		})
	}
}
