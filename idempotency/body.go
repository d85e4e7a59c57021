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
	// errBodyTooLarge means that the request body is larger than the limit.
	errBodyTooLarge = errors.New("idempotency: request body too large")

	// errBodyCut means that the request body could not be read to its end. It is wrapped
	// with the error of the reader.
	errBodyCut = errors.New("idempotency: request body cut short")
)

// firstRead bounds the memory that is allocated for a Content-Length alone. A client
// that announces much and sends nothing costs no more.
const firstRead = 64 << 10

// readBody reads the request body of at most limit bytes (negative: no limit), and
// replaces it by an unread copy. The errors are errBodyTooLarge and errBodyCut. The
// request's ContentLength does not change, and its trailer is set.
//
// The length is not compared with ContentLength. net/http finds a body that ends too early, and middleware that
// decompresses a body keeps the length of the compressed one.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if limit >= 0 && r.ContentLength > limit {
		// A client that waits for 100 Continue sends nothing.
		return nil, errBodyTooLarge
	}
	body, err := readUpTo(r.Body, limit, r.ContentLength)
	if err != nil {
		return nil, err
	}
	r.Body = &unreadBody{unread: bytes.NewReader(body), under: r.Body}
	return body, nil
}

// readUpTo reads r to its end. size is the announced length, or negative.
func readUpTo(r io.Reader, limit, size int64) ([]byte, error) {
	if size < 0 {
		size = bytes.MinRead
	}
	// One byte more than announced, to read the end of the body without growing.
	body := make([]byte, 0, min(size, firstRead)+1)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if limit >= 0 && int64(len(body)) > limit {
			return nil, errBodyTooLarge
		}
		switch {
		case err == io.EOF: // not errors.Is: a wrapped EOF is a failure of the reader
			return body, nil
		case err != nil:
			return nil, bodyError(err)
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
	}
}

// bodyError tells the smaller limit of an outer handler from a failure.
func bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("%w: %w", errBodyTooLarge, err)
	}
	return fmt.Errorf("%w: %w", errBodyCut, err)
}

// unreadBody gives the handler the body from its beginning. It may be closed while
// another goroutine reads, as httputil.ReverseProxy does.
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

// Close also closes the original body.
func (b *unreadBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread = nil
	return b.under.Close()
}
