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
	peekLimit = 16 << 10               // bytes of a failure's body that ClassifyBody sees,
	peekTime  = 100 * time.Millisecond // and how long they are waited for
)

// peek is the beginning of a failure's body, for ClassifyBody. looked is false where it
// is not to be called: for what is no failure, and for streams, whose beginning nobody
// waits for.
func (a *attempt) peek(resp *http.Response) (beginning []byte, looked bool) {
	if resp == nil || resp.StatusCode < http.StatusBadRequest || a.call.perCall().ClassifyBody == nil || streams(resp.Header) {
		return nil, false
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 {
		return nil, true
	}
	size := int64(peekLimit)
	if resp.ContentLength > 0 {
		size = min(size, resp.ContentLength)
	}
	p := &peekedBody{ReadCloser: resp.Body, beginning: make([]byte, size), filled: make(chan struct{})}
	resp.Body = p
	go p.fill()
	return p.look((*attemptContext)(a)), true
}

// streams reports whether a body goes on for as long as there is something to tell.
func streams(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch kind {
	case "text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson", "application/jsonl":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// peekedBody is a body whose beginning was read ahead. It is read whole all the same. Its
// Close may be called while it is read, as that of net/http's bodies.
type peekedBody struct {
	io.ReadCloser

	mu        sync.Mutex
	beginning []byte
	n         int   // bytes of the beginning that have come
	read      int   // those that the reader has had
	err       error // which came after the beginning
	enough    bool  // no more is to be read ahead
	filled    chan struct{}
}

// fill reads ahead until the beginning is whole, or somebody has seen enough.
func (p *peekedBody) fill() {
	defer close(p.filled)
	// A body of somebody's making may panic, and nobody could recover here. It will do
	// so again where it is read.
	defer func() { _ = recover() }()
	for more := true; more; {
		n, err := p.ReadCloser.Read(p.beginning[p.n:])
		p.mu.Lock()
		p.n, p.err = min(p.n+max(n, 0), len(p.beginning)), err
		more = err == nil && !p.enough && p.n < len(p.beginning)
		p.mu.Unlock()
	}
}

// look is what comes of the beginning in peekTime.
func (p *peekedBody) look(ctx context.Context) []byte {
	enough := time.NewTimer(peekTime)
	defer enough.Stop()
	select {
	case <-p.filled:
	case <-enough.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enough = true
	return p.beginning[:p.n:p.n]
}

// Read gives the beginning first, as far as it has come.
func (p *peekedBody) Read(b []byte) (int, error) {
	if n, err := p.readAhead(b); n > 0 || err != nil || len(b) == 0 {
		return n, err
	}
	<-p.filled
	if n, err := p.readAhead(b); n > 0 || err != nil {
		return n, err
	}
	return p.ReadCloser.Read(b)
}

func (p *peekedBody) readAhead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(b, p.beginning[p.read:p.n])
	p.read += n
	if n == 0 && p.read == p.n {
		return 0, p.err
	}
	return n, nil
}
