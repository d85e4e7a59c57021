//go:build unix

package postgrestest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// helper is set in the child process that starts a server and is then killed.
const helper = "POSTGRESTEST_HELPER"

const notInstalled = "not installed"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	server, err := postgrestest.Start(context.Background())
	switch {
	case errors.Is(err, postgrestest.ErrNotInstalled):
		fmt.Println(notInstalled)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println(server.DSN())
		<-time.After(time.Minute) // until the test kills it
	}
}

func TestServer_Stop(t *testing.T) {
	server := postgrestest.StartTB(t)
	require.NoError(t, server.Stop())
	assert.NoDirExists(t, directory(t, server.DSN()))
	require.NoError(t, server.Stop(), "again")
}

// A killed process cannot stop its server: the cleanup process stops it and removes its
// files.
func TestServer_stopsWhenItsProcessIsKilled(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helper+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	dsn := lines.Text()
	if dsn == notInstalled {
		t.Skip(postgrestest.ErrNotInstalled)
	}
	require.True(t, answers(t, dsn), dsn)

	require.NoError(t, cmd.Process.Kill())
	assert.Error(t, cmd.Wait())
	assert.Eventually(t, func() bool {
		_, err := os.Stat(directory(t, dsn))
		return errors.Is(err, os.ErrNotExist) && !answers(t, dsn)
	}, time.Minute, 10*time.Millisecond)
}

func answers(t *testing.T, dsn string) bool {
	t.Helper()
	conn, err := net.Dial("unix", directory(t, dsn)+"/.s.PGSQL.5432")
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func directory(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	return u.Query().Get("host")
}
