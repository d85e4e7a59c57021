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

	"github.com/resilienthttp/resilienthttp/internal/retryloop"
)

// rounds are Steps that go on for so many rounds, a second apart, and write down
// what was called and when.
func rounds(n int, story *[]string) retryloop.Hooks {
	start := time.Now()
	tell := func(what string) { *story = append(*story, what+" "+time.Since(start).String()) }
	return retryloop.Hooks{
		ShouldRetry: func() (time.Time, bool) {
			tell("again")
			n--
			return time.Now().Add(time.Second), n >= 0
		},
		Prepare: func() error { tell("prepare"); return nil },
		Do:      func() { tell("try") },
	}
}

// TestRun is the order of the steps, and their times.
func TestRun(t *testing.T) {
	for _, row := range []struct {
		name   string
		rounds int
		want   []string
	}{
		{"no", 0, []string{"again 0s"}},
		{"one round", 1, []string{"again 0s", "prepare 1s", "try 1s", "again 1s"}},
		{"two rounds", 2, []string{"again 0s", "prepare 1s", "try 1s", "again 1s", "prepare 2s", "try 2s", "again 2s"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var story []string
				require.NoError(t, retryloop.Run(t.Context(), rounds(row.rounds, &story)))
				require.Equal(t, row.want, story)
			})
		})
	}
	t.Run("a time that is over is now", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			start := time.Now()
			require.NoError(t, retryloop.Run(t.Context(), retryloop.Hooks{
				ShouldRetry: func() (time.Time, bool) { return time.Time{}, tries < 1000 },
				Prepare:     func() error { return nil },
				Do:          func() { tries++ },
			}))
			require.Equal(t, 1000, tries, "nobody counts but Again")
			require.Zero(t, time.Since(start))
		})
	})
}

// TestEnds are the other ends than Again's no.
func TestEnds(t *testing.T) {
	refused := errors.New("refused")
	t.Run("Prepare fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var story []string
			steps := rounds(9, &story)
			steps.Prepare = func() error { return refused }
			require.Same(t, refused, retryloop.Run(t.Context(), steps), "as it is")
			require.Equal(t, []string{"again 0s"}, story)
		})
	})
	t.Run("the context ends the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(1500*time.Millisecond, cancel)
			var story []string
			start := time.Now()
			require.Equal(t, context.Canceled, retryloop.Run(ctx, rounds(9, &story)))
			require.Equal(t, 1500*time.Millisecond, time.Since(start))
			require.Equal(t, []string{"again 0s", "prepare 1s", "try 1s", "again 1s"}, story)
		})
	})
	t.Run("a step panics", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var story []string
			steps := rounds(9, &story)
			steps.Do = func() { panic("boom") }
			require.PanicsWithValue(t, "boom", func() { _ = retryloop.Run(t.Context(), steps) })
		})
	})
	t.Run("a step ends its goroutine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var story []string
			steps := rounds(9, &story)
			steps.Do = runtime.Goexit
			go func() { _ = retryloop.Run(t.Context(), steps) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []string{"again 0s", "prepare 1s"}, story)
		})
	})
}

// idleCloser is http.DefaultTransport's stand-in.
type idleCloser struct {
	http.RoundTripper
	closed bool
}

func (c *idleCloser) CloseIdleConnections() { c.closed = true }

// TestTraps is what the package's comment promises of the loop itself.
func TestTraps(t *testing.T) {
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
		http.DefaultTransport = spy                         //nolint:reassign // put back below
		defer func() { http.DefaultTransport = original }() //nolint:reassign // as it was
		require.ErrorIs(t, failing(), io.EOF)
		require.False(t, spy.closed)
	})
	t.Run("silence", func(t *testing.T) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		stderr := os.Stderr
		os.Stderr = w //nolint:reassign // where a logger of last resort writes to
		log.SetOutput(w)
		require.ErrorIs(t, failing(), io.EOF)
		os.Stderr = stderr //nolint:reassign // as it was
		log.SetOutput(stderr)
		require.NoError(t, w.Close())
		logged, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Empty(t, string(logged))
	})
}
