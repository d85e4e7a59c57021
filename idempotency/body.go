package idempotency

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

var (
	// errBodyTooLarge: the request's body has more bytes than the limit.
	errBodyTooLarge = errors.New("idempotency: request body too large")

	// errBodyCut: the request's body could not be read to its end. It comes with
	// what the reader said.
	errBodyCut = errors.New("idempotency: request body cut short")
)

// firstRead bounds what is set aside on the word of Content-Length alone: a
// client that announces much and sends nothing costs no more.
const firstRead = 64 << 10

// readBody reads the request's body, of at most limit bytes (a negative limit is
// none), and leaves an unread one in its place. The errors are errBodyTooLarge
// and errBodyCut; the body is then what is left of it.
//
// The request keeps its ContentLength as it was sent, and its trailer is there
// when readBody returns.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if limit >= 0 && r.ContentLength > limit {
		// Nothing is read: a client that waits for 100 Continue sends nothing.
		return nil, errBodyTooLarge
	}
	body, err := readUpTo(r.Body, limit, r.ContentLength)
	if err != nil {
		return nil, err
	}
	// net/http notices a body that ends too early by itself; who calls ServeHTTP
	// directly does not. A longer one is somebody's who has unpacked it on the way
	// and left the length as it was.
	if int64(len(body)) < r.ContentLength {
		return nil, fmt.Errorf("%w: %d of %d bytes", errBodyCut, len(body), r.ContentLength)
	}
	r.Body = &unreadBody{unread: bytes.NewReader(body), under: r.Body}
	return body, nil
}

// readUpTo reads r to its end. size is how many bytes were announced, or negative.
func readUpTo(r io.Reader, limit, size int64) ([]byte, error) {
	if size < 0 {
		size = bytes.MinRead
	}
	// One byte more than announced, so that a body as announced is read to its end
	// without growing.
	body := make([]byte, 0, min(size, firstRead)+1)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if limit >= 0 && int64(len(body)) > limit {
			return nil, errBodyTooLarge
		}
		switch {
		case err == io.EOF: // the very one: a wrapped one is somebody's failure
			return body, nil
		case err != nil:
			return nil, bodyError(err)
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)] // grows as append thinks best
		}
	}
}

// bodyError tells a smaller limit, set by who came before, from a failure.
func bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("%w: %w", errBodyTooLarge, err)
	}
	return fmt.Errorf("%w: %w", errBodyCut, err)
}

// unreadBody gives the handler the body from its beginning. Like net/http's own,
// it may be closed while another goroutine reads: httputil.ReverseProxy does so.
type unreadBody struct {
	mu     sync.Mutex
	unread *bytes.Reader // nil: closed
	under  io.Closer
}

func (b *unreadBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unread == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.unread.Read(p)
}

// Close closes the body as it came, too: who came before may have made it.
func (b *unreadBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread = nil
	return b.under.Close()
}
