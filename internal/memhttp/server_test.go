package memhttp_test

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// both runs f in a bubble and in real time.
func both(t *testing.T, f func(t *testing.T)) {
	bubble.Run(t, "bubble", f)
	t.Run("real time", f)
}

// protocols are the protocols that the server tests run over.
var protocols = []struct {
	name  string
	opts  []memhttp.Option
	major int
}{
	{"http/1", nil, 1},
	{"h2c", []memhttp.Option{memhttp.HTTP2()}, 2},
	{"https/1", []memhttp.Option{memhttp.TLS()}, 1},
	{"https/2", []memhttp.Option{memhttp.TLS(), memhttp.HTTP2()}, 2},
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

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
			assert.ErrorIs(t, errOf(io.Copy(io.Discard, c)), syscall.ECONNRESET)
			assert.NoError(t, c.Close())
		}))
		c, err := n.DialContext(t.Context(), "tcp", "shared.test:80")
		require.NoError(t, err)
		require.NoError(t, errOf(io.WriteString(c, "GET / HTTP/1.1\r\nHost: shared.test\r\n\r\n")))
		synctest.Wait()
		s.Close()
		require.ErrorIs(t, errOf(c.Read(make([]byte, 1))), syscall.ECONNRESET)
		require.ErrorIs(t, errOf(io.WriteString(c, "more")), syscall.ECONNRESET)
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

// net/http notices closed idle connections before the next request.
func TestResetConns_idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(t, hello)
		c := &http.Client{Transport: s.Transport()}
		get(t, c, s.URL)
		s.ResetConns()
		synctest.Wait()
		opened, open := s.Conns()
		require.Equal(t, [2]int{1, 0}, [2]int{opened, open})
		get(t, c, s.URL)
		opened, open = s.Conns()
		require.Equal(t, [2]int{2, 1}, [2]int{opened, open})
	})
}

func TestDials(t *testing.T) {
	for _, row := range []struct {
		name string
		host string
		want error
	}{
		{"a name", "a.test", nil},
		{"any case, any port", "A.Test:8080", nil},
		{"a port of its own", "b.test:81", nil},
		{"another port", "b.test:82", syscall.ECONNREFUSED},
		{"no listener", "c.test", syscall.ECONNREFUSED},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			n.Serve(t, "a.test", hello)
			n.Serve(t, "B.test:81", hello)
			c := &http.Client{Transport: n.Transport()}
			resp, err := c.Get("http://" + row.host)
			if row.want == nil {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return
			}
			require.ErrorIs(t, err, row.want)
			var oe *net.OpError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, "dial", oe.Op)
		})
	}
}

func TestDialContext(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, row := range []struct {
		name    string
		ctx     context.Context
		address string
		want    string
	}{
		{"canceled", canceled, "a.test:80", "context canceled"},
		{"no port", context.Background(), "a.test", "missing port in address"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			n.Serve(t, "a.test", hello)
			_, err := n.DialContext(row.ctx, "tcp", row.address)
			require.ErrorContains(t, err, row.want)
			require.IsType(t, (*net.OpError)(nil), err)
		})
	}
}

// Close of a server resets only its connections, and another server can use its host.
func TestServer_restart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memhttp.NewNetwork(t)
		a := n.Serve(t, "a.test", hello)
		b := n.Serve(t, "b.test", hello)
		require.Panics(t, func() { n.Listen("A.test") })
		c := &http.Client{Transport: n.Transport()}
		get(t, c, a.URL)
		get(t, c, b.URL)
		a.Close()
		require.ErrorIs(t, errOf(c.Get(a.URL)), syscall.ECONNREFUSED)
		get(t, c, b.URL)
		opened, open := b.Conns()
		require.Equal(t, [2]int{1, 1}, [2]int{opened, open})
		a = n.Serve(t, "a.test", hello)
		get(t, c, a.URL)
	})
}

// A hand-written server can send responses that net/http cannot.
func TestListen(t *testing.T) {
	both(t, func(t *testing.T) {
		n := memhttp.NewNetwork(t)
		l := n.Listen("raw.test")
		require.Equal(t, "raw.test", l.Addr().String())
		go func() {
			c, err := l.Accept()
			if !assert.NoError(t, err) {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, "garbage\r\n\r\n")
			assert.NoError(t, c.Close())
		}()
		tr := n.Transport()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://raw.test", nil)
		require.NoError(t, err)
		require.ErrorContains(t, errOf(tr.RoundTrip(req)), "malformed HTTP")

		c, err := n.DialContext(t.Context(), "tcp", "raw.test:80")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.ErrorIs(t, errOf(c.Read(make([]byte, 1))), syscall.ECONNRESET, "never accepted")
		require.NoError(t, c.Close())
		require.ErrorIs(t, l.Close(), net.ErrClosed)
		require.ErrorIs(t, errOf(l.Accept()), net.ErrClosed)
	})
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
