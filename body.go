package resilienthttp

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

const (
	drainLimit = 64 << 10               // bytes of a discarded response that are read, so that its connection can be reused,
	drainTime  = 100 * time.Millisecond // and how long that may take

	smallBody   = 64 << 10 // bytes of a request body whose upload is not watched
	uploadChunk = 32 << 10 // bytes that a body with WriteTo writes at once
)

// bodyFor returns the request body of the attempt: the caller's for the first, then those of
// GetBody. A body that may take long is watched, if the attempt has a timer.
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
		body = a.upload.watch(body, a.report.Start)
	}
	return body, nil
}

// newBody calls GetBody.
func (c *call) newBody() (io.ReadCloser, error) {
	body, err := c.request.GetBody()
	if err == nil && (body == nil || body == http.NoBody) {
		err = neterr.New("it returned no body")
	}
	if err != nil {
		if body != nil {
			_ = body.Close()
		}
		return nil, err
	}
	return body, nil
}

// longUpload reports whether the request body may take long.
func (c *call) longUpload() bool {
	return c.hasBody && (c.request.ContentLength <= 0 || c.request.ContentLength > smallBody)
}

// bodyProgress is when the request body of an attempt last made progress. As long as it does,
// the attempt is not stuck.
type bodyProgress struct {
	at atomic.Int64 // since the attempt's start
}

func (p *bodyProgress) last() time.Duration { return time.Duration(p.at.Load()) }

// watch wraps a body, which keeps its WriteTo.
func (p *bodyProgress) watch(body io.ReadCloser, start time.Time) io.ReadCloser {
	watched := &watchedBody{body, p, start}
	if _, ok := body.(io.WriterTo); ok {
		return &watchedWriterTo{watched}
	}
	return watched
}

// watchedBody is a request body that records its progress.
type watchedBody struct {
	io.ReadCloser

	progress *bodyProgress
	start    time.Time
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.record()
	return n, err
}

func (b *watchedBody) record() { b.progress.at.Store(int64(time.Since(b.start))) }

// watchedWriterTo is a watchedBody that can write itself.
type watchedWriterTo struct{ *watchedBody }

// WriteTo implements io.WriterTo.
func (b *watchedWriterTo) WriteTo(w io.Writer) (int64, error) {
	return b.ReadCloser.(io.WriterTo).WriteTo(watchedWriter{w, b.watchedBody}) //nolint:errcheck // watch has made sure that it is one
}

// watchedWriter writes in chunks: a body may write all it has at once.
type watchedWriter struct {
	io.Writer

	body *watchedBody
}

func (w watchedWriter) Write(p []byte) (written int, err error) {
	for {
		chunk := p[written:min(written+uploadChunk, len(p))]
		n, err := w.Writer.Write(chunk)
		written += n
		w.body.record()
		if err != nil || written == len(p) {
			return written, err
		}
		if n < len(chunk) {
			return written, io.ErrShortWrite
		}
	}
}

// adopt makes the end of the response's body the end of the attempt.
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

// closeBody closes the response's body, once.
func (a *attempt) closeBody() error {
	if a.closed.Swap(true) {
		return nil
	}
	defer a.release()
	return a.body.Close()
}

// discard closes a response that the caller does not get. It first reads what is left of the
// body, within bounds, so that the connection can be reused.
func (a *attempt) discard() {
	if a.body == nil {
		return
	}
	drained := inBackground(func() {
		defer func() { _ = a.closeBody() }()
		if _, err := io.CopyN(io.Discard, (*drain)(a), drainLimit); !errors.Is(err, io.EOF) {
			a.release() // HTTP/2 waits in Close for a request body that is still being read
		}
	})
	enough := time.NewTimer(drainTime)
	defer enough.Stop()
	select {
	case <-drained:
		return
	case <-enough.C:
	case <-a.call.ctx.Done():
	}
	a.release() // a Read that obeys its context returns,
	closed := inBackground(func() { _ = a.closeBody() })
	enough.Reset(drainTime)
	select {
	case <-closed: // and so does one that obeys Close
	case <-enough.C:
	}
}

// inBackground runs f, and closes done when f has returned. A body of the user's may panic,
// and the caller cannot recover in this goroutine.
func inBackground(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		f()
	}()
	return ended
}

// drain reads a response's body until it is closed, even if the body itself goes on.
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
		a.call.record.bodies.Follow(time.Since(a.report.Start.Add(a.report.Latency)))
	case err == io.EOF:
	case a.cause() == ErrReadTimeout:
		err = &Error{Reason: ErrReadTimeout, Attempts: a.call.attempts()}
	}
	a.release()
	return n, err
}

// onReadTimeout makes the blocked Read return: by the context, or else by Close.
func (a *attempt) onReadTimeout() {
	defer func() { _ = recover() }() // of Close: the caller cannot recover in this goroutine
	a.endWith(ErrReadTimeout)
	_ = a.closeBody()
}

// bodyDuration is how long the body of a quick response takes, at most a quarter of the call's
// time: a stream of minutes must not prevent the retries of other calls.
func (c *call) bodyDuration() time.Duration {
	return min(c.record.bodies.Get(), c.deadline.Sub(c.start)/4)
}

func (b *responseBody) Close() error { return (*attempt)(b).closeBody() }

// upgradedBody is the connection that a 101 hands over.
type upgradedBody attempt

func (b *upgradedBody) Read(p []byte) (int, error) { return b.body.Read(p) }
func (b *upgradedBody) Close() error               { return (*attempt)(b).closeBody() }

func (b *upgradedBody) Write(p []byte) (int, error) {
	return b.body.(io.Writer).Write(p) //nolint:errcheck // adopt has made sure that it is one
}

// CloseWrite ends the writing half, as httputil.ReverseProxy does.
func (b *upgradedBody) CloseWrite() error {
	if half, ok := b.body.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
