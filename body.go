package resilienthttp

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

const (
	// smallBody is the size up to which a body takes no time: that of a request is sent without upload tracking, a discarded
	// response is read so that its connection can be reused, and a stream is held.
	smallBody = 64 << 10

	readTime = 100 * time.Millisecond // maximum time to read what the caller does not read, or not yet
)

// bodyFor returns the request body of the attempt: the caller's for the first, then those of
// GetBody. If the attempt has a timer, it notes the progress of a long body.
func (c *call) bodyFor(a *attempt) (io.ReadCloser, *Error) {
	body := c.request.Body
	switch {
	case a == &c.first:
	case a.concurrent:
		var err error
		if body, err = c.newBody(); err != nil {
			return nil, &Error{Reason: ErrNotReplayable, Err: err}
		}
	default:
		body, c.retries.body = c.retries.body, nil
	}
	if c.longUpload() && (a.timers.cut > 0 || a.timers.slow > 0) {
		return &watchedBody{body, a}, nil
	}
	return body, nil
}

func (c *call) newBody() (io.ReadCloser, error) {
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

func (c *call) longUpload() bool {
	return c.hasBody && (c.request.ContentLength <= 0 || c.request.ContentLength > smallBody)
}

// watchedBody is a request body that notes its progress. An attempt that makes progress does not time out.
type watchedBody struct {
	io.ReadCloser

	attempt *attempt
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.attempt.upload.Store(int64(time.Since(b.attempt.report.Start)))
	return n, err
}

// adopt returns the response to the call: the attempt ends when the response's body ends.
func (a *attempt) adopt(resp *http.Response) {
	resp.Request = &a.call.responseRequest
	switch {
	case resp.Body == nil:
		resp.Body = http.NoBody
		a.release()
	case resp.Body == http.NoBody:
		a.release()
	default:
		a.body = resp.Body
		if _, writable := resp.Body.(io.Writer); writable && resp.StatusCode == http.StatusSwitchingProtocols {
			resp.Body = (*upgradedBody)(a)
		} else {
			resp.Body = (*responseBody)(a)
		}
	}
}

func (a *attempt) closeBody() error {
	if a.closed.Swap(true) {
		return nil
	}
	defer a.release()
	return a.body.Close()
}

// discard closes a response that the caller does not get. It first reads the rest of the body, up
// to smallBody and readTime, so that the connection can be reused.
func (a *attempt) discard() {
	if a.body == nil {
		return
	}
	drained := inBackground(func() {
		defer func() { _ = a.closeBody() }()
		if _, err := io.CopyN(io.Discard, (*drain)(a), smallBody); !errors.Is(err, io.EOF) {
			a.release() // over HTTP/2, Close waits until the request body is read
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
	a.release() // unblocks a Read that obeys its context
	closed := inBackground(func() { _ = a.closeBody() })
	waitFor(closed, readTime) // Close unblocks a Read that does not obey its context
}

// readAhead reads the beginning of the body. If it is the whole body, its connection can be reused before the caller reads
// it.
func (a *attempt) readAhead() {
	if a.body == nil {
		return
	}
	length := a.report.Response.ContentLength
	if length > 0 {
		length++ // for the end
	}
	holdBeginning(a.call.ctx, &a.body, length)
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

// drain reads a response's body until it is closed, even if the body does not obey Close.
type drain attempt

func (d *drain) Read(p []byte) (int, error) {
	if d.closed.Load() {
		return 0, io.EOF
	}
	return d.body.Read(p)
}

// responseBody ends the attempt when it is read to its end or closed.
type responseBody attempt

func (b *responseBody) Read(p []byte) (int, error) {
	a := (*attempt)(b)
	limit := a.call.policy.ReadTimeout
	if limit > 0 {
		if a.readTimer == nil {
			a.readTimer = time.AfterFunc(limit, a.onReadTimeout)
		} else {
			a.readTimer.Reset(limit)
		}
	}
	n, err := a.body.Read(p)
	if limit > 0 {
		a.readTimer.Stop()
	}
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && a.sampled:
		a.visit.Record.bodies.Follow(time.Since(a.report.Start.Add(a.report.Latency)))
	case err == io.EOF:
	case a.cause() == ErrReadTimeout:
		err = &Error{Reason: ErrReadTimeout, Attempts: a.call.attempts(), call: a.call}
	default:
		a.call.awaitClientTimeout()
	}
	a.release()
	return n, err
}

// onReadTimeout unblocks the Read, by the context or by Close.
func (a *attempt) onReadTimeout() {
	defer func() { _ = recover() }() // of Close: the caller cannot recover in this goroutine
	a.endWith(ErrReadTimeout)
	_ = a.closeBody()
}

func (b *responseBody) Close() error { return (*attempt)(b).closeBody() }

// upgradedBody is the connection of a 101 response.
type upgradedBody attempt

func (b *upgradedBody) Read(p []byte) (int, error) { return b.body.Read(p) }
func (b *upgradedBody) Close() error               { return (*attempt)(b).closeBody() }

func (b *upgradedBody) Write(p []byte) (int, error) {
	return b.body.(io.Writer).Write(p) //nolint:errcheck // adopt checks it
}

// CloseWrite ends the writing half, as httputil.ReverseProxy does.
func (b *upgradedBody) CloseWrite() error { return closeWrite(b.body) }

func closeWrite(conn any) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
