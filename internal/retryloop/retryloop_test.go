package retryloop_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/retryloop"
)

// rounds returns Hooks for n retries, one second apart, that log each call with its time.
func rounds(n int, log *[]string) retryloop.Hooks {
	start := time.Now()
	note := func(what string) { *log = append(*log, what+" "+time.Since(start).String()) }
	return retryloop.Hooks{
		ShouldRetry: func() (time.Time, bool) {
			note("should retry")
			n--
			return time.Now().Add(time.Second), n >= 0
		},
		Prepare: func() error { note("prepare"); return nil },
		Do:      func() { note("do") },
	}
}

// TestRun checks the order of the hooks, and their times.
func TestRun(t *testing.T) {
	for _, row := range []struct {
		name   string
		rounds int
		want   []string
	}{
		{"no", 0, []string{"should retry 0s"}},
		{"one round", 1, []string{"should retry 0s", "prepare 1s", "do 1s", "should retry 1s"}},
		{"two rounds", 2, []string{"should retry 0s", "prepare 1s", "do 1s", "should retry 1s", "prepare 2s", "do 2s", "should retry 2s"}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var calls []string
			require.NoError(t, retryloop.Run(t.Context(), rounds(row.rounds, &calls)))
			require.Equal(t, row.want, calls)
		})
	}
	bubble.Run(t, "a time in the past: at once", func(t *testing.T) {
		tries := 0
		start := time.Now()
		require.NoError(t, retryloop.Run(t.Context(), retryloop.Hooks{
			ShouldRetry: func() (time.Time, bool) { return time.Time{}, tries < 1000 },
			Prepare:     func() error { return nil },
			Do:          func() { tries++ },
		}))
		require.Equal(t, 1000, tries, "only ShouldRetry counts")
		require.Zero(t, time.Since(start))
	})
}

// The loop ends without ShouldRetry.
func TestRun_otherEnds(t *testing.T) {
	refused := errors.New("refused")
	bubble.Run(t, "Prepare fails", func(t *testing.T) {
		var calls []string
		hooks := rounds(9, &calls)
		hooks.Prepare = func() error { return refused }
		require.Same(t, refused, retryloop.Run(t.Context(), hooks), "as it is")
		require.Equal(t, []string{"should retry 0s"}, calls)
	})
	bubble.Run(t, "the context ends the wait", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		var calls []string
		start := time.Now()
		require.Equal(t, context.Canceled, retryloop.Run(ctx, rounds(9, &calls)))
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
		require.Equal(t, []string{"should retry 0s", "prepare 1s", "do 1s", "should retry 1s"}, calls)
	})
	bubble.Run(t, "a hook panics", func(t *testing.T) {
		var calls []string
		hooks := rounds(9, &calls)
		hooks.Do = func() { panic("boom") }
		require.PanicsWithValue(t, "boom", func() { _ = retryloop.Run(t.Context(), hooks) })
	})
	bubble.Run(t, "a hook exits its goroutine", func(t *testing.T) {
		var calls []string
		hooks := rounds(9, &calls)
		hooks.Do = runtime.Goexit
		go func() { _ = retryloop.Run(t.Context(), hooks) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"should retry 0s", "prepare 1s"}, calls)
	})
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
