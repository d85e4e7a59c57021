package download_test

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/download"
)

// pattern is a file of any size: each byte depends on its offset.
type pattern struct{}

func (pattern) ReadAt(p []byte, offset int64) (int, error) {
	for i := range p {
		at := offset + int64(i)
		p[i] = byte(at ^ at>>8 ^ at>>16)
	}
	return len(p), nil
}

func sum(t *testing.T, r io.Reader) (hash.Hash, int64, error) {
	t.Helper()
	h := sha256.New()
	n, err := io.Copy(h, r)
	return h, n, err
}

// B1, B2: a file through a proxy that cuts each connection after a part of it. It arrives once,
// with at most 2 % more bytes, and no goroutine or connection is left.
func TestDownload_cuttingProxy(t *testing.T) {
	const (
		size  = 64 << 20
		piece = size / 20
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(pattern{}, 0, size))
	}))
	defer server.Close()
	proxy := cuttingProxy(t, server.Listener.Addr().String(), piece)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	get := func(transport http.RoundTripper) (hash.Hash, int64, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+proxy.address, http.NoBody)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		defer func() { require.NoError(t, resp.Body.Close()) }()
		return sum(t, resp.Body)
	}
	_, n, err := get(base)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a bare client gets a part")
	require.Less(t, n, int64(piece))

	proxy.sent.Store(0)
	got, n, err := get(&download.Transport{Base: &resilienthttp.Transport{Base: base}})
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	want, _, err := sum(t, io.NewSectionReader(pattern{}, 0, size))
	require.NoError(t, err)
	require.Equal(t, want.Sum(nil), got.Sum(nil))
	require.LessOrEqual(t, proxy.sent.Load(), int64(size+size/50))
	t.Logf("%d bytes for a file of %d, over %d connections", proxy.sent.Load(), size, proxy.connections.Load())
}

type proxy struct {
	address           string
	sent, connections atomic.Int64
}

// Write counts bytes to the clients.
func (p *proxy) Write(b []byte) (int, error) {
	p.sent.Add(int64(len(b)))
	return len(b), nil
}

// cuttingProxy forwards connections to the address. It closes each one after so many bytes to the
// client.
func cuttingProxy(t *testing.T, to string, after int64) *proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{address: listener.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.connections.Add(1)
			all.Go(func() {
				defer func() { _ = client.Close() }()
				server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
				if !assert.NoError(t, err) {
					return
				}
				defer func() { _ = server.Close() }()
				stop := context.AfterFunc(ctx, func() { _ = client.Close() })
				defer stop()
				all.Go(func() { _, _ = io.Copy(server, client) })
				_, _ = io.CopyN(io.MultiWriter(client, p), server, after)
			})
		}
	})
	return p
}

// The first request is retried, and the response that breaks is resumed.
func TestDownload_protocols(t *testing.T) {
	for _, row := range []struct {
		name  string
		http2 bool
	}{
		{"HTTP/1.1, zero value", false},
		{"HTTP/2", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, row.http2, r.ProtoMajor == 2)
				switch requests.Add(1) {
				case 1:
					w.WriteHeader(http.StatusInternalServerError)
					return
				case 2: // a part, and the end of the connection or stream
					w.Header().Set("ETag", `"v1"`)
					w.Header().Set("Accept-Ranges", "bytes")
					w.Header().Set("Content-Length", "26")
					_, _ = io.WriteString(w, alphabet[:10])
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("ETag", `"v1"`)
				http.ServeContent(w, r, "", time.Time{}, strings.NewReader(alphabet))
			}))
			defer server.Close()
			transport := &download.Transport{}
			if server.EnableHTTP2 = row.http2; row.http2 {
				server.StartTLS()
				transport.Base = &resilienthttp.Transport{Base: server.Client().Transport}
			} else {
				server.Start()
			}
			client := &http.Client{Transport: transport}
			defer client.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, alphabet, string(got))
			require.EqualValues(t, 3, requests.Load())
			require.IsType(t, &resilienthttp.Transport{}, transport.Unwrap())
			require.Len(t, resilienthttp.Attempts(resp), 2)
		})
	}
}
