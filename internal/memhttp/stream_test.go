package memhttp

import (
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConn_latency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const up, down = 3 * time.Second, time.Second
		a, b := pair(t, up, down)
		begin := time.Now()
		write(t, a, "one")
		time.Sleep(time.Second)
		write(t, a, "two")
		buf := make([]byte, 10)
		n, err := b.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "one", string(buf[:n]))
		require.Equal(t, up, time.Since(begin))
		require.NoError(t, a.Close()) // its fin must not overtake "two"
		n, err = b.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "two", string(buf[:n]))
		require.Equal(t, up+time.Second, time.Since(begin))
		_, err = b.Read(buf)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, up+up, time.Since(begin))
	})
}

// Until the writer knows of the close, it can write one buffer.
func TestConn_latencyLosesOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, 2*time.Second, time.Second)
		begin := time.Now()
		require.NoError(t, b.Close())
		n, err := a.Write(make([]byte, 3*bufferSize))
		require.ErrorIs(t, err, syscall.EPIPE)
		require.Equal(t, bufferSize, n)
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}
