//go:build unix

package redistest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// Stop removes all files.
func TestServer_Stop(t *testing.T) {
	server := redistest.StartTB(t)
	require.NoError(t, server.Stop())
	require.NoDirExists(t, filepath.Dir(server.Socket()))
	require.NoError(t, server.Stop(), "again")
}
