package resilienthttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

// prefixLimit is the maximum number of bytes of a failure's body for ClassifyBody.
const prefixLimit = 16 << 10

// isQuotaProblem reports whether the body may be the problem quota-exceeded: only such a body is read without ClassifyBody.
func isQuotaProblem(resp *http.Response) bool {
	return resp != nil && slices.Contains([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, resp.StatusCode) &&
		mediaType(resp.Header) == "application/problem+json"
}

// readPrefix returns the beginning of a failure's body. read is false if ClassifyBody must not be called: for other
// responses and for streams.
func (a *attempt) readPrefix(resp *http.Response) (prefix []byte, read bool) {
	if resp == nil || resp.StatusCode < http.StatusBadRequest || streams(resp.Header) {
		return nil, false
	}
	if resp.Body == http.NoBody {
		return nil, true
	}
	limit := prefixLimit
	if resp.ContentLength > 0 {
		limit = int(min(prefixLimit, resp.ContentLength))
	}
	return holdBeginning((*attemptContext)(a), &resp.Body, limit), true
}

func streams(h http.Header) bool {
	kind := mediaType(h)
	switch kind {
	case "text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson", "application/jsonl":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// mediaType returns the media type of a body in lower case, without its parameters.
func mediaType(h http.Header) string { return withoutParameters(field.Value(h, "Content-Type")) }

// withoutParameters returns a media type in lower case, without what follows a semicolon.
func withoutParameters(value string) string {
	kind, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// holdBeginning replaces a body by one that holds its first bytes: those that arrive within readTime, at most limit.
func holdBeginning(ctx context.Context, body *io.ReadCloser, limit int) []byte {
	b := &heldBody{ReadCloser: *body}
	*body = b
	enough := time.NewTimer(readTime)
	defer enough.Stop()
	for b.next == nil && b.err == nil && len(b.held) < limit {
		b.next = b.read(limit)
		select {
		case <-b.next.done:
			if !b.next.returned {
				return b.held // it panics again when the caller reads it
			}
			b.take(b.next)
		case <-enough.C:
		case <-ctx.Done():
		}
	}
	return slices.Clip(b.held)
}

// heldBody is the body of a response that was held. Its reader first gets what was read before, and then what the server
// sends, at once. Close may be called during a Read, as for net/http's bodies.
type heldBody struct {
	io.ReadCloser

	held []byte    // that the reader has not received
	err  error     // the error after held
	next *bodyRead // in flight when the response was returned; nil: none
}

// bodyRead is one Read in a goroutine of its own, so that the time of the attempt can end first. done is closed when the
// rest is known.
type bodyRead struct {
	done     <-chan struct{}
	bytes    []byte
	err      error
	returned bool // false: it panicked
}

// read begins a Read into the memory after the held bytes, which are fewer than limit.
func (b *heldBody) read(limit int) *bodyRead {
	b.held = slices.Grow(b.held, min(bytes.MinRead, limit-len(b.held)))
	room := b.held[len(b.held):min(cap(b.held), limit)]
	next := &bodyRead{}
	next.done = inBackground(func() {
		n, err := b.ReadCloser.Read(room)
		next.bytes, next.err, next.returned = room[:min(max(n, 0), len(room))], err, true
	})
	return next
}

func (b *heldBody) take(next *bodyRead) {
	b.held, b.err, b.next = append(b.held, next.bytes...), next.err, nil
}

func (b *heldBody) Read(p []byte) (int, error) {
	if b.next != nil && len(b.held) == 0 {
		if len(p) == 0 {
			return 0, nil // two Reads at once would be an error
		}
		<-b.next.done
		b.take(b.next)
	}
	switch {
	case len(b.held) > 0:
		n := copy(p, b.held)
		if b.held = b.held[n:]; len(b.held) == 0 {
			b.held = nil // the memory: the stream may go on for long
		}
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}
