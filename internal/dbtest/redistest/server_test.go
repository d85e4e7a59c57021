//go:build unix

package redistest_test

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// A killed server has all writes after its restart. Stop removes all files.
func TestServer_restartsAfterCrash(t *testing.T) {
	server := redistest.StartTB(t)
	// The last write is appended while the file is still being flushed.
	require.Equal(t, "+OK\r\n", say(t, server, "SET much "+strings.Repeat("x", 60_000)))
	require.Equal(t, "+OK\r\n", say(t, server, "SET name value"))
	require.NoError(t, server.Crash())
	_, err := net.Dial("unix", server.Socket())
	require.Error(t, err)
	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, "$5\r\n", say(t, server, "GET name"))
	require.NoError(t, server.Stop())
	require.NoDirExists(t, filepath.Dir(server.Socket()))
	require.NoError(t, server.Stop(), "again")
}

func say(t *testing.T, server *redistest.Server, command string) string {
	t.Helper()
	conn, err := net.Dial("unix", server.Socket())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(command + "\r\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	return line
}
