package resilienthttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
)

const (
	// smallBody is the size up to which a body takes no time: that of a request is sent without upload tracking, a discarded
	// response is read so that its connection can be reused, and a stream is held.
	smallBody = 64 << 10

	readTime = 100 * time.Millisecond // maximum time to read what the caller does not read, or not yet
)

// requestBody returns the request body of the attempt: the caller's for the first, then those of GetBody.
func (a *attempt) requestBody() (io.ReadCloser, *Error) {
	c := a.call
	if a.kind == kindFirst {
		return a.watch(c.request.Body), nil
	}
	body, err := a.newBody()
	if err == nil {
		return a.watch(body), nil
	}
	if !a.isCopy() {
		c.retries.bodyErr = err
	}
	return nil, &Error{Reason: ErrNotReplayable, Err: err}
}

var errBodyInUse = neterr.New("another attempt still reads the request body, and GetBody may rewind it")

// wasCutOff reports whether the connection broke while a long request body was being sent. The server may have rejected the
// request by a response, such as a 413, that the reset has destroyed. So the next attempt asks before it sends the body
// (RFC 9110 section 10.1.1).
func (a *attempt) wasCutOff() bool {
	sent := a.came == outcome.Broken && a.report.work != outcome.NotSent
	return sent && a.call.longUpload() && !a.upload.Load().isWhole()
}

// addedExpect reports whether the attempt has asked before it sent its body, although the caller has not: see wasCutOff.
func (a *attempt) addedExpect() bool {
	return a.request.Header["Expect"] != nil && a.call.header["Expect"] == nil
}

// newBody returns a body for another request. Many SDKs rewind one reader in GetBody, so it is not called while another attempt may read the
// body: the server would store a mixture of both.
func (a *attempt) newBody() (io.ReadCloser, error) {
	if !a.call.bodyEnded(a.isCopy()) {
		return nil, errBodyInUse
	}
	return a.call.copyBody()
}

// copyBody calls GetBody.
func (c *call) copyBody() (io.ReadCloser, error) {
	body, err := c.request.GetBody()
	if err == nil && (body == nil || body == http.NoBody) {
		err = neterr.New("returned no body")
	}
	if err != nil && body != nil {
		_ = body.Close()
		body = nil
	}
	return body, err
}

// bodyEnded reports whether no attempt reads a body of the call any more. A RoundTripper may close the body after it has
// returned, so a retry waits a moment for that. A copy does not: the attempt beside it may read for long.
func (c *call) bodyEnded(atOnce bool) bool {
	c.mu.Lock()
	body := c.body
	c.mu.Unlock()
	if body == nil || ownReaders(c.request.GetBody) {
		return true
	}
	ended := body.whenEnded()
	if !atOnce {
		waitFor(ended, readTime)
	}
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// watch returns a body that notes what Base does with it. A short one of http.NewRequest stays as it is: it does not fail, its
// GetBody returns a new reader each time, and net/http sends a body that it knows to be in memory in one packet with the header.
func (a *attempt) watch(body io.ReadCloser) io.ReadCloser {
	c := a.call
	if !c.longUpload() && ownReaders(c.request.GetBody) {
		return body
	}
	watched := &watchedBody{ReadCloser: body, attempt: a}
	a.uploads(watched)
	return watched
}

// uploads notes which body Base sends: the one that it has begun to read last. A signer reads a copy before it sends the body, and
// another Base sends the copy.
func (a *attempt) uploads(body *watchedBody) {
	a.upload.Store(body)
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.call.body = body
}

func (f *facts) longUpload() bool {
	return f.hasBody && (f.request.ContentLength <= 0 || f.request.ContentLength > smallBody)
}

// ownReaders reports whether a GetBody is one of http.NewRequest, which returns a reader of its own each time.
func ownReaders(getBody func() (io.ReadCloser, error)) bool {
	return slices.Contains(getBodies, reflect.ValueOf(getBody).Pointer())
}

// rewind makes the body of the request begin at its first byte after functions of the program may have read that of GetBody. Many
// SDKs rewind one reader in GetBody, so what was read would be missing in the request.
func (f *facts) rewind() {
	req := f.request
	mayBeRead := f.config.scope != nil || f.policy.Idempotent != nil || f.quotas != nil || f.idempotency.NewKey != nil
	if !mayBeRead || !f.hasBody || req.GetBody == nil || ownReaders(req.GetBody) {
		return
	}
	another, _ := req.GetBody()
	same := reflect.ValueOf(another).Comparable() && another == req.Body
	if another != nil && !same {
		_ = another.Close()
	}
}

// getBodies are the functions that http.NewRequest sets as GetBody, for each type of a body that it knows.
var getBodies = func() (known []uintptr) { //nolint:gochecknoglobals // never written to
	for _, body := range []io.Reader{bytes.NewBufferString("x"), bytes.NewReader([]byte("x")), strings.NewReader("x")} {
		req, _ := http.NewRequest(http.MethodPost, "http://shadow.invalid", body)
		known = append(known, reflect.ValueOf(req.GetBody).Pointer())
	}
	return known
}()

// watchedBody is a request body of which is known how far Base is with it. It is safe for concurrent use: net/http may close
// a body during a Read.
type watchedBody struct {
	io.ReadCloser

	attempt  *attempt
	progress atomic.Int64 // when the last Read ended, since the attempt's start

	mu      sync.Mutex
	reading bool
	closing bool          // Close was called, so no further Read begins
	closed  bool          // Close has returned
	last    bool          // the response has ended: Close ends the attempt
	whole   bool          // it was read to its end
	read    int64         // bytes
	failed  bool          // it returned an error, or another number of bytes than the request has promised
	ended   chan struct{} // closed when it is closed and no Read is left; nil: nothing waits for that
}

// whenEnded returns a channel that is closed when Base is done with the body.
func (b *watchedBody) whenEnded() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended == nil {
		b.ended = make(chan struct{})
		b.noteEnd()
	}
	return b.ended
}

