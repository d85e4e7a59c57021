package idempotency

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// watchedBody counts, and fails the test when it must not be read.
type watchedBody struct {
	io.Reader

	read, closed int
}

func (b *watchedBody) Read(p []byte) (int, error) { b.read++; return b.Reader.Read(p) }
func (b *watchedBody) Close() error               { b.closed++; return nil }

func TestReadBody(t *testing.T) {
	broken := errors.New("broken")
	large := strings.Repeat("a", 300<<10)
	for _, row := range []struct {
		name   string
		body   io.Reader
		length int64 // as sent
		limit  int64
		want   string
		err    error
		unread bool
	}{
		{"with its length", strings.NewReader("hello"), 5, 10, "hello", nil, false},
		{"chunked", strings.NewReader("hello"), -1, 10, "hello", nil, false},
		{"a byte at a time", iotest.OneByteReader(strings.NewReader("hello")), -1, 10, "hello", nil, false},
		{"data with the end", iotest.DataErrReader(strings.NewReader("hello")), 5, 5, "hello", nil, false},
		{"empty", strings.NewReader(""), -1, 0, "", nil, false},
		{"at the limit", strings.NewReader("hello"), 5, 5, "hello", nil, false},
		{"chunked, at the limit", strings.NewReader("hello"), -1, 5, "hello", nil, false},
		{"large", strings.NewReader(large), int64(len(large)), 1 << 20, large, nil, false},
		{"large and chunked", strings.NewReader(large), -1, 1 << 20, large, nil, false},
		{"no limit", strings.NewReader(large), -1, -1, large, nil, false},
		{"the largest limit", strings.NewReader("hello"), -1, math.MaxInt64, "hello", nil, false},
		{"unpacked on the way", strings.NewReader("hello"), 2, 10, "hello", nil, false},

		{"too large by its word", strings.NewReader("hello"), 11, 10, "", errBodyTooLarge, true},
		{"far too large by its word", strings.NewReader("hello"), math.MaxInt64, 10, "", errBodyTooLarge, true},
		{"too large", strings.NewReader("hello"), -1, 4, "", errBodyTooLarge, false},
		{"too large, and lied", strings.NewReader("hello"), 3, 4, "", errBodyTooLarge, false},
		{"no byte allowed", strings.NewReader("h"), -1, 0, "", errBodyTooLarge, false},
		{"endless", endless{}, -1, 1 << 20, "", errBodyTooLarge, false},
		{"too large and broken", io.MultiReader(strings.NewReader("hello"), iotest.ErrReader(broken)), -1, 4, "", errBodyTooLarge, false},
		{"a smaller limit of an outer handler", http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("hello")), 3), 5, 10, "", errBodyTooLarge, false},
		{"ends early", strings.NewReader("hel"), 5, 10, "", errBodyCut, false},
		{"ends at once", strings.NewReader(""), 5, 10, "", errBodyCut, false},
		{"announces much", strings.NewReader("hel"), 1 << 40, -1, "", errBodyCut, false},
		{"breaks", io.MultiReader(strings.NewReader("hel"), iotest.ErrReader(broken)), 5, 10, "", errBodyCut, false},
		{"times out", iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("hello"))), 5, 10, "", errBodyCut, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			under := &watchedBody{Reader: row.body}
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Body, r.ContentLength = under, row.length
			body, err := readBody(r, row.limit)
			require.Equal(t, row.length, r.ContentLength)
			if row.err != nil {
				require.ErrorIs(t, err, row.err)
				require.Equal(t, row.name == "breaks", errors.Is(err, broken), "the cause is in the error")
				require.Nil(t, body)
				require.Equal(t, row.unread, under.read == 0)
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.want, string(body))

			// The handler reads the body.
			again, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, row.want, string(again))
			_, err = r.Body.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.Zero(t, under.closed)
			require.NoError(t, r.Body.Close())
			require.Equal(t, 1, under.closed)
			_, err = r.Body.Read(make([]byte, 1))
			require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestReadBody_trustsNoLength: a large Content-Length alone allocates no memory.
func TestReadBody_trustsNoLength(t *testing.T) {
	under := &watchedBody{Reader: readerFunc(func(p []byte) (int, error) {
		require.LessOrEqual(t, len(p), firstRead+1)
		return 0, io.ErrUnexpectedEOF
	})}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body, r.ContentLength = under, 1<<40
	_, err := readBody(r, -1)
	require.ErrorIs(t, err, errBodyCut)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestUnreadBodyClosedWhileRead is what httputil.ReverseProxy does.
func TestUnreadBodyClosedWhileRead(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("a", 100<<10)))
	_, err := readBody(r, -1)
	require.NoError(t, err)
	var reader sync.WaitGroup
	reader.Go(func() { _, _ = io.Copy(io.Discard, iotest.OneByteReader(r.Body)) })
	require.NoError(t, r.Body.Close())
	reader.Wait()
}

// TestReadBody_overTheWire: bodies as net/http reads them from a connection.
func TestReadBody_overTheWire(t *testing.T) {
	for _, row := range []struct {
		name, request, want string
	}{
		{"with its length", "Content-Length: 5\r\n\r\nhello", `"hello" 5 <nil> map[]`},
		{"chunked with a trailer", "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", `"hello" -1 <nil> map[X-Sum:[1]]`},
		{"expects a continue", "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello", `"hello" 5 <nil> map[]`},
		{"expects a continue, too large", "Content-Length: 50\r\nExpect: 100-continue\r\n\r\n", `"" 50 idempotency: request body too large map[]`},
		{"ends early", "Content-Length: 6\r\n\r\nhello", `"" 6 idempotency: request body cut short: unexpected EOF map[]`},
		{"chunks that are none", "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", `"" -1 idempotency: request body cut short: invalid byte in chunk length map[]`},
		{"chunks too many", "Transfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n6\r\nhello!\r\n0\r\n\r\n", `"" -1 idempotency: request body too large map[]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := make(chan string, 1)
			s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
				body, err := readBody(r, 10)
				got <- fmt.Sprintf("%q %d %v %v", body, r.ContentLength, err, r.Trailer)
			}, false)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			head, body, _ := strings.Cut(row.request, "\r\n\r\n")
			_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", head)
			answer := bufio.NewReader(conn)
			if strings.Contains(row.name, "continue") && body != "" {
				line, err := answer.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
			}
			_, err = io.WriteString(conn, body)
			require.NoError(t, err)
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			require.Equal(t, row.want, <-got)
		})
	}
}
