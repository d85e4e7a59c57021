package memhttp_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

func TestShutdown(t *testing.T) {
	for _, p := range protocols {
		bubble.Run(t, p.name, func(t *testing.T) {
			s := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Minute)
				hello(w, r)
			}), p.opts...)
			c := &http.Client{Transport: s.Transport()}
			done := make(chan error)
			go func() {
				time.Sleep(time.Second)
				done <- s.Config.Shutdown(t.Context())
			}()
			_, body := get(t, c, s.URL)
			require.Equal(t, "hello", body)
			require.NoError(t, <-done)
			_, err := c.Get(s.URL)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		})
	}
}

// Close ends the bubble, regardless of what handlers do.
func TestClose_waitsForBusyHandlers(t *testing.T) {
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		h1only  bool
	}{
		{"sleeps", func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }, false},
		{"waits for its context", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
		{"reads", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		{"writes", func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, false},
		{"hijacks and reads", func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}, true},
		{"hijacks and sleeps", func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			time.Sleep(time.Hour)
			_ = c.Close()
		}, true},
		{"has answered, and lingers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close") // the rest of the body unread: net/http waits half a second
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}, true},
	} {
		for _, p := range protocols {
			if row.h1only && p.major > 1 {
				continue
			}
			bubble.Run(t, row.name+", "+p.name, func(t *testing.T) {
				n := memhttp.NewNetwork(t)
				s := n.Serve(t, "shared.test", row.handler, p.opts...)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel() // for what of the response is not read
				pr, pw := io.Pipe()
				defer func() { _ = pw.Close() }()
				go func() { _, _ = pw.Write(make([]byte, 1<<20)) }()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, pr)
				require.NoError(t, err)
				go func() {
					resp, err := s.Transport().RoundTrip(req)
					if err == nil {
						<-ctx.Done()
						_ = resp.Body.Close()
					}
				}()
				time.Sleep(time.Second)
			})
		}
	}
}

// net/http does not track a hijacked connection, and its client does not close it.
func TestClose_endsHijackedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memhttp.NewNetwork(t)
		s := n.Serve(t, "shared.test", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			assert.NoError(t, err)
			_, err = io.Copy(io.Discard, c)
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			assert.NoError(t, c.Close())
		}))
		c, err := n.DialContext(t.Context(), "tcp", "shared.test:80")
		require.NoError(t, err)
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shared.test\r\n\r\n")
		require.NoError(t, err)
		synctest.Wait()
		s.Close()
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.NoError(t, c.Close())
	})
}

// Close also waits for a handler that is about to start.
func TestClose_waitsForStartingHandlers(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					s := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						time.Sleep(time.Hour)
					}), p.opts...)
					c := &http.Client{Transport: s.Transport()}
					for range 5 {
						go func() {
							resp, err := c.Get(s.URL)
							if err == nil {
								_ = resp.Body.Close()
							}
						}()
					}
					for range rand.IntN(100) {
						runtime.Gosched()
					}
				})
			}
		})
	}
}

func TestClose_twice(t *testing.T) {
	both(t, func(t *testing.T) {
		s := memhttp.NewServer(t, hello)
		get(t, &http.Client{Transport: s.Transport()}, s.URL)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(s.Close)
		}
		wg.Wait()
		s.Close()
	})
}

// The cleanup of NewServer runs inside the bubble, after later cleanups, and virtual time
// passes in it.
func TestNewServer_cleanupRunsInBubble(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	var took time.Duration
	synctest.Test(t, func(t *testing.T) {
		var begin time.Time
		t.Cleanup(func() {
			took = time.Since(begin)
			note("before the server")
		})
		s := memhttp.NewServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Hour)
			note("handler")
		}))
		t.Cleanup(func() { note("after the server") })
		c := &http.Client{Transport: s.Transport(), Timeout: time.Minute}
		_, err := c.Get(s.URL)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		begin = time.Now()
	})
	require.Equal(t, []string{"after the server", "handler", "before the server"}, order)
	require.Equal(t, 59*time.Minute, took.Truncate(time.Second))
}

// logTB records log lines.
type logTB struct {
	testing.TB
	mu  sync.Mutex
	log []string
}

func (l *logTB) Logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &logTB{TB: t}
		var server *http.Server
		s := memhttp.NewServer(tb, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic("oh no")
			}
			time.Sleep(time.Minute)
		}), memhttp.Configure(func(s *http.Server) { server = s }))
		c := &http.Client{Transport: s.Transport(), Timeout: time.Second}
		_, err := c.Get(s.URL + "/panic")
		require.ErrorIs(t, err, io.EOF)
		_, err = c.Get(s.URL)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.Close()
		server.ErrorLog.Print("too late")
		require.Len(t, tb.log, 2)
		require.Contains(t, tb.log[0], "http: panic serving 192.0.2.1:1025: oh no")
		require.Equal(t, "http://mem.test: Close has waited 5s for handlers that do not return", tb.log[1])
	})
}