// noteEnd tells the waiting retry that Base is done with the body, if it is. b.mu is locked.
func (b *watchedBody) noteEnd() {
	if b.closed && !b.reading && b.ended != nil {
		close(b.ended)
	}
}

// progressAt returns when the body last made progress, since the attempt's start.
func (b *watchedBody) progressAt() time.Duration {
	if b == nil {
		return 0
	}
	return time.Duration(b.progress.Load())
}

// failedItself reports whether the body has failed, so that what follows says nothing of the server.
func (b *watchedBody) failedItself() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// isTouched reports whether Base has begun to read the body, or has closed it.
func (b *watchedBody) isTouched() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing || b.read > 0
}

func (b *watchedBody) isWhole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whole
}

// Read notes the progress: an attempt that makes progress does not time out.
func (b *watchedBody) Read(p []byte) (int, error) {
	if !b.begin() {
		return 0, http.ErrBodyReadAfterClose
	}
	var n int
	var err error
	defer func() { b.end(n, err) }() // also if the caller's body panics
	n, err = b.ReadCloser.Read(p)
	b.progress.Store(int64(time.Since(b.attempt.report.Start)))
	return n, err
}

func (b *watchedBody) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return false // an earlier Read may still be in flight
	}
	if b.read == 0 {
		b.attempt.uploads(b)
	}
	b.reading = true
	return true
}

func (b *watchedBody) end(n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.whole = err == io.EOF //nolint:errorlint // the very value: a Reader returns it unwrapped at its end
	b.read += int64(n)
	promised := b.attempt.request.ContentLength // not of the caller's request, which may be in use again
	switch {
	case b.closing:
		// Base has ended it, so what follows is no failure of the body.
	case b.whole:
		b.failed = promised > 0 && b.read != promised
	case err != nil:
		b.failed = true
	}
	b.noteEnd()
}

// Close closes the body once. It does not wait for a Read, which it may have to unblock.
func (b *watchedBody) Close() error {
	b.mu.Lock()
	again := b.closing
	b.closing = true
	b.mu.Unlock()
	if again {
		return nil
	}
	err := b.ReadCloser.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.noteEnd()
	if b.last {
		b.attempt.release()
	}
	return err
}

// goesOn reports whether Base still needs the body. Then Close ends the attempt.
func (b *watchedBody) goesOn() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = true
	return !b.closed
}

// endResponse ends the attempt after its response. Over HTTP/2 a server may respond before it has read the request body, and
// then read on, so an upload in progress is not cut off.
func (a *attempt) endResponse() {
	if upload := a.upload.Load(); upload == nil || !upload.goesOn() {
		a.release()
	}
}

// adopt returns the response to the call: the attempt ends when the response's body ends.
func (a *attempt) adopt(resp *http.Response) {
	sent := resp.Request
	resp.Request = &a.call.responseRequest
	if sent != &a.request {
		resp.Request = a.call.asSentBy(sent)
	}
	if resp.Body == http.NoBody {
		a.endResponse()
		return
	}
	a.body.base, a.body.attempt = resp.Body, a
	if _, writable := resp.Body.(io.Writer); writable && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = (*upgradedBody)(&a.body)
	} else {
		resp.Body = &a.body
	}
}

