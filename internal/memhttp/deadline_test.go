package memhttp

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

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
				fill(t, a)
				return a
			}
			blocked := func(c *Conn) <-chan error {
				done := make(chan error, 1)
				go func() { done <- row.call(c) }()
				return done
			}
			t.Run("past", func(t *testing.T) {
				both(t, func(t *testing.T) {
					c := start(t)
					require.NoError(t, row.set(c, long))
					for range 3 {
						requireTimeout(t, row.call(c))
					}
				})
			})
			t.Run("present", func(t *testing.T) {
				both(t, func(t *testing.T) {
					c := start(t)
					done := blocked(c)
					require.NoError(t, row.set(c, time.Now()))
					requireTimeout(t, <-done)
				})
			})
			t.Run("future", func(t *testing.T) {
				both(t, func(t *testing.T) {
					c := start(t)
					begin := time.Now()
					done := blocked(c)
					require.NoError(t, row.set(c, begin.Add(20*time.Millisecond)))
					requireTimeout(t, <-done)
					require.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)
					requireTimeout(t, row.call(c)) // it stays passed
				})
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
			t.Run("close while blocked", func(t *testing.T) {
				both(t, func(t *testing.T) {
					c := start(t)
					require.NoError(t, row.set(c, time.Now().Add(time.Hour)))
					first, second := blocked(c), blocked(c)
					require.NoError(t, c.Close())
					require.ErrorIs(t, <-first, net.ErrClosed)
					require.ErrorIs(t, <-second, net.ErrClosed)
				})
			})
			t.Run("set, moved and cleared at once", func(t *testing.T) {
				both(t, func(t *testing.T) {
					c := start(t)
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
		})
	}
}

func TestConn_deadlineHidesData(t *testing.T) {
	a, b := pair(t)
	write(t, b, "x")
	require.NoError(t, a.SetReadDeadline(time.Unix(1, 0)))
	_, err := a.Read(make([]byte, 1))
	requireTimeout(t, err)
	require.NoError(t, a.SetReadDeadline(time.Time{}))
	n, err := a.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestConn_partialWriteTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := pair(t)
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := a.Write(make([]byte, bufferSize+1))
		requireTimeout(t, err)
		require.Equal(t, bufferSize, n)
	})
}

// A deadline that is replaced while it passes has no effect.
func TestConn_replacedDeadlineHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		for range 2000 {
			require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Nanosecond)))
			time.Sleep(time.Nanosecond)
			require.NoError(t, a.SetReadDeadline(time.Time{}))
			synctest.Wait()
			write(t, b, "x")
			_, err := a.Read(make([]byte, 1))
			require.NoError(t, err)
		}
	})
}
