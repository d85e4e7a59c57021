//go:build unix

package postgrestest_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

func TestBouncer_restartsAfterCrash(t *testing.T) {
	server := postgrestest.StartTB(t)
	bouncer, err := postgrestest.StartBouncer(t.Context(), server)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, bouncer.Stop()) })
	assert.Equal(t, byte('R'), greeting(t, bouncer.Socket()), "that of a server: an authentication request")

	require.NoError(t, bouncer.Crash())
	assert.Eventually(t, func() bool { return !listens(bouncer.Socket()) }, time.Minute, time.Millisecond)
	require.NoError(t, bouncer.Restart(t.Context()))
	assert.Equal(t, byte('R'), greeting(t, bouncer.Socket()))

	require.NoError(t, bouncer.Stop())
	assert.NoDirExists(t, filepath.Dir(bouncer.Socket()))
	require.NoError(t, bouncer.Stop(), "again")
}

func listens(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// greeting returns the first byte of the answer to a startup message.
func greeting(t *testing.T, socket string) byte {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	hello := "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	_, err = conn.Write([]byte("\x00\x00\x00" + string(rune(len(hello)+4)) + hello))
	require.NoError(t, err)
	answer := make([]byte, 1)
	_, err = conn.Read(answer)
	require.NoError(t, err)
	return answer[0]
}