// asSentBy returns Response.Request for a request that Base has made in place of the attempt's, such as a signed one: the
// caller's request with that method, URL and header. A program may send it again, so it has no field of the client, and the
// caller's body. Of a list of endpoints it has nothing, because URL and credentials are those of one endpoint.
func (c *call) asSentBy(base *http.Request) *http.Request {
	if base == nil || base.URL == nil || c.route != nil {
		return &c.responseRequest
	}
	r := new(c.responseRequest)
	r.Method, r.URL, r.Host = base.Method, base.URL, base.Host
	r.Header = base.Header.Clone()
	for name := range r.Header {
		if !c.isOwn(name) {
			continue
		}
		delete(r.Header, name)
		if values, callers := c.request.Header[name]; callers {
			r.Header[name] = values
		}
	}
	return r
}

// discard closes a response that the caller does not get. It first reads the rest of the body, up
// to smallBody and readTime, so that the connection can be reused. If that was read ahead, it can still be read.
func (a *attempt) discard() {
	if a.body.base == nil {
		a.release()
		return
	}
	drained := inBackground(func() {
		defer func() { _ = a.body.Close() }()
		if _, held := a.body.base.(*heldBody); held {
			// What is worth reading was read ahead, and may still be the result of the call.
			a.release()
			return
		}
		if _, err := io.CopyN(io.Discard, (*drain)(&a.body), smallBody); !errors.Is(err, io.EOF) {
			// Over HTTP/2, Close waits until the request body is read.
			a.release()
		}
	})
	enough := time.NewTimer(readTime)
	defer enough.Stop()
	select {
	case <-drained:
		return
	case <-enough.C:
	case <-a.call.ctx.Done():
	}
	// This unblocks a Read that obeys its context, and Close one that does not.
	a.release()
	closed := inBackground(func() { _ = a.body.Close() })
	waitFor(closed, readTime)
}

// readAhead reads the body of a response that a retry may follow, up to smallBody and readTime. If it is the whole body,
// its connection can be reused during the wait.
func (a *attempt) readAhead() {
	if a.body.base != nil {
		holdBeginning(a.call.ctx, &a.body.base, smallBody)
	}
}

// inBackground runs f and then closes done. A user's body may panic, and the caller cannot
// recover in this goroutine.
func inBackground(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		f()
	}()
	return ended
}

// responseBody is the body of the attempt's response. It ends the attempt when it is read to its end or closed.
type responseBody struct {
	base    io.ReadCloser // of Base; nil: the response has no body, or there is none
	attempt *attempt
	timer   *time.Timer // of Policy.ReadTimeout
	closed  atomic.Bool
}

func (b *responseBody) Read(p []byte) (int, error) {
	a := b.attempt
	limit := a.call.policy.ReadTimeout
	if limit > 0 {
		if b.timer == nil {
			b.timer = time.AfterFunc(limit, b.onReadTimeout)
		} else {
			b.timer.Reset(limit)
		}
	}
	n, err := b.base.Read(p)
	if limit > 0 {
		b.timer.Stop()
	}
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		now := time.Now()
		a.visit.Record.bodies.Follow(now.Sub(a.call.origin), now.Sub(a.report.end()))
		a.endResponse()
		return n, err
	case a.cause() == ErrReadTimeout:
		// The error of a closed body would hide why it was closed.
		err = &Error{Reason: ErrReadTimeout, Attempts: a.call.attempts(), call: a.call}
	default:
		a.call.awaitClientTimeout()
	}
	a.release()
	return n, err
}

// onReadTimeout unblocks the Read, by the context or by Close.
func (b *responseBody) onReadTimeout() {
	defer func() { _ = recover() }() // of Close: the caller cannot recover in this goroutine
	b.attempt.endWith(ErrReadTimeout)
	_ = b.Close()
}

// Close closes the body once.
func (b *responseBody) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	defer b.attempt.release()
	return b.base.Close()
}

// drain reads a response's body until it is closed, even if the body does not obey Close.
type drain responseBody

func (d *drain) Read(p []byte) (int, error) {
	if d.closed.Load() {
		return 0, io.EOF
	}
	return d.base.Read(p)
}

// upgradedBody is the connection of a 101 response.
type upgradedBody responseBody

func (b *upgradedBody) Read(p []byte) (int, error) { return b.base.Read(p) }
func (b *upgradedBody) Close() error               { return (*responseBody)(b).Close() }

func (b *upgradedBody) Write(p []byte) (int, error) {
	return b.base.(io.Writer).Write(p) //nolint:errcheck // adopt checks it
}

// CloseWrite ends the writing half, as httputil.ReverseProxy does.
func (b *upgradedBody) CloseWrite() error { return closeWrite(b.base) }

func closeWrite(conn any) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
