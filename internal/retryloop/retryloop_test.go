package retryloop_test

import (
	"io"
	"log"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/retryloop"
)

// A panic of a hook goes on, and so does the end of its goroutine.
func TestRun_panics(t *testing.T) {
	hooks := retryloop.Hooks{
		ShouldRetry: func() (time.Time, bool) { return time.Time{}, true },
		Prepare:     func() error { return nil },
		Do:          func() { panic("boom") },
	}
	require.PanicsWithValue(t, "boom", func() { _ = retryloop.Run(t.Context(), hooks) })
	hooks.Do = runtime.Goexit
	var loop sync.WaitGroup
	loop.Go(func() {
		_ = retryloop.Run(t.Context(), hooks)
		t.Error("Run has returned")
	})
	loop.Wait()
}

// idleCloser replaces http.DefaultTransport.
type idleCloser struct {
	http.RoundTripper
	closed bool
}

func (c *idleCloser) CloseIdleConnections() { c.closed = true }

// The package comment lists what the loop itself must not do.
func TestRun_doesNotLogOrCloseIdleConns(t *testing.T) {
	failing := func() error {
		return retryloop.Run(t.Context(), retryloop.Hooks{
			ShouldRetry: func() (time.Time, bool) { return time.Time{}, true },
			Prepare:     func() error { return io.EOF },
			Do:          func() {},
		})
	}
	t.Run("idle connections", func(t *testing.T) {
		original := http.DefaultTransport
		spy := &idleCloser{RoundTripper: original}
		http.DefaultTransport = spy                         //nolint:reassign // restored below
		defer func() { http.DefaultTransport = original }() //nolint:reassign // restored
		require.ErrorIs(t, failing(), io.EOF)
		require.False(t, spy.closed)
	})
	t.Run("log", func(t *testing.T) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		stderr := os.Stderr
		os.Stderr = w //nolint:reassign // the output of a default logger
		log.SetOutput(w)
		require.ErrorIs(t, failing(), io.EOF)
		os.Stderr = stderr //nolint:reassign // restored
		log.SetOutput(stderr)
		require.NoError(t, w.Close())
		logged, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Empty(t, string(logged))
	})
}
