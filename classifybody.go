package resilienthttp

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	prefixLimit = 16 << 10               // maximum bytes of a failure's body for ClassifyBody
	prefixTime  = 100 * time.Millisecond // maximum time to wait for them
)

// readPrefix returns the beginning of a failure's body for ClassifyBody. read is false if
// ClassifyBody must not be called: for other responses and for streams.
func (a *attempt) readPrefix(resp *http.Response) (prefix []byte, read bool) {
	if resp == nil || resp.StatusCode < http.StatusBadRequest || streams(resp.Header) {
		return nil, false
	}
	if resp.Body == nil || resp.Body == http.NoBody {
		return nil, true
	}
	size := int64(prefixLimit)
	if resp.ContentLength > 0 {
		size = min(size, resp.ContentLength)
	}
	p := readingAhead(resp.Body, size)
	resp.Body = p
	return p.wait((*attemptContext)(a)), true
}

// streams reports whether the body is a stream of events.
func streams(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch kind {
	case "text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson", "application/jsonl":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// prefixBody is a body with a beginning that was read ahead. Its reader gets the whole body.
// Close may be called during a Read, as for net/http's bodies.
type prefixBody struct {
	io.ReadCloser

	mu     sync.Mutex
	prefix []byte
	n      int   // bytes of the prefix that were read ahead
	read   int   // bytes of them that the reader has received
	err    error // the error after the prefix
	enough bool  // stop reading ahead
	filled chan struct{}
}

// readingAhead returns the body, and begins to read its first bytes.
func readingAhead(body io.ReadCloser, size int64) *prefixBody {
	p := &prefixBody{ReadCloser: body, prefix: make([]byte, size), filled: make(chan struct{})}
	go p.fill()
	return p
}

// fill reads ahead until the prefix is full, or enough is set.
func (p *prefixBody) fill() {
	defer close(p.filled)
	// A body of the user's may panic. The caller could not recover here, and the body will
	// panic again when the caller reads it.
	defer func() { _ = recover() }()
	for more := true; more; {
		n, err := p.ReadCloser.Read(p.prefix[p.n:])
		p.mu.Lock()
		p.n, p.err = min(p.n+max(n, 0), len(p.prefix)), err
		more = err == nil && !p.enough && p.n < len(p.prefix)
		p.mu.Unlock()
	}
}

// wait returns the part of the prefix that arrives within prefixTime.
func (p *prefixBody) wait(ctx context.Context) []byte {
	enough := time.NewTimer(prefixTime)
	defer enough.Stop()
	select {
	case <-p.filled:
	case <-enough.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enough = true
	return p.prefix[:p.n:p.n]
}

// Read returns the prefix first.
func (p *prefixBody) Read(b []byte) (int, error) {
	if n, err := p.readAhead(b); n > 0 || err != nil || len(b) == 0 {
		return n, err
	}
	<-p.filled
	if n, err := p.readAhead(b); n > 0 || err != nil {
		return n, err
	}
	return p.ReadCloser.Read(b)
}

func (p *prefixBody) readAhead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(b, p.prefix[p.read:p.n])
	p.read += n
	if n == 0 && p.read == p.n {
		return 0, p.err
	}
	return n, nil
}
