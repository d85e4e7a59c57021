package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The lab starts processes, so only this machine may reach it.
func TestServe_loopbackOnly(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "127.0.0.1", "127.0.0.1:port", ""} {
		require.ErrorContains(t, serve(addr), "want a loopback address", addr)
	}
}
