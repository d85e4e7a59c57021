package memhttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

func TestDials(t *testing.T) {
	dns := &net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}
	op := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("own")}
	for _, row := range []struct {
		name  string
		host  string
		fault func(context.Context) error
		on    string // "": a.test
		want  error
	}{
		{name: "no fault", host: "a.test"},
		{name: "any case, any port", host: "A.Test:8080"},
		{name: "a port of its own", host: "b.test:81"},
		{name: "another port", host: "b.test:82", want: syscall.ECONNREFUSED},
		{name: "no listener", host: "c.test", want: syscall.ECONNREFUSED},
		{name: "refused", host: "a.test", fault: memhttp.Refuse, want: syscall.ECONNREFUSED},
		{name: "refused on one port", host: "a.test:81", fault: memhttp.Refuse, on: "A.test:81", want: syscall.ECONNREFUSED},
		{name: "not refused on the others", host: "a.test", fault: memhttp.Refuse, on: "a.test:81"},
		{name: "hangs", host: "a.test", fault: memhttp.Hang, want: context.DeadlineExceeded},
		{name: "unknown to DNS", host: "a.test", fault: func(context.Context) error { return dns }, want: dns},
		{name: "an OpError already", host: "a.test", fault: func(context.Context) error { return op }, want: op},
		{name: "a fault that lets go", host: "a.test", fault: func(context.Context) error { return nil }},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			n.Serve(t, "a.test", hello)
			n.Serve(t, "B.test:81", hello)
			on := row.on
			if on == "" {
				on = "a.test"
			}
			n.SetDialFault(on, row.fault)
			c := &http.Client{Transport: n.Transport(), Timeout: time.Minute}
			resp, err := c.Get("http://" + row.host)
			if row.want == nil {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return
			}
			require.ErrorIs(t, err, row.want)
			if row.want == context.DeadlineExceeded {
				return // the client's own, before that of the dial
			}
			var oe *net.OpError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, "dial", oe.Op)

			n.SetDialFault(on, nil)
			if row.fault != nil {
				get(t, c, "http://"+row.host)
			}
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
		timeout bool
	}{
		{"canceled", canceled, "a.test:80", "context canceled", false},
		{"timeout", nil, "a.test:80", "context deadline exceeded", true},
		{"no port", context.Background(), "a.test", "missing port in address", false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			n.Serve(t, "a.test", hello)
			n.SetDialFault("a.test", memhttp.Hang)
			ctx := row.ctx
			if ctx == nil {
				c, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ctx = c
			}
			_, err := n.DialContext(ctx, "tcp", row.address)
			require.ErrorContains(t, err, row.want)
			var oe *net.OpError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, row.timeout, oe.Timeout())
		})
	}
}

// Close ends dials that http.Transport does not wait for.
func TestNetworkClose_endsDials(t *testing.T) {
	both(t, func(t *testing.T) {
		s := memhttp.NewServer(t, hello)
		s.Net.SetDialFault("mem.test", memhttp.Hang)
		s.Net.SetDialFault("other.test", memhttp.Hang)
		c := &http.Client{Transport: s.Transport().Clone(), Timeout: time.Millisecond}
		_, err := c.Get(s.URL)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestNetworkClose_refusesLaterDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memhttp.NewNetwork(t)
		n.SetDialFault("a.test", memhttp.Hang)
		n.Close()
		_, err := n.DialContext(t.Context(), "tcp", "a.test:80")
		require.ErrorIs(t, err, context.Canceled)
		_, err = n.DialContext(t.Context(), "tcp", "b.test:80")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
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
		_, err := c.Get(a.URL)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
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
		_, err := tr.RoundTrip(mustGet(t, "http://raw.test"))
		require.ErrorContains(t, err, "malformed HTTP")

		c, err := n.DialContext(t.Context(), "tcp", "raw.test:80")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET, "never accepted")
		require.NoError(t, c.Close())
		require.ErrorIs(t, l.Close(), net.ErrClosed)
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}
