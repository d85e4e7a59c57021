package endpoints_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// shop is a server that honours idempotency keys: it charges each key once, and each request without a key.
type shop struct {
	mu      sync.Mutex
	charges int
	keys    map[string]bool
	after   func() // what happens between a charge and its response
}

func (s *shop) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	key := r.Header.Get("Idempotency-Key")
	if key == "" || !s.keys[key] {
		s.charges++
		s.keys[key] = true
	}
	s.mu.Unlock()
	s.after()
}

func (s *shop) charged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.charges
}

// varnish starts a Varnish with its built-in VCL, and an address that shows that it serves, in front of a server. It returns its URL.
func varnish(t *testing.T, backend string) string {
	t.Helper()
	program, err := exec.LookPath("varnishd")
	if err != nil {
		t.Skip("varnishd is not installed, or not in PATH")
	}
	at, err := url.Parse(backend)
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	folder, err := os.MkdirTemp("", "varnish") //nolint:usetesting // t.TempDir's names are too long for the socket of varnishd
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	vcl := fmt.Sprintf("vcl 4.1;\nbackend default { .host = %q; .port = %q; .first_byte_timeout = 300ms; }\n"+
		"sub vcl_recv { if (req.url == \"/ready\") { return (synth(204)); } }\n", at.Hostname(), at.Port())
	require.NoError(t, os.WriteFile(folder+"/vcl", []byte(vcl), 0o600))
	server := exec.Command(program, "-F", "-j", "none", "-n", folder+"/work", "-f", folder+"/vcl", "-a", address, "-s", "malloc,16m")
	var said strings.Builder
	server.Stdout, server.Stderr = &said, &said
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	// Its parent process accepts connections before the child that serves them has started, and may reset those.
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + address + "/ready")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusNoContent
	}, time.Minute, 50*time.Millisecond)
	return "http://" + address
}

// §4.8, §4.18a, N1: Varnish answers 503 with Retry-After also if the backend has done the work. So a POST without a key is not
// repeated, no POST is sent to another endpoint, and the call is in doubt.
func TestVarnish(t *testing.T) {
	t.Parallel()
	breaks := func() { panic(http.ErrAbortHandler) } // the connection is closed without a response
	for _, row := range []struct {
		name    string
		after   func()
		keyless bool
	}{
		{"the backend closes the connection, no key", breaks, true},
		{"the backend closes the connection, with a key", breaks, false},
		{"the backend is slower than first_byte_timeout, no key", func() { time.Sleep(2 * time.Second) }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // the call with a key waits for 5 s
			first := &shop{keys: map[string]bool{}, after: row.after}
			backend := httptest.NewServer(first)
			t.Cleanup(backend.Close)
			second := &shop{keys: map[string]bool{}, after: func() {}}
			other := httptest.NewServer(second)
			t.Cleanup(other.Close)
			list := pair(t, varnish(t, backend.URL), other.URL, nil)
			list.Transport.Idempotency.Disabled = row.keyless
			list.Transport.Policy = resilienthttp.Policy{MaxAttempts: 2, Backoff: resilienthttp.Constant(time.Millisecond), MaxRetryAfter: 10 * time.Second}
			t.Cleanup(list.CloseIdleConnections)

			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			t.Cleanup(cancel)
			resp, err := closed(t, list, newRequest(ctx, t, http.MethodPost, list.Endpoints[0].URL.String()+"/charges", strings.NewReader("1")))
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.Equal(t, "5", resp.Header.Get("Retry-After"), "as Varnish's built-in VCL has it")
			require.Equal(t, 1, first.charged(), resilienthttp.Explain(resp, err))
			require.Zero(t, second.charged(), resilienthttp.Explain(resp, err))
			require.True(t, resilienthttp.InDoubt(resp, err))
		})
	}
}
