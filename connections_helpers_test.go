package resilienthttp_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// silencer is a TCP proxy on a loopback port. It can make connections silent: they stay open, and no
// byte passes.
type silencer struct {
	listener net.Listener
	to       string
	accepted atomic.Int64

	mu    sync.Mutex
	conns []*silenced
	work  sync.WaitGroup
}

type silenced struct {
	client, server net.Conn
	silent         atomic.Bool
	closed         atomic.Bool // by the client
}

func newSilencer(t *testing.T, to string) *silencer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &silencer{listener: l, to: to}
	s.work.Go(s.serve)
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_, _ = c.client.Close(), c.server.Close()
		}
		s.mu.Unlock()
		s.work.Wait()
	})
	return s
}

func (s *silencer) serve() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", s.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		s.accepted.Add(1)
		c := &silenced{client: client, server: server}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.work.Go(func() { c.pass(server, client); c.closed.Store(true) })
		s.work.Go(func() { c.pass(client, server) })
	}
}

func (c *silenced) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !c.silent.Load() {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			if !c.silent.Load() {
				_ = to.Close()
			}
			return
		}
	}
}

// silence makes all connections silent that are open now. The server's node is dead, or a firewall
// has forgotten them.
func (s *silencer) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.silent.Store(true)
	}
}

// protocolServer is a server over TLS or not, with HTTP/1.1 or HTTP/2, behind a silencer.
type protocolServer struct {
	*silencer

	url    string
	server *httptest.Server
	base   *http.Transport // trusts and reaches the server
}

func newProtocolServer(t *testing.T, http2, secure bool, h http.Handler) *protocolServer {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	base := resilienthttp.NewBase()
	base.Proxy = nil
	if http2 && !secure {
		server.Config.Protocols, base.Protocols = new(http.Protocols), new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		base.Protocols.SetUnencryptedHTTP2(true)
	}
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // dials that end with their pool
	if secure {
		server.StartTLS()
		trusted, ok := server.Client().Transport.(*http.Transport)
		require.True(t, ok)
		base.TLSClientConfig = trusted.TLSClientConfig.Clone()
		base.TLSClientConfig.NextProtos = nil
	} else {
		server.Start()
	}
	s := &protocolServer{silencer: newSilencer(t, server.Listener.Addr().String()), server: server, base: base}
	s.url = server.URL[:len(server.URL)-len(server.Listener.Addr().String())] + s.listener.Addr().String()
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.CloseClientConnections()
	})
	return s
}

// send makes a call, and returns the status.
func (s *protocolServer) send(t *testing.T, client *http.Client, ctx context.Context, method string, body io.Reader) (status int, err error) { //nolint:revive // t first
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.url, body)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func withGotConn(ctx context.Context, f func(net.Conn)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { f(info.Conn) }})
}
